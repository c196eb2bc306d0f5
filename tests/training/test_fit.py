"""The pipeline: the same bytes for any number of threads, after any kill; exact where exactness can be seen."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from core.engine import Engine
from core.errors import DataError, ResumeError, UsageError
from core.executors import After, LocalExecutor, Tell, Unit
from core.model import open_model
from core.sparse import from_scipy, to_scipy, transformed
from core.trie import node_major
from core.work import locked
from tests import oracle
from tests.conftest import PARAMS, SAMPLE
from training.dataset import Dataset
from training.fit import begin, finish, fit
from training.params import PAPER, ROUTED, Params, Regression

Parts = tuple[Dataset, Dataset]


def digest(model: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(model.iterdir())}


@pytest.mark.parametrize("name", ["paper", "two levels"])
def test_any_number_of_threads_gives_the_same_bytes(sample: Parts, tmp_path: Path, name: str) -> None:
    for threads in (1, 3):
        fit(sample[0], PARAMS[name], tmp_path / f"m{threads}", threads)
    assert digest(tmp_path / "m1") == digest(tmp_path / "m3")
    assert not (tmp_path / "m1.work").exists()


def test_another_seed_gives_another_model(sample: Parts, tmp_path: Path) -> None:
    for seed in (0, 1):
        fit(sample[0], replace(PARAMS["paper"], seed=seed), tmp_path / f"m{seed}", 2)
    assert digest(tmp_path / "m0")["edge_target.npy"] != digest(tmp_path / "m1")["edge_target.npy"]


def test_killed_at_any_moment_it_resumes_to_the_same_bytes(sample: Parts, tmp_path: Path) -> None:
    fit(sample[0], Params(PAPER, trees=2, max_leaf=10), tmp_path / "whole", 2)
    command = [sys.executable, "-m", "training.cli", "train", str(SAMPLE), "--out", str(tmp_path / "cut")]
    command += ["--recipe", "paper", "--trees", "2", "--max-leaf", "10", "--threads", "2"]
    kills = 0
    for units in (0, 1, 4, 9):
        process = subprocess.Popen([*command, *(["--resume"] if kills else [])], stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list((tmp_path / "cut.work").glob("*.npz"))) < units:
            time.sleep(0.001)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        assert not (tmp_path / "cut").exists() or process.returncode == 0
    if not (tmp_path / "cut").exists():
        subprocess.run([*command, "--resume"], check=True, stderr=subprocess.DEVNULL)
    assert kills >= 2
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


class StoppingAfter:
    """Threads that end a run when so many units are done."""

    remote = False

    def __init__(self, units: int) -> None:
        self.units = units

    def run(self, units: Iterable[Unit], after: After, tell: Tell) -> None:
        def then(unit: Unit, fresh: bool) -> Iterable[Unit]:
            self.units -= fresh
            if not self.units:
                raise KeyboardInterrupt
            return after(unit, fresh)

        LocalExecutor(2).run(units, then, tell)


@pytest.mark.parametrize("name", ["paper", "two levels"])
def test_stopped_in_any_stage_it_goes_on_from_finished_units_to_the_same_bytes(
    sample: Parts, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tops, nodes between root and leaves, routing, leaves; each stop is some units further."""
    fit(sample[0], PARAMS[name], tmp_path / "whole", 2)
    begin(sample[0], PARAMS[name], tmp_path / "cut")
    finished = dict[Path, int]()
    for units in (1, 2, 3, 8, 2, 1, 3):
        with pytest.raises(KeyboardInterrupt):
            finish(tmp_path / "cut", 2, executor=StoppingAfter(units))
        assert finished.items() <= (finished := times_of(tmp_path / "cut.work")).items()
    seen = list[tuple[int, int, int]]()
    with monkeypatch.context() as patch:
        patch.setattr("training.fit.remove", lambda work: None)
        finish(tmp_path / "cut", 2, lambda *told: seen.append(told))
    assert seen[-1][0] == seen[-1][1]
    assert finished.items() <= times_of(tmp_path / "cut.work").items()
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


def times_of(work: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in work.glob("*.npz")}


def test_unfinished_work_is_neither_lost_nor_mixed_up(
    sample: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, out = PARAMS["paper"], tmp_path / "m"

    def broken(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("training.fit.write_model", broken)
        with pytest.raises(KeyboardInterrupt):
            fit(sample[0], params, out, 1)
    with pytest.raises(ResumeError, match="holds an unfinished run; go on with --resume"):
        fit(sample[0], params, out, 1)
    with pytest.raises(ResumeError, match="belongs to a run with other data, options or version"):
        fit(sample[0], replace(params, seed=5), out, 1, resume=True)
    with pytest.raises(ResumeError, match="belongs to a run with other data"):
        fit(sample[1], params, out, 1, resume=True)
    times = times_of(tmp_path / "m.work")
    with monkeypatch.context() as patch:
        patch.setattr("training.fit.remove", lambda work: None)
        fit(sample[0], params, out, 1, resume=True)
    assert times == times_of(tmp_path / "m.work")


def test_a_work_directory_is_one_process_at_a_time(sample: Parts, tmp_path: Path) -> None:
    begin(sample[0], PARAMS["paper"], tmp_path / "m")
    with locked(tmp_path / "m.work"):
        with pytest.raises(ResumeError, match="is being worked on by another process"):
            begin(sample[0], PARAMS["paper"], tmp_path / "m", resume=True)
        with pytest.raises(ResumeError, match="is being worked on by another process"):
            finish(tmp_path / "m", 1)
    finish(tmp_path / "m", 1)
    with pytest.raises(ResumeError, match="has another process finished the run"):
        finish(tmp_path / "m", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_an_existing_model_is_not_overwritten(sample: Parts, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(UsageError, match="exists; remove it or choose another name"):
        fit(sample[0], PARAMS["paper"], tmp_path / "m", 1)


def data_of(x: list[list[float]], y: list[list[float]]) -> Dataset:
    return Dataset(from_scipy(sparse.csr_matrix(x)), from_scipy(sparse.csr_matrix(y)))


def test_nothing_to_learn_from_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    for data, message in (
        (data_of([[1.0]], [[0.0]]), "no point has a relevant label"),
        (Dataset(from_scipy(sparse.csr_matrix((0, 3))), from_scipy(sparse.csr_matrix((0, 2)))), "no points"),
        (Dataset(from_scipy(sparse.csr_matrix((2, 3))), from_scipy(sparse.csr_matrix((2, 0)))), "no labels"),
    ):
        with pytest.raises(DataError, match=message):
            fit(data, Params(), tmp_path / "m", 1)
        assert list(tmp_path.iterdir()) == []


def test_labels_never_seen_score_0_and_points_without_labels_count(sample: Parts, tmp_path: Path) -> None:
    """424 labels of which the first 40 get no training point; the first 100 points get no label."""
    y = to_scipy(sample[0].relevance).tolil()
    y[:, :40] = 0
    y[:100, :] = 0
    data = Dataset(sample[0].features, from_scipy(y.tocsr()))
    for name in ("paper", "routed"):
        fit(data, PARAMS[name], tmp_path / name, 2)
        answers = Engine.open(tmp_path / name).predict_batch(sample[1].features, k=400)
        assert answers.nnz
        assert answers.indices.min() >= 40


def test_the_papers_root_is_solved_exactly(sample: Parts, tmp_path: Path) -> None:
    """One leaf: s = 1 for all points, cost C, targets y; the stored regressors are the minimum of the objective."""
    few = from_scipy(to_scipy(sample[0].features)[:, :400].tocsr())
    recipe = replace(PAPER, amount=0.0, leaf=Regression("logistic", 10.0, 300))
    fit(Dataset(few, sample[0].relevance), Params(recipe, trees=1, max_leaf=1000), tmp_path / "m", 2)
    model = open_model(tmp_path / "m")
    e = node_major(model.trie, model.n_features)
    x = to_scipy(transformed(few, 1.0, model.feature_weight)).toarray()
    dense = np.hstack([x, np.ones((len(x), 1))]).astype(float)
    y = to_scipy(sample[0].relevance).toarray() / model.manifest["scale"]
    margins = [oracle.edge_margins(e._asdict(), 0, dict(enumerate(row))) for row in x[:5].tolist()]
    assert e.node_frac.tolist() == [1.0]
    for edge in (0, 100, 423):
        z = y[:, int(e.edge_target[edge])]
        w = np.zeros(dense.shape[1])
        for _ in range(20):  # Newton on the reference objective
            p = 1 / (1 + np.exp(-dense @ w))
            hessian = np.eye(len(w)) + dense.T @ (dense * (10 * p * (1 - p))[:, None])
            w -= np.linalg.solve(hessian, oracle.gradient("logistic", dense, z, np.full(len(x), 10.0), w))
        assert [row[edge] for row in margins] == pytest.approx(dense[:5] @ w, abs=0.03)


def test_frac_is_the_share_of_points_with_a_label_below(sample: Parts, tmp_path: Path) -> None:
    for name in ("paper", "routed"):
        fit(sample[0], PARAMS[name], tmp_path / name, 2)
        e = open_model(tmp_path / name).trie
        y = to_scipy(sample[0].relevance).toarray() > 0
        for node in np.flatnonzero(e.node_leaf)[:10]:
            labels = e.edge_target[e.edge_ptr[node] : e.edge_ptr[node + 1]]
            if node not in e.tree_ptr:
                assert e.node_frac[node] == pytest.approx(y[:, labels].any(axis=1).mean())
        assert (e.node_frac[e.tree_ptr[:-1]] == 1.0).all()


def test_scale_and_relevance(sample: Parts, tmp_path: Path) -> None:
    doubled = Dataset(sample[0].features, sample[0].relevance._replace(values=sample[0].relevance.values * 2))
    fit(sample[0], PARAMS["paper"], tmp_path / "one", 2)
    fit(doubled, PARAMS["paper"], tmp_path / "two", 2)
    one, two = open_model(tmp_path / "one"), open_model(tmp_path / "two")
    assert two.manifest["scale"] == 2 * one.manifest["scale"]
    assert np.array_equal(one.trie.entry, two.trie.entry)
    fit(sample[0], replace(PARAMS["paper"], relevance="binary"), tmp_path / "binary", 2)
    assert open_model(tmp_path / "binary").manifest["scale"] == 1.0


def test_a_routed_leaf_trains_on_points_sent_there_wrongly(sample: Parts, tmp_path: Path) -> None:
    """With routing a leaf has seen negatives: the labels of wrong leaves score lower than without."""
    means = {}
    for routed in (1, 10):
        recipe = replace(ROUTED, routed=routed, blend=0.0)
        fit(sample[0], Params(recipe, trees=1, max_leaf=20), tmp_path / str(routed), 2)
        scores = Engine.open(tmp_path / str(routed)).predict_batch(sample[1].features, k=100)
        means[routed] = scores.values.sum() / scores.n_rows
    assert means[10] < 0.8 * means[1]


def test_leftovers_without_a_job_are_not_taken_for_a_run(sample: Parts, tmp_path: Path) -> None:
    fit(sample[0], PARAMS["paper"], tmp_path / "clean", 2)
    (tmp_path / "m.work").mkdir()
    (tmp_path / "m.work" / "tree0-1.npz").write_bytes(b"left by a kill")
    fit(sample[0], PARAMS["paper"], tmp_path / "m", 2)
    assert digest(tmp_path / "m") == digest(tmp_path / "clean")


def test_killed_after_the_last_step_resume_only_cleans_up(
    sample: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("training.fit.remove", lambda work: None)
        fit(sample[0], PARAMS["paper"], tmp_path / "m", 2)
    before = digest(tmp_path / "m")
    fit(sample[0], PARAMS["paper"], tmp_path / "m", 2, resume=True)
    assert digest(tmp_path / "m") == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_relevances_of_any_size_are_safe(tmp_path: Path) -> None:
    """Quotients and powers that underflow neither vanish nor write where they should not."""
    x = np.abs(np.random.default_rng(0).normal(size=(40, 6)))
    x[0] = [1e30, 1e-30, 0, 0, 0, 0]
    y = np.zeros((40, 5))
    y[np.arange(40), np.arange(40) % 5] = 1e-10
    y[0, 0] = 3e38
    fit(data_of(x.tolist(), y.tolist()), Params(max_leaf=2), tmp_path / "m", 1)
    assert np.isfinite(Engine.open(tmp_path / "m").predict_batch(from_scipy(sparse.csr_matrix(x)), k=5).values).all()
