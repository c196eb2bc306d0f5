"""Why this ad for this query: its path in every tree in words, the probability of each edge, the words that pushed it,
and what the table says.

The model's part counts the ad's path in every tree, as for a candidate; the relevance is the one that the query gets
with this ad as its only candidate.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from core.explain import Explanation, Step
from core.merge import SOURCES, Origin
from core.served import Served, Wanted
from core.text import normalise

_WORDS = 8  # of an edge, the strongest


class Push(NamedTuple):
    """How far a word moves the logit of an edge, or of all edges on the way to an ad."""

    word: str
    push: float


class Edge(NamedTuple):
    """A step towards the ad: the edge out of a node."""

    node: int
    probability: float
    bias: float
    words: tuple[Push, ...]


class Path(NamedTuple):
    """One tree's way to the ad; its score is factor · probability of the last edge."""

    score: float
    factor: float
    edges: tuple[Edge, ...]


class Why(NamedTuple):
    """relevance and source as in an answer, 0 and None where neither source names the ad. model: its score and paths,
    None where it does not know the ad or any word. table: rank and score, None where the row does not name it."""

    query: str
    relevance: float
    source: Origin | None
    model: tuple[float, tuple[Path, ...]] | None
    table: tuple[int, float] | None
    words: tuple[Push, ...]


def why(served: Served, query: str, ad: int) -> Why:
    """Why an ad, by number, has its relevance for a query."""
    normalised = normalise(query)
    merged = served.ask(query, Wanted(k=1, candidates=[ad])).merged
    relevance, source = (float(merged.scores[0]), SOURCES[merged.sources[0]]) if len(merged.ads) else (0.0, None)
    row = served.table.get(normalised)
    ads = [] if row is None else row.ads.tolist()
    table = (ads.index(ad) + 1, float(row.scores[ads.index(ad)])) if row is not None and ad in ads else None
    indices, values = served.text.features(normalised)
    if not len(indices) or ad >= served.engine.model.n_labels:
        return Why(normalised, relevance, source, None, table, ())
    names = {int(i): name for name in served.text.names_in(normalised) for i in (served.text.ids[name],)}
    said = served.engine.explain(indices, values, ad)
    scale = float(served.engine.model.manifest["scale"])
    paths = tuple(
        Path(factor * path[-1].probability * scale, factor, tuple(_edge(step, names) for step in path))
        for factor, path in zip(said.factors, said.paths, strict=True)
    )
    return Why(normalised, relevance, source, (said.score * scale, paths), table, _words(said, names))


def _edge(step: Step, names: dict[int, str]) -> Edge:
    pushes = tuple(Push(names[feature], push) for feature, push in step.contributions[:_WORDS])
    return Edge(step.node, step.probability, step.bias, pushes)


def _words(said: Explanation, names: dict[int, str]) -> tuple[Push, ...]:
    """What each word does on all edges, in the mean of the trees; the strongest first."""
    pushes = defaultdict[str, list[float]](list)
    for path in said.paths:
        for step in path:
            for feature, push in step.contributions:
                pushes[names[feature]].append(push)
    total = ((word, math.fsum(parts) / len(said.paths)) for word, parts in pushes.items())
    return tuple(_strongest(total))


def _strongest(pushes: Iterable[tuple[str, float]]) -> list[Push]:
    return sorted((Push(*pair) for pair in pushes), key=lambda one: (-abs(one.push), one.word))
