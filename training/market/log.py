"""The market's log: which ads an imperfect older system showed, in which order, and which of them were clicked.

A page is a ranking drawn without replacement by noisy relevance among the ads that exist at that moment; now and then a
place goes to another ad of the category, or to any ad: so the log knows bad pairs too. Each place is looked at with its
own probability, and an ad that is looked at is clicked with the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.sparse import Int32s, Int64s
from training.market.ads import Ads
from training.market.queries import Queries
from training.market.truth import Truth

EXAMINATION = (1.0, 0.65, 0.45, 0.3)  # by position
PLACES = len(EXAMINATION)
OTHER_OF_SHELF, ANY = 0.1, 0.05  # of the places
_SHARPNESS, _NOISE = 1.5, 0.8  # of the older system: weight = relevance^sharpness · e^(noise · normal)
_DRAWS = 12  # by relevance, per page: enough to fill it though some ads come twice or do not exist yet
_HEAD, _TAIL = 15.0, 1.3  # P(rank) ~ (rank + head)^−tail
PAGES = 50_000  # drawn at a time


class Visits(NamedTuple):
    """One row per page shown, in order of time (a share of the whole span)."""

    query: Int32s
    time: npt.NDArray[np.float64]


class Events(NamedTuple):
    """One row per impression, in order of time."""

    visit: Int64s
    ad: Int32s
    position: Int32s
    clicked: Int32s


def make_visits(
    rarity: Int32s, n_visits: int, held_out: float, new_queries: float, random: np.random.Generator
) -> Visits:
    """Every query comes at least once; how often more is Zipfian, by rarity and by chance.

    Of the rarer half, a share is new: it comes after the time `held_out` only.
    """
    n = len(rarity)
    rank = np.argsort(np.argsort(rarity + random.gumbel(0.0, 1.0, n), kind="stable"), kind="stable")
    weight = (rank + _HEAD) ** -_TAIL
    more = np.searchsorted(np.cumsum(weight) / weight.sum(), random.random(n_visits - n))
    query = np.concatenate((np.arange(n), np.minimum(more, n - 1))).astype(np.int32)
    new = (rank >= n // 2) & (random.random(n) < 2.0 * new_queries)
    time = random.random(n_visits)
    time = np.where(new[query], held_out + (1.0 - held_out) * time, time)
    order = np.argsort(time, kind="stable")
    return Visits(query[order], time[order])


def make_events(
    truth: Truth,
    ads: Ads,
    queries: Queries,
    born: npt.NDArray[np.float64],
    visits: Visits,
    random: np.random.Generator,
) -> Iterator[Events]:
    """Pages of `PLACES` impressions each, `PAGES` pages at a time; no ad is shown before it is born."""
    ranker = _ranker(truth, len(queries.texts), random)
    shelves = _shelves(ads)
    old = np.flatnonzero(born <= 0.0)
    for start in range(0, len(visits.query), PAGES):
        query, time = visits.query[start : start + PAGES], visits.time[start : start + PAGES]
        shown = _explore(ranker(query, random), shelves(queries.shelf[query], random), len(born), random)
        # Always enough to fill a page: its category's ads, then old ones from a random start.
        spare = shelves(queries.shelf[query], random)[:, :PLACES]
        rest = old[(random.integers(0, len(old), (len(query), 1)) + np.arange(2 * PLACES)) % len(old)]
        page = _first_distinct(np.hstack((shown, spare, rest)).astype(np.int32), born, time)
        looked_at = random.random(page.shape) < np.array(EXAMINATION)
        liked = random.random(page.shape) < truth.of(query[:, None], page)
        visit = np.repeat(np.arange(start, start + len(query)), PLACES)
        position = np.tile(np.arange(1, PLACES + 1, dtype=np.int32), len(query))
        yield Events(visit, page.ravel(), position, (looked_at & liked).ravel().astype(np.int32))


_Rows = npt.NDArray[np.int64]


def _ranker(
    truth: Truth, n_queries: int, random: np.random.Generator
) -> Callable[[Int32s, np.random.Generator], _Rows]:
    """Draws [queries, _DRAWS] ads by the older system's opinion of them, which is settled here."""
    noise = random.standard_normal(len(truth.key), np.float32)
    weight = truth.probability.astype(np.float64) ** _SHARPNESS * np.exp(_NOISE * noise)
    edge = np.concatenate(([0.0], np.cumsum(weight)))
    starts = np.searchsorted(truth.key, np.arange(n_queries + 1, dtype=np.int64) * truth.n_ads)
    ad = truth.ad

    def draw(query: Int32s, random: np.random.Generator) -> _Rows:
        first, end = starts[query][:, None], starts[query + 1][:, None]
        place = edge[first] + random.random((len(query), _DRAWS)) * (edge[end] - edge[first])
        at = np.searchsorted(edge, place, "right") - 1
        return np.asarray(ad[np.clip(at, first, end - 1)])

    return draw


def _shelves(ads: Ads) -> Callable[[Int32s, np.random.Generator], _Rows]:
    """Draws [categories, _DRAWS] ads of given categories."""
    order = np.argsort(ads.category, kind="stable")
    starts = np.searchsorted(ads.category[order], np.arange(int(ads.category.max()) + 2))

    def draw(category: Int32s, random: np.random.Generator) -> _Rows:
        low, high = starts[category][:, None], starts[category + 1][:, None]
        return order[low + (random.random((len(category), _DRAWS)) * (high - low)).astype(np.int64)]

    return draw


def _explore(relevant: _Rows, neighbours: _Rows, n_ads: int, random: np.random.Generator) -> _Rows:
    kind = random.random(relevant.shape)
    anything = random.integers(0, n_ads, relevant.shape)
    return np.where(kind < ANY, anything, np.where(kind < ANY + OTHER_OF_SHELF, neighbours, relevant))


def _first_distinct(drawn: Int32s, born: npt.NDArray[np.float64], time: npt.NDArray[np.float64]) -> Int32s:
    """The first PLACES different ads of every row that exist at its time; the caller sees to it that there are some."""
    usable = born[drawn] <= time[:, None]
    for column in range(1, drawn.shape[1]):
        usable[:, column] &= ~(drawn[:, :column] == drawn[:, column : column + 1]).any(axis=1)
    usable &= np.cumsum(usable, axis=1) <= PLACES
    return drawn[usable].reshape(-1, PLACES)
