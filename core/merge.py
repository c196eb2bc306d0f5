"""How an ad's score from the table and its score from the beam search become one answer.

    a query in the table:    weight · table + (1 − weight) · model, 0 from a source that does not name the ad
    any other query:         the model's word alone

Where the release has maps, each source's scores first go through a monotone map to click rates, so that the mean is one
of comparable numbers, and the result goes through one more, for queries in the table and for others each its own: the
click rate that was seen on held-out data. Ads come by falling probability, ties by lower id. The weight and the maps
are chosen by training/release/judge.py.
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
from core.kernels.numbers import NOTHING, key, key_number, key_score
from core.sparse import Csr, Floats, Int32s, Int64s

Map = Literal["model", "table", "tabled", "other"]
MAPS: tuple[Map, ...] = ("model", "table", "tabled", "other")  # of the sources; of queries in the table and of others
Origin = Literal["model", "table", "both"]
SOURCES: tuple[Origin, ...] = ("model", "table", "both")  # a source's number is its place here
_MODEL, _TABLE, _BOTH = 0, 1, 2
UInt8s = npt.NDArray[np.uint8]
_IDENTITY = Calibration(np.empty(0, np.float32), np.empty(0, np.float32))


class Merged(NamedTuple):
    """Ads, best first, their click probabilities and where they come from."""

    ads: Int32s
    scores: Floats
    sources: UInt8s

    def best(self, n: int) -> Merged:
        return Merged(self.ads[:n], self.scores[:n], self.sources[:n])


class MergeRule(NamedTuple):
    """The table's share, and the maps to click rates."""

    weight: float
    maps: Mapping[Map, Calibration]

    def as_json(self) -> dict[str, Any]:
        maps = {
            name: {"scores": [float(x) for x in fitted.scores], "relevances": [float(y) for y in fitted.relevances]}
            for name, fitted in self.maps.items()
        }
        return {"weight": self.weight, "maps": maps}

    @classmethod
    def from_json(cls, fields: Any) -> MergeRule:
        """The inverse of `as_json`; refuses numbers that are no rule."""
        try:
            maps = {
                name: Calibration(np.array(knots["scores"], np.float32), np.array(knots["relevances"], np.float32))
                for name, knots in fields["maps"].items()
            }
            weight = float(fields["weight"])
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ModelError(f"these are not the weight and maps of a merge rule: {error}") from error
        if not set(maps) <= set(MAPS) or not 0.0 <= weight <= 1.0:
            raise ModelError(f"a merge rule has maps for {', '.join(MAPS)} and a weight in 0 … 1, got {weight}")
        for name, fitted in maps.items():
            if (
                not _rises(fitted.scores)
                or not _rises(fitted.relevances)
                or len(fitted.scores) != len(fitted.relevances)
            ):
                raise ModelError(f"the knots of the map {name!r} do not rise")
        return cls(weight, maps)


PLAIN = MergeRule(0.5, {})


def _rises(knots: Floats) -> bool:
    return (
        knots.ndim == 1
        and len(knots) > 0
        and math.isfinite(knots.sum())
        and bool((np.diff(knots, prepend=0) > 0).all())
    )


class _Numbers(NamedTuple):
    """A rule in numbers: the table's share, and the knots x, y of the model's, the table's and the last map, one behind
    the other, with where each ends."""

    weight: np.float32
    knots: Floats
    ends: Int64s


class Merger:
    """A rule, ready to be applied."""

    def __init__(self, rule: MergeRule) -> None:
        self._tabled = _numbers(rule, rule.weight, "tabled")
        self._other = _numbers(rule, 0.0, "other")

    def merge(self, model: tuple[Int32s, Floats], table: tuple[Int32s, Floats] | None, k: int) -> Merged:
        """The k best of both sources; each comes as distinct ads with their scores, in any order. None: the table does
        not have the query."""
        numbers, of_table = (self._other, _NO_ADS) if table is None else (self._tabled, table)
        most = min(k, len(model[0]) + len(of_table[0]))
        ads, scores, sources = np.empty(most, np.int32), np.empty(most, np.float32), np.empty(most, np.uint8)
        n = _merge(*model, *of_table, numbers.weight, numbers.knots, numbers.ends, ads, scores, sources)
        merged = Merged(ads, scores, sources)
        return merged if n == most else merged.best(n)

    def merge_rows(self, model: Csr, table: Csr, k: int) -> Csr:
        """The same for many queries: rows of probabilities, ids rising. An empty row: not in the table."""
        parts = []
        for row in range(model.n_rows):
            of_table = _row(table, row)
            merged = self.merge(_row(model, row), of_table if len(of_table[0]) else None, k)
            order = np.argsort(merged.ads)
            parts.append((merged.ads[order], merged.scores[order]))
        indptr = np.concatenate([[0], np.cumsum([len(ads) for ads, _ in parts])]).astype(np.int64)
        ads = np.concatenate([_NO_ADS[0], *(part[0] for part in parts)])
        return Csr(indptr, ads, np.concatenate([_NO_ADS[1], *(part[1] for part in parts)]), model.n_cols)


_NO_ADS = np.empty(0, np.int32), np.empty(0, np.float32)


def _row(rows: Csr, i: int) -> tuple[Int32s, Floats]:
    part = slice(rows.indptr[i], rows.indptr[i + 1])
    return rows.indices[part], rows.values[part]


def _numbers(rule: MergeRule, weight: float, last: Map) -> _Numbers:
    parts = [knots for name in ("model", "table", last) for knots in rule.maps.get(name, _IDENTITY)]
    return _Numbers(np.float32(weight), np.concatenate(parts), np.cumsum([len(part) for part in parts]))


@kernel()
def _merge(
    model_ads: Int32s,
    model_scores: Floats,
    table_ads: Int32s,
    table_scores: Floats,
    weight: np.float32,
    knots: Floats,
    ends: Int64s,
    ads: Int32s,
    scores: Floats,
    sources: UInt8s,
) -> int:
    """Fill ads, scores and sources, best first; returns how many. knots, ends: as in `_Numbers`."""
    model_x, model_y = knots[: ends[0]], knots[ends[0] : ends[1]]
    table_x, table_y = knots[ends[1] : ends[2]], knots[ends[2] : ends[3]]
    x, y = knots[ends[3] : ends[4]], knots[ends[4] : ends[5]]
    most = model_ads.size + table_ads.size
    keys, source_of = np.empty(most, np.uint64), np.empty(most, np.uint8)
    from_model = np.zeros(table_ads.size, np.bool_)
    rest = np.float32(1.0) - weight
    for i in range(model_ads.size):
        score, source_of[i] = rest * _mapped(model_scores[i], model_x, model_y), _MODEL
        for j in range(table_ads.size):
            if table_ads[j] == model_ads[i]:
                from_model[j] = True
                score, source_of[i] = score + weight * _mapped(table_scores[j], table_x, table_y), _BOTH
        keys[i] = key(_mapped(score, x, y), int(model_ads[i]))
    n = model_ads.size
    for j in range(table_ads.size):
        if not from_model[j]:
            score = weight * _mapped(table_scores[j], table_x, table_y)
            keys[n], source_of[n] = key(_mapped(score, x, y), int(table_ads[j])), _TABLE
            n += 1
    order = np.argsort(keys[:n])[::-1]
    kept = 0
    while kept < min(ads.size, n) and key_score(keys[order[kept]]) > NOTHING:
        at = order[kept]
        ads[kept], scores[kept], sources[kept] = key_number(keys[at]), key_score(keys[at]), source_of[at]
        kept += 1
    return kept


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
