"""Training, labelwise inference and ingest on a Ray cluster: the bytes of the local run, whatever dies on the way."""

from __future__ import annotations

import gzip
import hashlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.errors import DataError
from core.labelwise import Labelwise
from core.labelwise_job import run_job
from core.ray_executor import RayExecutor
from core.work import work_of
from tests.conftest import PARAMS, SAMPLE
from tests.ray_cluster import STORE, cluster
from tests.training.nightly import PLAN, terms
from training.dataset import Dataset
from training.fit import fit
from training.ingest.run import ingest
from training.release.refresh import refresh

Parts = tuple[Dataset, Dataset]
FILES = pytest.mark.parametrize("files", ["shared", "sent"])


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with cluster(nodes=2) as started:
        yield started


def digests(path: Path) -> dict[str, str]:
    """Of a file, of what lies beside it under the same name, or of all files of a directory."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.stem}.*")
    found = [file for file in files if file.is_file()]
    return {f.relative_to(path.parent).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in found}


def same(local: Path, there: Path) -> bool:
    found = digests(there)
    assert found
    return {name.partition(there.stem)[2]: d for name, d in found.items()} == {
        name.partition(local.stem)[2]: d for name, d in digests(local).items()
    }


def when(happens: Callable[[], bool], do: Callable[[], None]) -> threading.Thread:
    """Do something as soon as something else has happened."""

    def watch() -> None:
        while not happens():
            time.sleep(0.002)
        do()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@FILES
@pytest.mark.parametrize("name", ["paper", "two levels"])
def test_training_gives_the_bytes_of_the_local_run(
    nodes: Any, sample: Parts, tmp_path: Path, files: Any, name: str
) -> None:
    params = replace(PARAMS[name], recipe=replace(PARAMS[name].recipe, calibration="isotonic"))
    fit(sample[0], params, tmp_path / "local", 2)
    seen = list[tuple[int, int, int]]()
    with RayExecutor(nodes.address, files) as executor:
        fit(sample[0], params, tmp_path / "there", 1, False, lambda *told: seen.append(told), executor)
    assert same(tmp_path / "local", tmp_path / "there")
    assert [(done, total) for done, total, _ in seen if done == total] == [(seen[-1][1], seen[-1][1])] * 2
    assert not work_of(tmp_path / "there").exists()


@FILES
@pytest.mark.parametrize("recipe", ["paper", "routed"])
def test_labelwise_gives_the_bytes_of_the_local_run(
    nodes: Any,
    sample: Parts,
    tmp_path: Path,
    files: Any,
    recipe: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Locally one part per tree, there several."""
    model, asked = request.getfixturevalue(f"{recipe}_model"), Labelwise(top=4, block=64)
    run_job(model, sample[1].features, asked, tmp_path / "local.parquet", 2)
    monkeypatch.setattr("core.labelwise_job.UNIT_LABELS", 100)
    seen = list[tuple[int, int]]()
    with RayExecutor(nodes.address, files) as executor:
        out = tmp_path / "there.parquet"
        run_job(model, sample[1].features, asked, out, 1, False, lambda *told: seen.append(told), executor)
    assert same(tmp_path / "local.parquet", tmp_path / "there.parquet")
    assert seen[-1] == (len(seen), len(seen))
    assert len(seen) > 3 * (2 + 2 * 4)  # blocks × (trees + parts of all trees + 1)


@FILES
def test_ingest_gives_the_bytes_of_the_local_run(nodes: Any, market: Path, tmp_path: Path, files: Any) -> None:
    events, logs = pq.read_table(market / "events.parquet"), tmp_path / "logs"
    logs.mkdir()
    half = len(events) // 2
    pq.write_table(events.slice(0, half), logs / "a.parquet")
    pq.write_table(events.slice(half), logs / "b.parquet")
    ingest([logs], market / "ads.csv", tmp_path / "local", threads=2)
    with RayExecutor(nodes.address, files) as executor:
        ingest([logs], market / "ads.csv", tmp_path / "there", executor=executor)
    assert same(tmp_path / "local", tmp_path / "there")


def test_a_refusal_names_the_file_as_the_driver_knows_it(nodes: Any, market: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.csv.gz"
    whole = gzip.compress(b"query,ad_id\n" + b"boots,A1\n" * 50_000)
    log.write_bytes(whole[:-20])
    with RayExecutor(nodes.address, "sent") as executor, pytest.raises(DataError) as raised:
        ingest([log], market / "ads.csv", tmp_path / "clicks", executor=executor)
    assert f"{log}: not a complete gzip file" in str(raised.value)
    assert not (tmp_path / "clicks").exists()


def test_a_refresh_publishes_the_release_of_the_local_run(
    nodes: Any, night: Path, market: Path, tmp_path: Path
) -> None:
    with RayExecutor(nodes.address, "sent") as executor:
        name = refresh(market / "clicks", PLAN, replace(terms(tmp_path / "releases"), executor=executor))
    assert name == (night / "CURRENT").read_text().strip()  # which ends in a hash of all its files


@FILES
def test_a_node_killed_in_the_middle_changes_no_byte(nodes: Any, sample: Parts, tmp_path: Path, files: Any) -> None:
    params, work = PARAMS["paper"], tmp_path / "there.work"
    fit(sample[0], params, tmp_path / "local", 2)
    doomed, unfinished = nodes.add_node(num_cpus=1, object_store_memory=STORE), list[bool]()
    nodes.wait_for_nodes()

    def kill() -> None:
        nodes.remove_node(doomed, allow_graceful=False)
        unfinished.append(not (tmp_path / "there").exists())

    killer = when(lambda: len(list(work.glob("tree*-*.npz"))) >= 5, kill)
    with RayExecutor(nodes.address, files) as executor:
        fit(sample[0], params, tmp_path / "there", 1, executor=executor)
    killer.join()
    assert unfinished == [True]
    assert same(tmp_path / "local", tmp_path / "there")


def test_a_driver_killed_goes_on_from_finished_units_to_the_same_bytes(
    nodes: Any, sample: Parts, tmp_path: Path, paper_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, out = Labelwise(block=5), tmp_path / "there.parquet"
    run_job(paper_model, sample[1].features, asked, tmp_path / "local.parquet", 2)
    command = [sys.executable, "-m", "training.cli", "labelwise", str(paper_model), str(SAMPLE), "--out", str(out)]
    command += ["--block", "5", "--executor", "ray", "--ray-address", nodes.address]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(work_of(out).glob("block?.npz"))) < 3:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in work_of(out).glob("block?.npz")}
    assert len(finished) >= 3
    assert not out.exists()
    monkeypatch.setattr("core.labelwise_job.remove", lambda work: None)
    with RayExecutor(nodes.address) as executor:
        run_job(paper_model, sample[1].features, asked, out, 1, True, executor=executor)
    assert same(tmp_path / "local.parquet", out)
    assert finished == {path: path.stat().st_mtime_ns for path in finished}
