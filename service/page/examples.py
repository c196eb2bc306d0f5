"""Queries to begin with: words of ads' titles that the release answers well.

Titles are written to be seen by everybody. Queries of the table and of the manifest were typed by people: they are not
shown.
"""

from __future__ import annotations

import itertools

import numpy as np

from core.served import Served, Wanted
from core.text import normalise

_LOOKED_AT = 12  # ads, spread over the catalogue
_TITLE = 12  # words of a title, the first


def examples(served: Served, most: int = 3) -> list[str]:
    """For some ads the two neighbouring words of the title that give the most relevant answer; the best of these."""
    live = np.flatnonzero(served.catalogue.live)
    spread = live[np.linspace(0, len(live) - 1, min(_LOOKED_AT, len(live))).astype(np.int64)]
    asked = [_pairs(title or "") for title in served.texts["title"].take(spread).to_pylist()]
    queries = list(itertools.chain.from_iterable(asked))
    found = served.ask_many(queries, Wanted(k=1)) if queries else []
    scores = iter([float(one.merged.scores[0]) if len(one.merged.scores) else 0.0 for one in found])
    best = {max((next(scores), query) for query in of_one) for of_one in asked if of_one}
    chosen = dict[str, str]()  # one per second word, so that they are not three times the same
    for score, query in sorted(best, reverse=True):
        if score > 0:
            chosen.setdefault(query.rpartition(" ")[2], query)
    return list(chosen.values())[:most]


def _pairs(title: str) -> list[str]:
    return [f"{a} {b}" for a, b in itertools.pairwise(normalise(title).split()[:_TITLE])]
