"""Between people's words and a release's numbers: what is asked of it, and the ads that it answers."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET

from core.merge import SOURCES
from core.served import Found, Wanted
from core.sparse import Floats
from service.holder import Release
from service.problems import Fault, RefusedError, invalid
from service.schemas import Ad, PredictRequest, Wishes

_FEW = 20


def ask(release: Release, asked: PredictRequest, beam: int, table_first: bool = False) -> Found:
    """What a release answers to one request."""
    wanted, features = wanted_of(release, asked, beam, table_first), asked.features
    if features is UNSET:
        assert asked.query is not UNSET  # one of them was given
        return release.served.ask(asked.query, wanted)
    most, n_features = max(features.indices, default=0), release.served.text.n_features
    if most >= n_features:
        detail = f"must be below {n_features}, the model's features; got {most}"
        raise RefusedError(invalid(Fault(f"/features/indices/{features.indices.index(most)}", detail)))
    return release.served.ask_features(features.indices, features.values, wanted)


def beam_of(release: Release, asked: Wishes) -> int:
    """The beam that is asked for, or the model's own."""
    return release.served.beam if asked.beam is UNSET else asked.beam


def wanted_of(release: Release, asked: Wishes, beam: int, table_first: bool = False) -> Wanted:
    """A request in numbers of ads. Unknown ads are left out: nobody answers them anyway."""
    find = release.served.numbers
    candidates = None if asked.candidates is UNSET else find(asked.candidates)
    exclude = find(asked.exclude) if asked.exclude else ()
    return Wanted(asked.k, asked.threshold, beam, asked.source, asked.rank, exclude, candidates, table_first)


def ads_of(release: Release, found: Found) -> list[Ad]:
    """The ads of an answer, as people know them."""
    ad_id, merged = release.ad_id, found.merged
    relevance = _rounded(merged.scores)
    worth = relevance if found.worth is merged.scores else _rounded(found.worth)
    names, sources = map(ad_id, merged.ads.tolist()), map(SOURCES.__getitem__, merged.sources.tolist())
    return list(map(Ad, names, relevance, sources, worth))


def _rounded(scores: Floats) -> list[float]:
    """To what 32 bits can tell: eight places. Few numbers are rounded faster one by one than by NumPy."""
    if len(scores) <= _FEW:
        return [int(score * 1e8 + 0.5) / 1e8 for score in scores.tolist()]
    rounded: list[float] = scores.astype(np.float64).round(8).tolist()
    return rounded
