"""The search equals the plain reference, for every recipe; bad requests get a clear error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.engine import Engine
from core.errors import DataError, UsageError
from core.sparse import Csr, take_rows, to_scipy, transformed
from tests import oracle
from training.dataset import Dataset

Parts = tuple[Dataset, Dataset]


def reference(engine: Engine, points: Csr, beam: int, k: int) -> list[list[tuple[int, float]]]:
    model, recipe = engine.model, engine.model.manifest["params"]["recipe"]
    x = to_scipy(transformed(points, recipe["value_power"], model.feature_weight))
    rows = [dict(zip(x[[i]].indices.tolist(), x[[i]].data.tolist(), strict=True)) for i in range(x.shape[0])]
    return [oracle.search(model.ensemble._asdict(), recipe, row, beam, k, model.label_points) for row in rows]


@pytest.mark.parametrize("beam", [1, 3, 1000])
def test_search_equals_the_reference(model: Path, sample: Parts, beam: int) -> None:
    engine = Engine.open(model)
    points = take_rows(sample[1].features, np.arange(12))
    answers = to_scipy(engine.predict(points, k=10, beam=beam, alpha=1.0))
    for i, expected in enumerate(reference(engine, points, beam, 10)):
        row = answers[[i]]
        got = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        assert got == pytest.approx(dict(expected), abs=1e-6)


def test_answers_do_not_depend_on_threads_or_company(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    together = to_scipy(engine.predict(sample[1].features, k=10, threads=2))
    alone = to_scipy(engine.predict(take_rows(sample[1].features, np.array([77])), k=10))
    assert np.array_equal(together[[77]].toarray(), alone.toarray())


def test_the_k_best_begin_the_2k_best(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    few, many = (to_scipy(engine.predict(sample[1].features, k=k)) for k in (5, 50))
    for i in range(few.shape[0]):
        best = sorted(zip(-many[[i]].data, many[[i]].indices, strict=True))[:5]
        assert sorted(zip(-few[[i]].data, few[[i]].indices, strict=True)) == best


def test_a_point_without_features_is_answered_from_the_biases(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    empty = Csr(np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), sample[0].n_features)
    answers = engine.predict(empty, k=5)
    assert answers.n_rows == 1
    assert np.isfinite(answers.values).all()


def test_tail_reranking_is_the_geometric_mean_with_the_cosine(sample: Parts, tail_model: Path) -> None:
    engine = Engine.open(tail_model)
    assert engine.model.tail is not None
    plain = to_scipy(engine.predict(sample[1].features, k=1000, alpha=1.0)).toarray()
    recipe = engine.model.manifest["params"]["recipe"]
    x = to_scipy(transformed(sample[1].features, recipe["value_power"], engine.model.feature_weight)).toarray()
    cosine = np.maximum(x @ to_scipy(engine.model.tail).toarray().T, 0)
    expected = plain**0.5 * cosine**0.5
    got = to_scipy(engine.predict(sample[1].features, k=1000, alpha=0.5)).toarray()
    assert np.allclose(got, expected, atol=1e-5)
    few = to_scipy(engine.predict(sample[1].features, k=3, alpha=0.5)).toarray()
    assert np.array_equal(np.sort(few, axis=1)[:, -3:], np.sort(got, axis=1)[:, -3:])


@pytest.fixture(scope="module")
def tail_model(sample: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from training.fit import fit
    from training.params import PAPER, Params

    path: Path = tmp_path_factory.mktemp("tail") / "m"
    fit(sample[0], Params(PAPER, trees=1, max_leaf=50, tail=True), path, threads=1)
    return path


def test_impossible_requests_say_what_must_hold(model: Path, sample: Parts) -> None:
    engine, points = Engine.open(model), sample[1].features
    for options, message in (
        ({"k": 0}, "k must be between 1 and"),
        ({"beam": 0}, "beam must be at least 1, got 0"),
        ({"alpha": 1.5}, "alpha must be between 0 and 1"),
    ):
        with pytest.raises(UsageError, match=message):
            engine.predict(points, **options)
    with pytest.raises(DataError, match="the points have 3 features"):
        engine.predict(Csr(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 3))
    if engine.model.tail is None:
        with pytest.raises(UsageError, match="trained without --tail"):
            engine.predict(points, alpha=0.5)


def test_calibrated_scores_keep_the_ranking_and_come_closer_to_the_truth(sample: Parts, tmp_path: Path) -> None:
    from dataclasses import replace

    from training.evaluate import evaluate_model
    from training.fit import fit
    from training.params import ROUTED, Params

    figures = {}
    for kind in ("none", "isotonic"):
        recipe = replace(ROUTED, calibration=kind)
        fit(sample[0], Params(recipe, trees=1, max_leaf=50), tmp_path / kind, threads=2)
        figures[kind] = evaluate_model(Engine.open(tmp_path / kind), sample[1])
    assert figures["isotonic"]["WP@5"] == pytest.approx(figures["none"]["WP@5"])
    assert figures["isotonic"]["XMAD@5"] != figures["none"]["XMAD@5"]
    assert Engine.open(tmp_path / "isotonic").model.calibration is not None
