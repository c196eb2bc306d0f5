"""How an ad's score from the table and its score from the beam search become one answer.

    both:    weight · table + (1 − weight) · model
    one:     that score

and then, where the release has maps, map of the source(score): the click rate that was seen on held-out data for ads of
that source with that score. Whether an ad was found by one source or by both says much about it, so each has a map of
its own. Ads come by falling probability, ties by lower id. The weight and the maps are chosen by training/judge.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from core.calibration import BEYOND, Calibration
from core.errors import ModelError
from core.jit import kernel
from core.kernels.numbers import UInt64s, key, key_number, key_score
from core.sparse import Csr, Floats, Int32s, Int64s

Source = Literal["model", "table", "both"]
SOURCES: tuple[Source, ...] = ("model", "table", "both")  # a source's number is its place here
_MODEL, _TABLE, _BOTH = 0, 1, 2
UInt8s = npt.NDArray[np.uint8]


class Merged(NamedTuple):
    """Ads, best first, their click probabilities and where they come from."""

    ads: Int32s
    scores: Floats
    sources: UInt8s

    def best(self, n: int) -> Merged:
        return Merged(self.ads[:n], self.scores[:n], self.sources[:n])


class MergeRule(NamedTuple):
    """The share of the table where both know an ad, and the maps to click rates by source."""

    weight: float
    maps: Mapping[Source, Calibration]

    def as_json(self) -> dict[str, Any]:
        maps = {
            source: {"scores": [float(x) for x in fitted.scores], "relevances": [float(y) for y in fitted.relevances]}
            for source, fitted in self.maps.items()
        }
        return {"weight": self.weight, "maps": maps}

    @classmethod
    def from_json(cls, fields: Any) -> MergeRule:
        """The inverse of `as_json`; refuses numbers that are no rule."""
        try:
            maps = {
                source: Calibration(np.array(knots["scores"], np.float32), np.array(knots["relevances"], np.float32))
                for source, knots in fields["maps"].items()
            }
            weight = float(fields["weight"])
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ModelError(f"these are not the weight and maps of a merge rule: {error}") from error
        if not set(maps) <= set(SOURCES) or not 0.0 <= weight <= 1.0:
            raise ModelError(f"a merge rule has maps for {', '.join(SOURCES)} and a weight in 0 … 1, got {weight}")
        for source, fitted in maps.items():
            if (
                not _rises(fitted.scores)
                or not _rises(fitted.relevances)
                or len(fitted.scores) != len(fitted.relevances)
            ):
                raise ModelError(f"the knots of the map for {source!r} do not rise")
        return cls(weight, maps)


PLAIN = MergeRule(0.5, {})


def _rises(knots: Floats) -> bool:
    return (
        knots.ndim == 1
        and len(knots) > 0
        and math.isfinite(knots.sum())
        and bool((np.diff(knots, prepend=0) > 0).all())
    )


class Merger:
    """A rule, ready to be applied."""

    def __init__(self, rule: MergeRule) -> None:
        maps = [rule.maps.get(source) for source in SOURCES]
        self._ptr = np.cumsum([0] + [0 if m is None else len(m.scores) for m in maps])
        empty = np.empty(0, np.float32)
        self._x = np.concatenate([empty, *(m.scores for m in maps if m is not None)])
        self._y = np.concatenate([empty, *(m.relevances for m in maps if m is not None)])
        self._weight = np.float32(rule.weight)

    def merge(self, model: tuple[Int32s, Floats], table: tuple[Int32s, Floats], k: int) -> Merged:
        """The k best of both sources; each comes as distinct ads with their scores, in any order."""
        most = len(model[0]) + len(table[0])
        ads, scores, sources = np.empty(most, np.int32), np.empty(most, np.float32), np.empty(most, np.uint8)
        _merge(*model, *table, self._weight, self._ptr, self._x, self._y, ads, scores, sources)
        n = min(k, int(np.count_nonzero(scores > 0.0)))
        return Merged(ads, scores, sources).best(n)

    def merge_rows(self, model: Csr, table: Csr, k: int) -> tuple[Csr, UInt8s]:
        """The same for many queries: rows of probabilities, ids rising, and the source of every entry."""
        parts = []
        for row in range(model.n_rows):
            of_model, of_table = _row(model, row), _row(table, row)
            merged = self.merge(of_model, of_table, k)
            order = np.argsort(merged.ads)
            parts.append(Merged(merged.ads[order], merged.scores[order], merged.sources[order]))
        indptr = np.concatenate([[0], np.cumsum([len(part.ads) for part in parts])]).astype(np.int64)
        ads, scores, sources = (np.concatenate([Merged(*_NOTHING)[i], *(p[i] for p in parts)]) for i in range(3))
        return Csr(indptr, ads, scores, model.n_cols), sources


_NOTHING = (np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint8))


def _row(rows: Csr, i: int) -> tuple[Int32s, Floats]:
    part = slice(rows.indptr[i], rows.indptr[i + 1])
    return rows.indices[part], rows.values[part]


@kernel()
def _merge(
    model_ads: Int32s,
    model_scores: Floats,
    table_ads: Int32s,
    table_scores: Floats,
    weight: np.float32,
    ptr: Int64s,
    x: Floats,
    y: Floats,
    ads: Int32s,
    scores: Floats,
    sources: UInt8s,
) -> None:
    """Fill ads, scores and sources, best first; places that are left over have score 0."""
    keys, from_table = np.zeros(ads.size, np.uint64), np.zeros(table_ads.size, np.bool_)
    source_of = np.empty(ads.size, np.uint8)
    n = 0
    for i in range(model_ads.size):
        score, source = model_scores[i], _MODEL
        for j in range(table_ads.size):
            if table_ads[j] == model_ads[i]:
                from_table[j] = True
                score, source = weight * table_scores[j] + (np.float32(1.0) - weight) * score, _BOTH
        n = _add(model_ads[i], score, source, ptr, x, y, keys, source_of, n)
    for j in range(table_ads.size):
        if not from_table[j]:
            n = _add(table_ads[j], table_scores[j], _TABLE, ptr, x, y, keys, source_of, n)
    order = np.argsort(keys[:n])[::-1]
    scores[:] = np.float32(0.0)
    for i in range(n):
        ads[i], scores[i] = key_number(keys[order[i]]), key_score(keys[order[i]])
        sources[i] = source_of[order[i]]


@kernel()
def _add(
    ad: np.int32,
    score: np.float32,
    source: int,
    ptr: Int64s,
    x: Floats,
    y: Floats,
    keys: UInt64s,
    source_of: UInt8s,
    n: int,
) -> int:
    keys[n] = key(_mapped(score, x[ptr[source] : ptr[source + 1]], y[ptr[source] : ptr[source + 1]]), int(ad))
    source_of[n] = source
    return n + 1


@kernel()
def _mapped(score: np.float32, x: Floats, y: Floats) -> np.float32:
    """Calibration.apply for one score; no knots: as it is."""
    if x.size == 0:
        return score
    above = np.searchsorted(x, score, side="right")
    if above == x.size:
        return np.float32(min(y[-1] + (score - x[-1]) * np.float32(BEYOND), np.float32(1.0)))
    left_x, left_y = (x[above - 1], y[above - 1]) if above > 0 else (np.float32(0.0), np.float32(0.0))
    return np.float32(left_y + (y[above] - left_y) * (score - left_x) / (x[above] - left_x))
