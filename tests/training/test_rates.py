"""Rates: what was put into sampled clicks comes out of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.ingest.buckets import Rows
from training.ingest.rates import Exposure, Pairs, fit_examination, fit_prior, pairs_of

EXAMINATION = np.array([1.0, 0.6, 0.45, 0.3, 0.22, 0.15])


def sampled(n_pairs: int, seed: int, selective: bool = True) -> Rows:
    """Pairs at several positions, better ones further up, so that plain rates by position would mislead."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(2.0, 1 / 30, n_pairs)
    usual = np.clip(np.rint(6 - 40 * rate), 1, 6) if selective else rng.integers(1, 7, n_pairs)
    columns = list[tuple[int, int, int, int, int]]()
    for pair in range(n_pairs):
        for position in np.unique(np.clip(usual[pair] + rng.integers(-1, 2, 3), 1, 6).astype(int)):
            shown = int(rng.integers(1, 80))
            columns.append(
                (pair // 5, pair % 5, position, shown, rng.poisson(rate[pair] * shown * EXAMINATION[position - 1]))
            )
    query, ad, place, seen, got = np.array(columns).T
    return Rows(query.astype(np.int32), ad.astype(np.int32), place.astype(np.uint8), seen * 1.0, got * 1.0)


def chosen(rows: Rows, which: Any) -> Rows:
    return Rows(rows[0][which], rows[1][which], rows[2][which], rows[3][which], rows[4][which])


def halves(rows: Rows) -> list[Rows]:
    cut = int(np.searchsorted(rows.query, rows.query[-1] // 2))
    return [chosen(rows, slice(cut)), chosen(rows, slice(cut, None))]


def test_examination_is_recovered_from_the_log() -> None:
    rows = sampled(20_000, seed=1)
    naive = np.bincount(rows.position, rows.clicks)[1:] / np.bincount(rows.position, rows.impressions)[1:]
    found = fit_examination(lambda: [rows], 8)
    assert found[:2].tolist() == [1.0, 1.0]
    assert found[1:7] == pytest.approx(EXAMINATION, rel=0.08)
    assert naive / naive[0] != pytest.approx(EXAMINATION, rel=0.3)
    assert found[7:] == pytest.approx(np.full(3, found[6]))  # never seen: as the nearest that was


def test_examination_is_the_fixed_point_of_alternating_estimates() -> None:
    rows = sampled(3000, seed=2)
    pair = rows.query.astype(np.int64) * 5 + rows.ad
    examination = np.ones(7)
    for _ in range(3000):
        rate = np.bincount(pair, rows.clicks) / np.maximum(
            np.bincount(pair, rows.impressions * examination[rows.position]), 1e-12
        )
        by_position = np.bincount(rows.position, rows.impressions * rate[pair])
        examination[1:] = np.bincount(rows.position, rows.clicks)[1:] / by_position[1:]
        examination /= examination[1]
    assert fit_examination(lambda: [rows], 6)[1:7] == pytest.approx(examination[1:], rel=0.02)


def test_buckets_do_not_show_in_the_examination() -> None:
    rows = sampled(2000, seed=3)
    assert fit_examination(lambda: halves(rows), 6) == pytest.approx(fit_examination(lambda: [rows], 6), abs=2e-6)


def test_a_log_that_tells_nothing_of_positions_leaves_them_alone() -> None:
    rows = sampled(200, seed=4)
    alone = chosen(rows, np.unique(rows.query.astype(int) * 5 + rows.ad, return_index=True)[1])
    assert fit_examination(lambda: [alone], 6).tolist() == [1.0] * 8
    assert fit_examination(lambda: [chosen(rows, slice(0))], 6).tolist() == [1.0] * 8


def test_a_position_without_clicks_leans_on_its_neighbour_and_stays_finite() -> None:
    rows = sampled(3000, seed=5, selective=False)
    silent = rows._replace(clicks=np.where(rows.position == 4, 0.0, rows.clicks))
    found = fit_examination(lambda: [silent], 6)
    assert np.isfinite(found).all()
    assert 0 < found[4] < 0.05 < found[3]


def exposure_of(impressions: np.ndarray, clicks: np.ndarray) -> Exposure:
    exposure, ids = Exposure(), np.arange(len(clicks), dtype=np.int32)
    for some in np.array_split(ids, 3):
        exposure.add(Pairs(some, some, impressions[some], impressions[some], clicks[some]))
    return exposure


@pytest.mark.parametrize(("a", "b"), [(1.5, 40.0), (0.4, 8.0), (5.0, 300.0)])
def test_the_prior_is_recovered_from_the_log(a: float, b: float) -> None:
    rng = np.random.default_rng(7)
    impressions = np.ceil(rng.exponential(60, 60_000))
    clicks = rng.poisson(rng.gamma(a, 1 / b, len(impressions)) * impressions).astype(float)
    prior = fit_prior(exposure_of(impressions, clicks))
    assert prior is not None
    assert prior == pytest.approx((a, b), rel=0.1)
    likelihood = _likelihood(impressions, clicks, *prior)
    for factors in ((1.03, 1), (0.97, 1), (1, 1.03), (1, 0.97)):
        assert likelihood > _likelihood(impressions, clicks, prior.a * factors[0], prior.b * factors[1])


def _likelihood(impressions: np.ndarray, clicks: np.ndarray, a: float, b: float) -> float:
    """Of a negative binomial, pair by pair."""
    logs = (
        math.lgamma(a + k) - math.lgamma(a) - math.lgamma(k + 1) + a * math.log(b / (b + e)) + k * math.log(e / (b + e))
        for e, k in zip(impressions.tolist(), clicks.tolist(), strict=True)
    )
    return math.fsum(logs)


def test_equal_rates_give_the_strongest_prior() -> None:
    rng = np.random.default_rng(8)
    impressions = np.full(20_000, 50.0)
    clicks = np.full(20_000, 2.0)  # less spread than chance would give
    clicks[rng.integers(0, 20_000, 2000)] = 3.0
    prior = fit_prior(exposure_of(impressions, clicks))
    assert prior is not None
    assert prior.b == 10_000
    assert prior.a / prior.b == pytest.approx(clicks.mean() / 50, rel=5e-3)


def test_without_clicks_there_is_no_prior() -> None:
    assert fit_prior(exposure_of(np.ones(5), np.zeros(5))) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4), st.integers(1, 9)), min_size=1))
def test_pairs_are_rows_added_up_over_positions(drawn: list[tuple[int, int, int, int]]) -> None:
    merged = {key[:3]: key[3] for key in drawn}
    keys = sorted(merged)
    query, ad, position = (np.array(c) for c in zip(*keys, strict=True))
    shown = np.array([merged[k] for k in keys], float)
    examination = np.array([1.0, 1.0, 0.5, 0.25, 0.125])
    rows = Rows(query.astype(np.int32), ad.astype(np.int32), position.astype(np.uint8), shown, shown)
    pairs = pairs_of(rows, examination)
    expected: dict[tuple[int, int], list[float]] = {}
    for q, a, p in keys:
        total = expected.setdefault((q, a), [0.0, 0.0])
        total[0] += merged[q, a, p]
        total[1] += merged[q, a, p] * examination[p]
    assert [(q, a) for q, a in zip(pairs.query.tolist(), pairs.ad.tolist(), strict=True)] == list(expected)
    assert np.stack([pairs.shown, pairs.impressions], 1).tolist() == list(expected.values())
