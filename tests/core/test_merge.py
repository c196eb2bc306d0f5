"""Merging equals a plain reading of its rule, keeps maps monotone and ranks by probability."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.calibration import Calibration
from core.errors import ModelError
from core.merge import MAPS, SOURCES, Map, Merger, MergeRule
from core.sparse import Csr, Floats, Int32s

Scores = dict[int, float]
scored = st.dictionaries(st.integers(0, 30), st.floats(0, 1, width=32), max_size=12)


@st.composite
def rules(draw: st.DrawFn) -> MergeRule:
    maps: dict[Map, Calibration] = {}
    for name in MAPS:
        steps = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=4))
        if steps:
            x, y = (np.asarray(np.cumsum([step[i] for step in steps]) / 250, np.float32) for i in (0, 1))
            maps[name] = Calibration(x, y)
    return MergeRule(draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])), maps)


def mapped(rule: MergeRule, name: Map, score: float) -> float:
    if name not in rule.maps:
        return score
    knots = [(0.0, 0.0), *zip(*(part.tolist() for part in rule.maps[name]), strict=True)]
    for (x0, y0), (x1, y1) in pairwise(knots):
        if score < x1:
            return float(y0 + (y1 - y0) * (score - x0) / (x1 - x0))
    return float(min(knots[-1][1] + (score - knots[-1][0]) * 1e-3, 1.0))


def plain(model: Scores, table: Scores | None, rule: MergeRule) -> dict[int, tuple[float, str]]:
    found = {}
    for ad in model.keys() | (table or {}).keys():
        of_model = mapped(rule, "model", model[ad]) if ad in model else 0.0
        if table is None:
            score, source = mapped(rule, "other", of_model), "model"
        else:
            of_table = mapped(rule, "table", table[ad]) if ad in table else 0.0
            source = "both" if ad in model and ad in table else "model" if ad in model else "table"
            score = rule.weight * of_table + (1 - rule.weight) * of_model
            score = mapped(rule, "tabled", score)
        if np.float32(score) > np.float32(1e-30):
            found[ad] = score, source
    return found


def pair(scores: Scores) -> tuple[Int32s, Floats]:
    return np.array(list(scores), np.int32), np.array(list(scores.values()), np.float32)


@given(scored, st.none() | scored, rules(), st.integers(1, 30))
def test_merging_equals_the_plain_rule(model: Scores, table: Scores | None, rule: MergeRule, k: int) -> None:
    merged = Merger(rule).merge(pair(model), None if table is None else pair(table), k)
    expected = plain(model, table, rule)
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
def test_many_queries_are_merged_as_one_is(queries: list[tuple[Scores, Scores]], rule: MergeRule) -> None:
    merger = Merger(rule)

    def rows(i: int) -> Csr:
        ordered = [dict(sorted(query[i].items())) for query in queries]
        indptr = np.cumsum([0] + [len(row) for row in ordered]).astype(np.int64)
        ids = np.array([ad for row in ordered for ad in row], np.int32)
        return Csr(indptr, ids, np.array([s for row in ordered for s in row.values()], np.float32), 31)

    merged = merger.merge_rows(rows(0), rows(1), 5)
    for i, (model, table) in enumerate(queries):
        one, part = merger.merge(pair(model), pair(table) if table else None, 5), slice(*merged.indptr[i : i + 2])
        order = np.argsort(one.ads)
        assert merged.indices[part].tolist() == one.ads[order].tolist()
        assert merged.values[part].tolist() == one.scores[order].tolist()


@given(rules())
def test_a_rule_survives_json(rule: MergeRule) -> None:
    again = MergeRule.from_json(json.loads(json.dumps(rule.as_json())))
    assert again.weight == rule.weight
    assert again.maps.keys() == rule.maps.keys()
    for name, fitted in rule.maps.items():
        assert np.array_equal(again.maps[name].scores, fitted.scores)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"weight": 2, "maps": {}},
        {"weight": float("nan"), "maps": {}},
        {"weight": 0.5, "maps": {"elsewhere": {"scores": [0.1], "relevances": [0.1]}}},
        {"weight": 0.5, "maps": {"tabled": {"scores": [0.2, 0.1], "relevances": [0.1, 0.2]}}},
        {"weight": 0.5, "maps": {"tabled": {"scores": [0.1], "relevances": [0.1, 0.2]}}},
        {"weight": 0.5, "maps": {"tabled": {"scores": [], "relevances": []}}},
        {"weight": 0.5, "maps": {"tabled": {"scores": [0.1, float("inf")], "relevances": [0.1, 0.2]}}},
        {"weight": 0.5, "maps": {"tabled": 3}},
    ],
)
def test_numbers_that_are_no_rule_are_refused(wrong: object) -> None:
    with pytest.raises(ModelError):
        MergeRule.from_json(wrong)
