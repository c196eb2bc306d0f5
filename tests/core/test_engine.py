"""The search equals the plain reference, for every recipe; options do what they say; bad requests get a clear error."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine import Answer, Engine, Options
from core.errors import DataError, UsageError
from core.kernels.pointwise import answer, answer_rows
from core.sparse import Csr, take_rows, to_scipy, transformed
from core.trie import node_major
from tests import oracle
from training.dataset import Dataset

Parts = tuple[Dataset, Dataset]


def point(data: Dataset, i: int) -> tuple[Any, Any]:
    row = slice(data.features.indptr[i], data.features.indptr[i + 1])
    return data.features.indices[row], data.features.values[row]


def unit_rows(engine: Engine, points: Csr) -> list[oracle.Row]:
    """Points as the regressors know them."""
    recipe = engine.model.manifest["params"]["recipe"]
    x = to_scipy(transformed(points, recipe["value_power"], engine.model.feature_weight))
    return [dict(zip(x[[i]].indices.tolist(), x[[i]].data.tolist(), strict=True)) for i in range(x.shape[0])]


def reference(engine: Engine, points: Csr, beam: int, k: int, **options: Any) -> list[list[tuple[int, float]]]:
    model = engine.model
    arrays, recipe = node_major(model.trie, model.n_features)._asdict(), model.manifest["params"]["recipe"]
    return [
        oracle.search(arrays, recipe, row, beam, k, model.label_points, **options) for row in unit_rows(engine, points)
    ]


def plain(engine: Engine) -> Options:
    """Without tail re-ranking, which is tested by itself."""
    return Options(alpha=1.0)


@pytest.mark.parametrize("beam", [1, 3, 1000])
def test_search_equals_the_reference(model: Path, sample: Parts, beam: int) -> None:
    engine = Engine.open(model)
    points = take_rows(sample[1].features, np.arange(12))
    for i, expected in enumerate(reference(engine, points, beam, 10)):
        got = engine.predict(*point(sample[1], i), k=10, beam=beam, options=plain(engine))
        scores = dict(zip(got.labels.tolist(), got.scores.tolist(), strict=True))
        assert scores == pytest.approx(dict(expected), abs=1e-6)
        assert np.all(np.diff(got.scores) <= 0)


def test_batch_equals_single_for_any_number_of_threads(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    one, two = (engine.predict_batch(sample[1].features, k=10, threads=threads) for threads in (1, 2))
    assert np.array_equal(to_scipy(one).toarray(), to_scipy(two).toarray())
    for i in (0, 77, 149):
        alone = engine.predict(*point(sample[1], i), k=10)
        row = slice(one.indptr[i], one.indptr[i + 1])
        assert dict(zip(alone.labels, alone.scores, strict=True)) == dict(
            zip(one.indices[row], one.values[row], strict=True)
        )


def test_many_threads_may_ask_at_once(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)

    def ask(i: int) -> list[int]:
        return [int(label) for label in engine.predict(*point(sample[1], i % 150), k=5, beam=1 + i % 7).labels]

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(600)))
    assert together == [ask(i) for i in range(600)]


@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_features_does_not_matter_and_duplicates_are_added(seed: int) -> None:
    engine, random = Engine.open(MODEL, verify=False), np.random.default_rng(seed)
    n = int(random.integers(1, 40))
    features = random.integers(0, engine.model.n_features, n)
    values = random.random(n).astype(np.float32)
    order = random.permutation(n)
    merged = np.zeros(engine.model.n_features, np.float64)
    for f in np.unique(features):  # in the order that the engine adds them
        for v in values[features == f]:
            merged[f] = np.float32(merged[f]) + v
    whole = np.flatnonzero(merged)
    expected = engine.predict(whole, merged[whole].astype(np.float32))
    shuffled = engine.predict(features[order], values[order])
    assert np.array_equal(expected.labels, shuffled.labels)
    assert np.allclose(expected.scores, shuffled.scores, atol=1e-6)
    if len(np.unique(features)) == n:
        assert np.array_equal(expected.scores, shuffled.scores)


MODEL = Path()  # the model of the property tests, which take no fixtures of a function's scope


@pytest.fixture(autouse=True)
def _model_of_properties(paper_model: Path) -> None:
    global MODEL
    MODEL = paper_model


def test_the_k_best_begin_the_2k_best(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    for i in range(30):
        few, many = (engine.predict(*point(sample[1], i), k=k) for k in (5, 10))
        assert np.array_equal(few.labels, many.labels[:5])


@pytest.mark.parametrize("k", [1, 20, 21, 33, 100])
def test_bounds_never_cost_an_answer(model: Path, sample: Parts, k: int) -> None:
    engine = Engine.open(model)
    bids = engine.weigh(np.random.default_rng(0).random(engine.model.n_labels))
    for i, weights in product(range(8), (None, bids)):
        all_labels, some = (  # whoever asks for all labels gets them without any bound
            engine.predict(*point(sample[1], i), n, 1000, Options(alpha=1.0, weights=weights, exclude=[i, 3 * i]))
            for n in (5000, k)
        )
        assert np.array_equal(some.labels, all_labels.labels[:k])


def test_every_label_comes_back_when_all_are_asked_for(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    got = engine.predict(*point(sample[1], 0), k=5000, beam=1000)
    seen = int((engine.model.label_points > 0).sum())
    assert len(got.labels) <= seen
    if not engine.model.scoring.ridge_leaves:  # ridge scores may be 0
        assert len(got.labels) == seen


@pytest.mark.parametrize("how", ["best", "all but five", "a leaf"])
def test_excluded_labels_are_replaced_by_the_next(model: Path, sample: Parts, how: str) -> None:
    engine = Engine.open(model)
    x = point(sample[1], 3)
    everything = engine.predict(*x, k=5000, beam=1000)
    exclude = {
        "best": everything.labels[:10],
        "all but five": everything.labels[:-5],
        "a leaf": engine.model.trie.edge_target[-10:],
    }[how]
    expected = [int(label) for label in everything.labels if label not in set(exclude.tolist())][:10]
    got = engine.predict(*x, k=10, beam=1000, options=Options(exclude=exclude))
    assert got.labels.tolist() == expected
    narrow = engine.predict(*x, k=5, beam=2, options=Options(exclude=exclude))
    assert len(narrow.labels) == 5
    assert not set(narrow.labels.tolist()) & set(exclude.tolist())


def test_candidates_are_scored_along_their_paths(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    x = point(sample[1], 5)
    everything = engine.predict(*x, k=5000, beam=1000)
    wanted = everything.labels[[1, 5, 30, 100]]
    got = engine.predict(*x, k=10, beam=1000, options=Options(candidates=wanted))
    expected = dict(zip(everything.labels.tolist(), everything.scores.tolist(), strict=True))
    assert got.labels.tolist() == wanted.tolist()
    assert got.scores.tolist() == pytest.approx([expected[label] for label in got.labels.tolist()], abs=1e-7)
    if engine.model.scoring.conditional:  # there a path does not depend on the beam
        assert engine.predict(*x, beam=1, options=Options(candidates=wanted)).scores.tolist() == got.scores.tolist()
    unwanted = engine.predict(*x, options=Options(candidates=wanted, exclude=wanted[:1]))
    assert int(wanted[0]) not in unwanted.labels


def test_weights_find_the_best_by_score_times_weight(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    random = np.random.default_rng(0)
    bids = random.lognormal(0, 2, engine.model.n_labels).astype(np.float32)
    weights = engine.weigh(bids)
    for i in range(10):
        x = point(sample[1], i)
        everything = engine.predict(*x, k=5000, beam=1000)
        worth = everything.scores * bids[everything.labels]
        order = np.lexsort((everything.labels, -worth))[:10]
        got = engine.predict(*x, k=10, beam=1000, options=Options(weights=weights))
        assert got.labels.tolist() == everything.labels[order].tolist()
        assert got.scores.tolist() == everything.scores[order].tolist()


def test_a_valuable_label_is_found_by_a_narrow_beam(paper_model: Path, sample: Parts) -> None:
    engine = Engine.open(paper_model)
    x = point(sample[1], 0)
    everything = engine.predict(*x, k=5000, beam=1000)
    hidden = int(everything.labels[60])
    bids = np.full(engine.model.n_labels, 1e-3, np.float32)
    bids[hidden] = 1e6
    assert engine.predict(*x, k=1, beam=1, options=Options(weights=engine.weigh(bids))).labels.tolist() == [hidden]


def test_a_threshold_cuts_the_answer_where_it_is_crossed(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    x = point(sample[1], 2)
    everything = engine.predict(*x, k=50)
    cut = float(everything.scores[7])
    got = engine.predict(*x, k=50, options=Options(threshold=cut))
    assert np.array_equal(got.labels, everything.labels[everything.scores >= cut])


def test_an_explanation_adds_up_to_the_score(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    arrays = node_major(engine.model.trie, engine.model.n_features)._asdict()
    for i in (0, 7):
        x = point(sample[1], i)
        row = unit_rows(engine, take_rows(sample[1].features, np.array([i])))[0]
        answer = engine.predict(*x, k=3)
        scored = engine.predict(*x, options=Options(candidates=answer.labels))
        for label, score in zip(scored.labels.tolist(), scored.scores.tolist(), strict=True):
            why = engine.explain(*x, label)
            assert why.score == pytest.approx(score, abs=1e-5)
            assert len(why.paths) == engine.model.n_trees
            for tree, path in enumerate(why.paths):
                edges, leaf, last = oracle.leaves_of_labels(arrays, tree)[label]
                assert [step.node for step in path] == [*(node for node, _ in edges), leaf]
                for step, (node, edge) in zip(path, [*edges, (leaf, last)], strict=True):
                    assert step.logit == math.fsum([step.bias, *(push for _, push in step.contributions)])
                    assert step.logit == pytest.approx(oracle.edge_margins(arrays, node, row)[edge], abs=1e-5)
                    assert {f for f, _ in step.contributions} <= set(row)
    with pytest.raises(UsageError, match="label -1 is not in"):
        engine.explain(*x, -1)
    with pytest.raises(DataError, match="is out of range"):
        engine.explain([10**8], [1.0], 0)


def test_a_point_without_features_is_answered_from_the_biases(model: Path) -> None:
    got = Engine.open(model).predict([], [])
    assert np.isfinite(got.scores).all()


def test_tail_reranking_is_the_geometric_mean_with_the_cosine(sample: Parts, paper_model: Path) -> None:
    engine = Engine.open(paper_model)
    assert engine.model.tail is not None
    scores = to_scipy(engine.predict_batch(sample[1].features, 1000, 1000, Options(alpha=1.0))).toarray()
    recipe = engine.model.manifest["params"]["recipe"]
    x = to_scipy(transformed(sample[1].features, recipe["value_power"], engine.model.feature_weight)).toarray()
    cosine = np.maximum(x @ to_scipy(engine.model.tail).toarray().T, 0)
    expected = scores**0.5 * cosine**0.5
    got = to_scipy(engine.predict_batch(sample[1].features, 1000, 1000, Options(alpha=0.5))).toarray()
    assert np.allclose(got, expected, atol=1e-5)
    few = to_scipy(engine.predict_batch(sample[1].features, 3, 1000, Options(alpha=0.5))).toarray()
    assert np.array_equal(np.sort(few, axis=1)[:, -3:], np.sort(got, axis=1)[:, -3:])
    one = engine.predict(*point(sample[1], 4), 3, 1000, Options(alpha=0.5))
    assert one.scores.tolist() == np.sort(few[4])[::-1][:3].tolist()


@pytest.mark.parametrize(
    ("k", "beam", "options", "message"),
    [
        (0, None, Options(), "k must be between 1 and"),
        (10, 0, Options(), "beam must be at least 1, got 0"),
        (10, None, Options(alpha=1.5), "alpha must be between 0 and 1"),
        (10, None, Options(threshold=float("nan")), "threshold must not be negative"),
        (10, None, Options(exclude=[-1]), "exclude: label -1 is not in 0 …"),
        (10, None, Options(candidates=[10**12]), "candidates: label 1000000000000 is not in 0 …"),
    ],
)
def test_impossible_requests_say_what_must_hold(
    paper_model: Path, sample: Parts, k: int, beam: int | None, options: Options, message: str
) -> None:
    engine = Engine.open(paper_model)
    with pytest.raises(UsageError, match=message):
        engine.predict(*point(sample[1], 0), k, beam, options)
    with pytest.raises(UsageError, match=message):
        engine.predict_batch(sample[1].features, k, beam, options)


def test_a_model_without_centroids_cannot_rerank(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    if engine.model.tail is None:
        with pytest.raises(UsageError, match="trained without --tail"):
            engine.predict(*point(sample[1], 0), options=Options(alpha=0.5))
    with pytest.raises(UsageError, match="a weight for each of"):
        engine.weigh([1.0])
    with pytest.raises(UsageError, match="finite and not negative"):
        engine.weigh(np.full(engine.model.n_labels, -1.0))


@pytest.mark.parametrize(
    ("indices", "values", "message"),
    [
        ([-1], [1.0], "feature id -1 is out of range"),
        ([10**9], [1.0], "is out of range; the model has"),
        ([2**40], [1.0], "is out of range; the model has"),
        ([1], [float("nan")], "values must be finite and not negative, got nan"),
        ([1], [float("inf")], "got inf"),
        ([1, 2], [1.0, -0.5], "got -0.5"),
        ([1, 2], [1.0], "2 feature ids and 1 values"),
        ([1.5], [1.0], "feature ids must be whole numbers"),
        ([[1]], [[1.0]], "one-dimensional"),
    ],
)
def test_points_that_cannot_be_are_refused(paper_model: Path, indices: Any, values: Any, message: str) -> None:
    engine = Engine.open(paper_model)
    with pytest.raises(DataError, match=message):
        engine.predict(indices, values)


def test_a_bad_point_in_a_batch_is_named(paper_model: Path, sample: Parts) -> None:
    engine = Engine.open(paper_model)
    points = take_rows(sample[1].features, np.arange(5))
    values = points.values.copy()
    values[points.indptr[3]] = np.nan
    with pytest.raises(DataError, match="point 3: values must be finite"):
        engine.predict_batch(points._replace(values=values))
    with pytest.raises(DataError, match="the points have 3 features"):
        engine.predict_batch(Csr(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 3))


def test_buffers_grow_with_what_is_asked(paper_model: Path, sample: Parts) -> None:
    engine = Engine.open(paper_model)
    long = np.arange(engine.model.n_features)
    values = np.ones(len(long), np.float32)
    expected = Engine.open(paper_model).predict(long, values, k=400, beam=1000)
    engine.predict(*point(sample[1], 0), k=1, beam=1)
    got = engine.predict(long, values, k=400, beam=1000)
    assert np.array_equal(got.labels, expected.labels)
    assert np.array_equal(got.scores, expected.scores)


def test_nothing_is_compiled_after_the_warm_up(model: Path, sample: Parts) -> None:
    engine = Engine.open(model)
    engine.warm_up()
    before = len(answer.signatures), len(answer_rows.signatures)  # type: ignore[attr-defined]
    features = sample[1].features
    locked = features.indices.copy()
    locked.flags.writeable = False
    engine.predict(*point(sample[1], 0))
    engine.predict([3, 1], [1, 2], options=Options(exclude=[1], candidates=[2], threshold=0.1))
    engine.predict(
        locked[:9], features.values[:9], options=Options(weights=engine.weigh(np.ones(engine.model.n_labels)))
    )
    engine.predict(locked[:20:2], features.values[:20:2].astype(np.float64))
    engine.predict_batch(features._replace(indices=locked), threads=2)
    assert (len(answer.signatures), len(answer_rows.signatures)) == before  # type: ignore[attr-defined]


def test_an_answer_unpacks_into_labels_and_scores(paper_model: Path, sample: Parts) -> None:
    labels, scores = Engine.open(paper_model).predict(*point(sample[1], 0), k=3)
    assert isinstance(Engine.open(paper_model).predict([], []), Answer)
    assert len(labels) == len(scores) == 3


def test_kernels_stay_within_their_arrays(paper_model: Path, routed_model: Path, tmp_path: Path) -> None:
    """Everything once more with Numba's bounds checking, in a process and a cache of its own."""
    script = Path(__file__).with_name("bounds.py")
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "XREG_KERNEL_CACHE": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, str(script), str(paper_model), str(routed_model)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    assert json.loads(run.stdout)["answers"] > 100


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
    engine = Engine.open(tmp_path / "isotonic")
    assert engine.model.calibration is not None
    assert np.all(np.diff(engine.predict(*point(sample[1], 0)).scores) <= 0)
