"""Merging equals a plain reading of its rule, keeps maps monotone and ranks by probability."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.calibration import Calibration
from core.errors import ModelError
from core.merge import SOURCES, Merger, MergeRule
from core.sparse import Csr

scored = st.dictionaries(st.integers(0, 30), st.floats(0, 1, width=32), max_size=12)


@st.composite
def rules(draw: st.DrawFn) -> MergeRule:
    maps = {}
    for source in SOURCES:
        steps = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=4))
        if steps:
            x, y = (np.cumsum([step[i] for step in steps]).astype(np.float32) / 250 for i in (0, 1))
            maps[source] = Calibration(x, y)
    return MergeRule(draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])), maps)


def plain(model: dict[int, float], table: dict[int, float], rule: MergeRule, k: int) -> list[tuple[int, float, str]]:
    found = []
    for ad in sorted(model.keys() | table.keys()):
        source = "both" if ad in model and ad in table else "model" if ad in model else "table"
        score = rule.weight * table.get(ad, 0) + (1 - rule.weight) * model.get(ad, 0)
        score = model[ad] if source == "model" else table[ad] if source == "table" else score
        if source in rule.maps:
            knots = [(0.0, 0.0), *zip(*(part.tolist() for part in rule.maps[source]), strict=True)]  # type: ignore[index]
            score = next(
                (
                    y0 + (y1 - y0) * (score - x0) / (x1 - x0)
                    for (x0, y0), (x1, y1) in zip(knots, knots[1:])
                    if score < x1
                ),
                min(knots[-1][1] + (score - knots[-1][0]) * 1e-3, 1.0),
            )
        found.append((ad, score, source))
    return [entry for entry in sorted(found, key=lambda entry: (-entry[1], entry[0])) if entry[1] > 1e-30][:k]


def pair(scores: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(list(scores), np.int32), np.array(list(scores.values()), np.float32)


@given(scored, scored, rules(), st.integers(1, 30))
def test_merging_equals_the_plain_rule(model, table, rule, k) -> None:
    merged = Merger(rule).merge(pair(model), pair(table), k)
    expected = {ad: (score, source) for ad, score, source in plain(model, table, rule, 100)}
    assert len(merged.ads) == min(k, len(expected))
    for ad, score, source in zip(*merged, strict=True):
        assert score == pytest.approx(expected[int(ad)][0], abs=2e-6)
        assert SOURCES[source] == expected[int(ad)][1]
    best = sorted((score for score, _ in expected.values()), reverse=True)[:k]
    assert list(merged.scores) == pytest.approx(best, abs=2e-6)
    assert (np.diff(merged.scores) <= 0).all()
    ties = np.flatnonzero(np.diff(merged.scores) == 0)
    assert (merged.ads[ties] < merged.ads[ties + 1]).all()


@given(st.lists(st.tuples(scored, scored), max_size=4), rules())
def test_many_queries_are_merged_as_one_is(queries, rule) -> None:
    merger = Merger(rule)

    def rows(i: int) -> Csr:
        ordered = [dict(sorted(query[i].items())) for query in queries]
        indptr = np.cumsum([0] + [len(row) for row in ordered]).astype(np.int64)
        ids = np.array([ad for row in ordered for ad in row], np.int32)
        return Csr(indptr, ids, np.array([s for row in ordered for s in row.values()], np.float32), 31)

    merged, sources = merger.merge_rows(rows(0), rows(1), 5)
    for i, (model, table) in enumerate(queries):
        one, part = merger.merge(pair(model), pair(table), 5), slice(merged.indptr[i], merged.indptr[i + 1])
        order = np.argsort(one.ads)
        assert merged.indices[part].tolist() == one.ads[order].tolist()
        assert merged.values[part].tolist() == one.scores[order].tolist()
        assert sources[part].tolist() == one.sources[order].tolist()


@given(rules())
def test_a_rule_survives_json(rule: MergeRule) -> None:
    again = MergeRule.from_json(json.loads(json.dumps(rule.as_json())))
    assert again.weight == rule.weight
    assert again.maps.keys() == rule.maps.keys()
    for source, fitted in rule.maps.items():
        assert np.array_equal(again.maps[source].scores, fitted.scores)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"weight": 2, "maps": {}},
        {"weight": float("nan"), "maps": {}},
        {"weight": 0.5, "maps": {"other": {"scores": [0.1], "relevances": [0.1]}}},
        {"weight": 0.5, "maps": {"model": {"scores": [0.2, 0.1], "relevances": [0.1, 0.2]}}},
        {"weight": 0.5, "maps": {"model": {"scores": [0.1], "relevances": [0.1, 0.2]}}},
        {"weight": 0.5, "maps": {"model": {"scores": [], "relevances": []}}},
        {"weight": 0.5, "maps": {"model": {"scores": [0.1, float("inf")], "relevances": [0.1, 0.2]}}},
        {"weight": 0.5, "maps": {"model": 3}},
    ],
)
def test_numbers_that_are_no_rule_are_refused(wrong: object) -> None:
    with pytest.raises(ModelError):
        MergeRule.from_json(wrong)
