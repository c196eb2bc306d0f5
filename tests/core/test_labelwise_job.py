"""A labelwise job: both files say the same, a killed one resumes to the same bytes, work is never mixed up."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from core.errors import ResumeError, UsageError
from core.labelwise import Labelwise, as_rows, best_points
from core.labelwise_job import run_job
from core.model import open_model
from core.sparse import to_scipy
from tests.conftest import PARAMS, SAMPLE
from training.dataset import Dataset
from training.fit import fit

Parts = tuple[Dataset, Dataset]


@pytest.fixture(scope="module")
def paper(sample: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("labelwise") / "m"
    fit(sample[0], PARAMS["paper"], path, threads=2)
    return path


def digests(out: Path) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in (out, out.with_suffix(".npz"))]


def test_both_files_hold_what_inference_in_memory_gives(paper: Path, sample: Parts, tmp_path: Path) -> None:
    asked, out = Labelwise(top=4, block=64), tmp_path / "best.parquet"
    run_job(paper, sample[1].features, asked, out, threads=2)
    expected = best_points(open_model(paper), sample[1].features, asked)
    matrix = sparse.csr_matrix(sparse.load_npz(tmp_path / "best.npz"))
    assert np.array_equal(matrix.toarray(), to_scipy(as_rows(expected, sample[1].n_points)).toarray())
    table = pq.read_table(out).to_pydict()
    assert list(table) == ["label", "rank", "point", "score"]
    label, rank = np.array(table["label"]), np.array(table["rank"])
    assert np.array_equal(table["point"], expected.points[label, rank - 1])
    assert np.array_equal(np.array(table["score"], np.float32), expected.scores[label, rank - 1])
    assert len(label) == expected.counts.sum()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.npz", "best.parquet"]


def test_any_number_of_threads_gives_the_same_bytes(paper: Path, sample: Parts, tmp_path: Path) -> None:
    for threads in (1, 3):
        run_job(paper, sample[1].features, Labelwise(block=40), tmp_path / f"{threads}.parquet", threads)
    assert digests(tmp_path / "1.parquet") == digests(tmp_path / "3.parquet")


@pytest.mark.parametrize(("many", "labels"), [(1, 1 << 17), (1 << 30, 1 << 17), (1 << 30, 50)])
def test_the_answer_does_not_depend_on_the_cut(
    paper: Path, sample: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int, labels: int
) -> None:
    """Units of whole blocks; of trees; of subtrees: what inference in memory gives."""
    monkeypatch.setattr("core.labelwise_job.MANY_BLOCKS", many)
    monkeypatch.setattr("core.labelwise_job.UNIT_LABELS", labels)
    asked, seen = Labelwise(top=4, block=40), list[tuple[int, int]]()
    run_job(paper, sample[1].features, asked, tmp_path / "b.parquet", 2, on_progress=lambda *told: seen.append(told))
    expected = best_points(open_model(paper), sample[1].features, asked)
    matrix = sparse.csr_matrix(sparse.load_npz(tmp_path / "b.npz"))
    assert np.array_equal(matrix.toarray(), to_scipy(as_rows(expected, sample[1].n_points)).toarray())
    per_block = 1 if many == 1 else 2 + 2 + 1 if labels > 500 else 2 + 2 * 9 + 1
    assert seen[-1] == (len(seen), 4 * per_block)


def test_killed_at_any_moment_it_resumes_to_the_same_bytes(paper: Path, sample: Parts, tmp_path: Path) -> None:
    run_job(paper, sample[1].features, Labelwise(block=5), tmp_path / "whole.parquet", 2)
    out = tmp_path / "cut.parquet"
    command = [sys.executable, "-m", "training.cli", "labelwise", str(paper), str(SAMPLE), "--out", str(out)]
    command += ["--block", "5", "--threads", "2"]
    kills = 0
    for blocks in (0, 1, 8):
        process = subprocess.Popen([*command, *(["--resume"] if kills else [])], stderr=subprocess.DEVNULL)
        work = tmp_path / "cut.parquet.work"
        while process.poll() is None and not (work.exists() and len(list(work.glob("block*.npz"))) >= blocks):
            time.sleep(0.001)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 1
    if not out.exists():
        subprocess.run([*command, "--resume"], check=True, stderr=subprocess.DEVNULL)
    assert digests(out) == digests(tmp_path / "whole.parquet")


def test_unfinished_work_is_neither_lost_nor_mixed_up(
    paper: Path, sample: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, out, asked = sample[1].features, tmp_path / "best.parquet", Labelwise(block=50)

    def broken(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("core.labelwise_job._write_table", broken)
        with pytest.raises(KeyboardInterrupt):
            run_job(paper, points, asked, out, 1)
    (tmp_path / "best.npz").unlink()
    with pytest.raises(ResumeError, match="holds an unfinished run; go on with --resume"):
        run_job(paper, points, asked, out, 1)
    for other, factor in ((sample[0].features, 4.0), (points, 2.0)):
        with pytest.raises(ResumeError, match="belongs to a run with other data, options"):
            run_job(paper, other, Labelwise(factor=factor, block=50), out, 1, resume=True)
    with monkeypatch.context() as patch:
        patch.setattr("core.labelwise_job.reach", broken)
        patch.setattr("core.labelwise_job.finish", broken)
        run_job(paper, points, asked, out, 1, resume=True)
    assert out.exists()


def test_an_existing_file_is_not_overwritten(paper: Path, sample: Parts, tmp_path: Path) -> None:
    (tmp_path / "best.npz").touch()
    with pytest.raises(UsageError, match=r"best\.npz exists; remove it or choose another name"):
        run_job(paper, sample[1].features, Labelwise(), tmp_path / "best.parquet", 1)
    with pytest.raises(UsageError, match="the answer's file must end in"):
        run_job(paper, sample[1].features, Labelwise(), tmp_path / "best.csv", 1)
