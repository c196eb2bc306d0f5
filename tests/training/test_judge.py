"""Judging equals plain readings of its figures; the rule is chosen on queries that the figures do not see."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.sparse import Csr, Int64s
from training.clicks import Pairs, open_clicks
from training.release.judge import (
    Answers,
    Bin,
    K,
    Task,
    _together,
    calibration_error,
    choose_rule,
    covered,
    figures_of,
    held_out,
    merged,
    precision_recall,
    reliability,
)

N_ADS = 8
Row = dict[int, float]
probabilities = st.integers(1, 1000).map(lambda x: x / 1000)
rows_of = st.lists(st.dictionaries(st.integers(0, N_ADS - 1), probabilities, max_size=N_ADS), min_size=1, max_size=6)


def csr(rows: list[Row], n_ads: int = N_ADS) -> Csr:
    ordered = [dict(sorted(row.items())) for row in rows]
    indptr: Int64s = np.cumsum([0] + [len(row) for row in ordered]).astype(np.int64)
    ids = np.array([ad for row in ordered for ad in row], np.int32)
    return Csr(indptr, ids, np.array([value for row in ordered for value in row.values()], np.float32), n_ads)


def make_task(shown: list[Row], clicked: list[Row], truth: list[Row] | None = None, n_ads: int = N_ADS) -> Task:
    names = [f"query {i}" for i in range(len(shown))]
    parts = (csr(rows, n_ads) for rows in (truth if truth is not None else [{} for _ in names], shown, clicked))
    return Task(names, np.arange(len(names)), *parts)


@st.composite
def judged(draw: st.DrawFn) -> tuple[list[Row], list[Row], list[Row]]:
    """Answers, impressions and clicks of some queries."""
    scores = draw(rows_of)
    shown: list[Row] = []
    clicked: list[Row] = []
    for _ in scores:
        ads = draw(st.dictionaries(st.integers(0, N_ADS - 1), st.tuples(st.integers(1, 9), st.integers(0, 9))))
        shown.append({ad: n for ad, (n, _) in ads.items()})
        clicked.append({ad: min(c, n) for ad, (n, c) in ads.items()})
    return scores, shown, clicked


def plain_pairs(scores: list[Row], shown: list[Row], clicked: list[Row], k: int) -> list[tuple[float, float, float]]:
    """(score, impressions, click rate) of the k best ads of each query that were shown, by falling score."""
    pairs = []
    for row, seen, clicks in zip(scores, shown, clicked, strict=True):
        for ad in sorted(row, key=lambda ad: (-row[ad], ad))[:k]:
            if ad in seen:
                pairs.append((row[ad], seen[ad], clicks[ad] / seen[ad]))
    return sorted(pairs, key=lambda pair: -pair[0])


def plain_bins(pairs: list[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Ten bins; a pair belongs to where its middle lies among all impressions."""
    total, before = sum(n for _, n, _ in pairs), 0.0
    bins: dict[int, list[tuple[float, float, float]]] = {}
    for score, n, rate in pairs:
        bins.setdefault(min(math.floor((before + n / 2) / total * 10), 9), []).append((score, n, rate))
        before += n
    means = []
    for _, members in sorted(bins.items()):
        weight = sum(n for _, n, _ in members)
        predicted, observed = (sum(n * pair[i] for pair in members for n in [pair[1]]) / weight for i in (0, 2))
        means.append((predicted, observed, weight))
    return means


@given(judged(), st.integers(1, N_ADS))
def test_reliability_equals_a_plain_reading(case: tuple[list[Row], list[Row], list[Row]], k: int) -> None:
    scores, shown, clicked = case
    bins = reliability(csr(scores), make_task(shown, clicked), k)
    pairs = plain_pairs(scores, shown, clicked, k)
    assert sum(b.weight for b in bins) == sum(n for _, n, _ in pairs)
    if len({score for score, _, _ in pairs}) == len(pairs):  # among equal scores the order is the implementation's
        expected = plain_bins(pairs)
        assert [tuple(b) for b in bins] == [pytest.approx(values, abs=1e-6) for values in expected]
        error = sum(w * abs(p - o) for p, o, w in expected) / sum(w for _, _, w in expected) if expected else 0.0
        assert calibration_error(bins) == pytest.approx(error, abs=1e-6)


def test_the_calibration_error_is_the_mean_distance_weighted_by_impressions() -> None:
    assert calibration_error([]) == 0.0
    assert calibration_error([Bin(0.5, 0.4, 3.0), Bin(0.1, 0.3, 1.0)]) == pytest.approx(0.125)


@given(rows_of, probabilities)
def test_a_query_is_covered_by_an_ad_at_the_threshold(scores: list[Row], threshold: float) -> None:
    rows = csr(scores)
    expected = [any(np.float32(value) >= threshold for value in row.values()) for row in scores]
    assert covered(rows, threshold).tolist() == expected


@given(st.data(), rows_of)
def test_precision_and_recall_equal_a_plain_reading(data: st.DataObject, scores: list[Row]) -> None:
    truth = [data.draw(st.dictionaries(st.integers(0, N_ADS - 1), probabilities)) for _ in scores]
    points = precision_recall(csr(scores), make_task([{} for _ in scores], [{} for _ in scores], truth))
    pairs = [(value, truth[i].get(ad, 0.0)) for i, row in enumerate(scores) for ad, value in row.items()]
    relevant = sum(map(len, truth))
    if not pairs or not relevant:
        assert points == []
        return
    assert points[-1]["recall"] == pytest.approx(sum(r > 0 for _, r in pairs) / relevant)
    assert points[-1]["precision"] == pytest.approx(sum(r for _, r in pairs) / len(pairs), abs=1e-6)
    thresholds, recalls = ([point[name] for point in points] for name in ("threshold", "recall"))
    assert thresholds == sorted(thresholds, reverse=True)
    assert recalls == sorted(recalls)
    if len({value for value, _ in pairs}) == len(pairs):
        for point in points:
            kept = [r for value, r in pairs if np.float32(value) >= point["threshold"]]
            assert point["precision"] == pytest.approx(sum(kept) / len(kept), abs=1e-6)
            assert point["recall"] == pytest.approx(sum(r > 0 for r in kept) / relevant)


seen_pairs = st.dictionaries(
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.integers(1, 50), st.integers(0, 50), probabilities),
)


def pairs_of(seen: dict[tuple[int, int], tuple[int, int, float]]) -> Pairs:
    rows = [(*pair, *values) for pair, values in sorted(seen.items())]
    query, ad, shown, clicks, relevance = zip(*rows, strict=True) if rows else ((),) * 5
    ids = np.array(query, np.int32), np.array(ad, np.int32)
    return Pairs(*ids, *(np.array(values, np.float32) for values in (shown, clicks, relevance)))


@given(seen_pairs, seen_pairs)
def test_both_parts_of_a_log_add_up(
    train: dict[tuple[int, int], tuple[int, int, float]], test: dict[tuple[int, int], tuple[int, int, float]]
) -> None:
    both = _together(pairs_of(train), pairs_of(test))
    assert list(zip(both.query.tolist(), both.ad.tolist(), strict=True)) == sorted(train.keys() | test.keys())
    for query, ad, shown, clicks, relevance in zip(*both, strict=True):
        parts = [part[query, ad] for part in (train, test) if (query, ad) in part]
        assert shown == sum(n for n, _, _ in parts)
        assert clicks == sum(c for _, c, _ in parts)
        assert relevance == pytest.approx(sum(n * r for n, _, r in parts) / shown, rel=1e-5)


@pytest.mark.parametrize("whole", [False, True])
def test_the_halves_are_disjoint_stable_and_together_all(market: Path, whole: bool) -> None:
    clicks = open_clicks(market / "clicks")
    choose_on, judge_on = held_out(clicks, whole)
    expected = set(clicks.test.query.tolist()) | (set(clicks.train.query.tolist()) if whole else set())
    assert not set(choose_on.ids) & set(judge_on.ids)
    assert set(choose_on.ids) | set(judge_on.ids) == expected
    assert 0.35 < len(choose_on.ids) / len(expected) < 0.65
    assert choose_on.queries == [clicks.queries[i] for i in choose_on.ids]
    total = sum(task.shown.values.sum() for task in (choose_on, judge_on))
    parts = [clicks.test.impressions.sum(), clicks.train.impressions.sum() if whole else 0.0]
    assert total == pytest.approx(sum(parts), rel=1e-5)
    if not whole:  # a query stays in its half whatever else is in the log
        again = held_out(clicks, True)
        assert set(choose_on.queries) <= set(again[0].queries)
        assert set(judge_on.queries) <= set(again[1].queries)


def made_up(power: float, seed: int = 0, n: int = 800, n_ads: int = 30) -> tuple[Answers, Task]:
    """Queries of which half are in the table; both sources score by the truth to some power."""
    random = np.random.default_rng(seed)
    truth = [
        {int(ad): float(p) for ad, p in zip(random.choice(n_ads, 12, False), random.random(12) ** 2, strict=True)}
        for _ in range(n)
    ]
    scores = [{ad: p**power for ad, p in row.items()} for row in truth]
    shown: list[Row] = [dict.fromkeys(row, 20.0) for row in truth]
    clicked: list[Row] = [{ad: float(random.binomial(20, p)) for ad, p in row.items()} for row in truth]
    table = csr([row if i % 2 else {} for i, row in enumerate(scores)], n_ads)
    return Answers(csr(scores, n_ads), table), make_task(shown, clicked, truth, n_ads)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_a_known_distortion_is_mapped_away_on_queries_that_the_rule_has_not_seen(power: float) -> None:
    rule = choose_rule(*made_up(power))
    assert rule.maps
    answers, asked = made_up(power, seed=1)
    plain, mapped = merged(answers, rule._replace(maps={})), merged(answers, rule)
    errors = [calibration_error(reliability(rows, asked, K)) for rows in (plain, mapped)]
    assert errors[0] > 0.05
    assert errors[1] < 0.015
    ranked = [figures_of(rows, asked)["WP@5"] for rows in (plain, mapped)]
    assert ranked[1] > ranked[0] - 0.5


def test_maps_that_do_not_help_are_left_out() -> None:
    answers, asked = made_up(1.0)  # the scores are the truth already
    few = Task(asked.queries, asked.ids, asked.truth, *(csr([{}] * 800, 30) for _ in range(2)))
    assert choose_rule(answers, few).maps == {}  # nothing was shown: there is nothing to fit a map on
    rows = merged(answers, choose_rule(answers, asked))
    assert calibration_error(reliability(rows, asked, K)) < 0.015
