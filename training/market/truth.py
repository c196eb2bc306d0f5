"""The truth of the market: with what probability an ad that is looked at is clicked for a query.

logit = START + what the type is worth + a little for every wish met − more for every wish not met + the ad's merit.
A wish met instead of not is worth more than all merit, so no ad beats one that is all that was asked for. An ambiguous
query takes the best of its intents. What falls below FLOOR is not told apart: it has the base rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.sparse import Floats, Int32s, Int64s
from training.market.ads import Ads
from training.market.queries import ASKED, Queries
from training.market.words import Language

BASE_RATE = 0.0005
FLOOR = 0.002
HIGHEST = 0.58  # × σ(logit)
START = -1.1
SHELF, KIN, OTHER_OF_BRAND = (
    -0.7,
    -2.0,
    -2.6,
)  # asked for the shelf; the type it is compared with; the brand's other types
UNRELATED = -20.0
BRAND, LINE, ATTRIBUTE = (0.5, -2.0), (0.4, -1.7), (0.3, -2.4)  # met, not met
SILENT = -1.75  # an attribute that was asked for and is not mentioned
_INTENTS = 512  # of a category at a time


class Truth(NamedTuple):
    """Every pair above the floor, sorted by key = query · ads + ad."""

    n_ads: int
    key: Int64s
    probability: Floats

    @property
    def query(self) -> Int64s:
        return self.key // self.n_ads

    @property
    def ad(self) -> Int64s:
        return self.key % self.n_ads

    def of(self, query: npt.NDArray[np.integer], ad: npt.NDArray[np.integer]) -> Floats:
        key = query.astype(np.int64) * self.n_ads + ad
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[at] == key, self.probability[at], np.float32(BASE_RATE))


def make_truth(words: Language, ads: Ads, queries: Queries, on_category: Callable[[], None]) -> Truth:
    """Only the ads of an intent's category are scored: others have the base rate."""
    kin = np.array([words.kin(kind) for kind in range(len(words.kinds))], np.int32)
    found: list[tuple[Int64s, Floats]] = []
    for category in range(len(words.categories)):
        intents = np.flatnonzero(queries.category == category)
        shelf = np.flatnonzero(ads.category == category)
        for start in range(0, len(intents), _INTENTS):
            block = intents[start : start + _INTENTS]
            p = queries.weight[block, None] * _probability(ads, shelf, queries, block, kin)
            row, column = np.nonzero(p > FLOOR)
            found.append((queries.query[block[row]].astype(np.int64) * len(ads.kind) + shelf[column], p[row, column]))
        on_category()
    return _best_of_intents(len(ads.kind), *(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _probability(ads: Ads, shelf: Int64s, queries: Queries, block: Int64s, kin: Int32s) -> Floats:
    """[intents of the block, ads of the shelf]"""
    kind, sold = queries.kind[block, None], ads.kind[shelf][None]
    asked_brand, asked_line = queries.brand[block, None], queries.line[block, None]
    same_brand = asked_brand == ads.brand[shelf]
    worth = np.where(kind == sold, 0.0, np.where(kin[kind] == sold, KIN, UNRELATED)).astype(np.float32)
    np.maximum(worth, np.where(same_brand, OTHER_OF_BRAND, UNRELATED), out=worth)
    logit = np.where(kind < 0, np.float32(SHELF), worth) + np.float32(START) + ads.merit[shelf]
    logit += _wish(asked_brand, same_brand, BRAND)
    logit += _wish(asked_line, asked_line == ads.line[shelf], LINE)
    for n in range(ASKED):
        value = queries.values[block, n, None]
        has = ads.attributes[shelf].T[queries.slots[block, n]]  # [intents, ads]; nothing asked: any slot, masked below
        wish = np.where(has == value, ATTRIBUTE[0], np.where(has < 0, SILENT, ATTRIBUTE[1]))
        logit += np.where(value >= 0, wish, 0.0).astype(np.float32)
    return np.asarray(HIGHEST / (1.0 + np.exp(-logit)), np.float32)


def _wish(asked: Int32s, met: npt.NDArray[np.bool_], worth: tuple[float, float]) -> Floats:
    return np.where(asked < 0, 0.0, np.where(met, *worth)).astype(np.float32)


def _best_of_intents(n_ads: int, key: Int64s, probability: Floats) -> Truth:
    order = np.lexsort((-probability, key))
    key, probability = key[order], probability[order]
    first = np.concatenate(([True], key[1:] != key[:-1]))
    return Truth(n_ads, key[first], probability[first])
