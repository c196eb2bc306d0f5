"""Labelwise inference equals its definition, for every recipe; blocks and threads change nothing; ties by lower id."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from core.engine import Engine, Options
from core.errors import DataError, UsageError
from core.kernels.labelwise import Best
from core.labelwise import Labelwise, as_rows, best_points
from core.model import Model, open_model
from core.sparse import Csr, from_scipy, take_rows, to_scipy, transformed
from core.trie import node_major
from tests import oracle
from training.dataset import Dataset
from training.fit import fit
from training.params import PAPER, ROUTED, Params

Parts = tuple[Dataset, Dataset]
EVERYONE = 1e9  # a factor that turns no point away


def dense(model: Model, points: Csr) -> oracle.Dense:
    recipe = model.manifest["params"]["recipe"]
    return np.asarray(to_scipy(transformed(points, recipe["value_power"], model.feature_weight)).toarray(), float)


def trees_of(model: Model, points: Csr) -> list[oracle.LabelwiseTree]:
    arrays, recipe = node_major(model.trie, model.n_features)._asdict(), model.manifest["params"]["recipe"]
    return [oracle.LabelwiseTree(arrays, recipe, t, dense(model, points)) for t in range(model.n_trees)]


def rows_of(best: Best) -> list[list[tuple[int, float]]]:
    return [
        list(zip(ids[:n].tolist(), scores[:n].tolist(), strict=True))
        for ids, scores, n in zip(best.points, best.scores, best.counts, strict=True)
    ]


def same(got: list[list[tuple[int, float]]], expected: list[list[tuple[int, float]]], rows: float = 1.0) -> bool:
    """The same scores at all ranks, in this share of the rows at least; the same points but where rounding may order
    equal scores in another way."""
    if [len(row) for row in got] != [len(row) for row in expected]:
        return False
    good = [
        np.allclose([s for _, s in mine], [s for _, s in theirs], rtol=0, atol=1e-6)
        for mine, theirs in zip(got, expected, strict=True)
    ]
    ids = [
        a == b for mine, theirs in zip(got, expected, strict=True) for (a, _), (b, _) in zip(mine, theirs, strict=True)
    ]
    return float(np.mean(good)) >= rows and float(np.mean(ids)) > 0.999 * rows


def no_features(n_points: int, n_features: int) -> Csr:
    return Csr(np.zeros(n_points + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), n_features)


@pytest.mark.parametrize("complete", [True, False])
def test_it_equals_the_reference(model: Path, sample: Parts, complete: bool) -> None:
    opened, points = open_model(model), sample[1].features
    trees = trees_of(opened, points)
    for factor in (0.3, 1.0, 4.0, EVERYONE):
        expected = oracle.labelwise(trees, opened.label_points, 5, factor, complete)
        # By the paper's rule a pair that falls just off one tree's list loses that tree's score: rounding decides.
        rows = 1.0 if complete else 0.98
        assert same(rows_of(best_points(opened, points, Labelwise(5, factor, complete))), expected, rows)


def test_a_large_factor_is_exhaustive_and_every_score_is_the_exact_mean(model: Path, sample: Parts) -> None:
    opened, points = open_model(model), sample[1].features
    mean = np.mean([tree.label_scores(opened.n_labels) for tree in trees_of(opened, points)], axis=0)
    mean[:, opened.label_points == 0] = 0
    for factor in (1.0, EVERYONE):
        got = to_scipy(as_rows(best_points(opened, points, Labelwise(7, factor)), points.n_rows)).tocoo()
        assert np.allclose(got.data, mean[got.col, got.row], rtol=0, atol=1e-6)
    best = best_points(opened, points, Labelwise(7, EVERYONE))
    filled = np.arange(7) < best.counts[:, None]
    assert np.allclose(np.where(filled, best.scores, 0), -np.sort(-mean.T, axis=1)[:, :7], rtol=0, atol=1e-6)


def test_it_agrees_with_pointwise_on_every_pair_that_both_return(model: Path, sample: Parts) -> None:
    opened, points = open_model(model), sample[1].features
    pointwise = to_scipy(Engine(opened).predict_batch(points, opened.n_labels, options=Options(alpha=1.0))).toarray()
    got = to_scipy(as_rows(best_points(opened, points, Labelwise(10)), points.n_rows)).tocoo()
    theirs = pointwise[got.col, got.row]
    both = theirs > 0
    assert both.mean() > 0.5
    assert np.allclose(theirs[both], got.data[both], rtol=0, atol=1e-6)


@pytest.mark.parametrize("factor", [2.0, EVERYONE])
def test_any_number_of_threads_gives_the_same_bytes(model: Path, sample: Parts, factor: float) -> None:
    opened, points = open_model(model), sample[1].features
    one, three = (best_points(opened, points, Labelwise(5, factor, block=40), threads=n) for n in (1, 3))
    assert all(np.array_equal(a, b) for a, b in zip(one, three, strict=True))


def test_any_number_of_blocks_gives_the_same_bytes_where_nobody_is_turned_away(model: Path, sample: Parts) -> None:
    opened, points = open_model(model), sample[1].features
    whole = best_points(opened, points, Labelwise(5, EVERYONE))
    for block in (1, 7, 100, 149):
        parts = best_points(opened, points, Labelwise(5, EVERYONE, block=block), threads=2)
        assert rows_of(parts) == rows_of(whole)


def test_many_points_per_label_equal_the_reference(model: Path, sample: Parts) -> None:
    """Long lists are chosen by sorting."""
    opened, points = open_model(model), sample[1].features
    expected = oracle.labelwise(trees_of(opened, points), opened.label_points, 40, 4.0, complete=True)
    assert same(rows_of(best_points(opened, points, Labelwise(40, 4.0))), expected)


def test_progress_counts_every_unit(model: Path, sample: Parts) -> None:
    opened, points = open_model(model), sample[1].features
    seen: list[tuple[int, int]] = []
    best_points(opened, points, Labelwise(block=60), 2, lambda done, total: seen.append((done, total)))
    total = 3 * (opened.n_trees + 1)
    assert seen == [(done, total) for done in range(1, total + 1)]


@pytest.mark.parametrize("factor", [0.5, 4.0, EVERYONE])
def test_ties_are_won_by_the_lower_id(model: Path, sample: Parts, factor: float) -> None:
    """Every point comes ten times: equal scores everywhere."""
    opened = open_model(model)
    points = take_rows(sample[1].features, np.tile(np.arange(12), 10))
    expected = oracle.labelwise(trees_of(opened, points), opened.label_points, 15, factor, complete=True)
    got = rows_of(best_points(opened, points, Labelwise(15, factor)))
    for row, wanted in zip(got, expected, strict=True):
        assert [s for _, s in row] == pytest.approx([s for _, s in wanted], abs=1e-6)
        for (i, a), (j, b) in pairwise(row):
            assert a > b or i < j
        if factor == EVERYONE:  # with fewer, rounding may order different points at a cut in another way
            assert {i for i, _ in row} == {i for i, _ in wanted}


def test_more_points_are_asked_for_than_there_are(model: Path, sample: Parts) -> None:
    opened, points = open_model(model), take_rows(sample[1].features, np.arange(3))
    best = best_points(opened, points, Labelwise(10, EVERYONE))
    assert best.counts.max() <= 3
    assert (best.scores[np.arange(10) < best.counts[:, None]] > 0).all()


def test_a_point_without_features_is_answered_from_the_biases(model: Path, sample: Parts) -> None:
    opened, n = open_model(model), sample[1].n_features
    empty = no_features(4, n)
    trees = trees_of(opened, empty)
    expected = oracle.labelwise(trees, opened.label_points, 2, EVERYONE, complete=True)
    assert same(rows_of(best_points(opened, empty, Labelwise(2, EVERYONE))), expected)


def test_labels_never_seen_get_no_points(sample: Parts, tmp_path: Path) -> None:
    y = to_scipy(sample[0].relevance).tolil()
    y[:, :40] = 0
    data = Dataset(sample[0].features, from_scipy(y.tocsr()))
    for recipe in (PAPER, ROUTED):
        fit(data, Params(recipe, trees=2, max_leaf=20), tmp_path / recipe.name, 2)
        for factor in (1.0, EVERYONE):
            best = best_points(open_model(tmp_path / recipe.name), sample[1].features, Labelwise(5, factor))
            assert (best.counts[:40] == 0).all()
            assert (best.counts[40:] > 0).any()


def test_calibration_maps_the_scores_and_keeps_their_order(sample: Parts, tmp_path: Path) -> None:
    from dataclasses import replace

    fit(sample[0], Params(replace(ROUTED, calibration="isotonic"), trees=1, max_leaf=50), tmp_path / "m", 2)
    opened = open_model(tmp_path / "m")
    assert opened.calibration is not None
    mapped = best_points(opened, sample[1].features, Labelwise(5))
    plain = best_points(opened._replace(calibration=None), sample[1].features, Labelwise(5))
    assert np.array_equal(mapped.points, plain.points)
    assert np.array_equal(mapped.scores, opened.calibration.apply(plain.scores))


def test_impossible_requests_say_what_must_hold(model: Path, sample: Parts) -> None:
    for options, message in (
        ({"top": 0}, "top must be between 1 and 10000, got 0"),
        ({"factor": 0.0}, "factor must be a number above 0, got 0.0"),
        ({"factor": -1.0}, "factor must be a number above 0"),
        ({"factor": float("nan")}, "factor must be a number above 0, got nan"),
        ({"factor": float("inf")}, "factor must be a number above 0, got inf"),
        ({"block": 0}, "block must be at least 1, got 0"),
    ):
        with pytest.raises(UsageError, match=message):
            Labelwise(**options)
    opened = open_model(model)
    with pytest.raises(DataError, match="the points have 3 features, the model was trained on"):
        best_points(opened, no_features(2, 3), Labelwise())
    with pytest.raises(DataError, match="there are no points"):
        best_points(opened, take_rows(sample[1].features, np.arange(0)), Labelwise())
    opened.manifest["params"]["alpha"] = 0.5
    with pytest.raises(UsageError, match="labelwise needs a model with alpha 1"):
        best_points(opened, sample[1].features, Labelwise())
