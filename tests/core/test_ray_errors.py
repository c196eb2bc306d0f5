"""A cluster that cannot be used is told within seconds, with its cause; without Ray everything else works."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import ClusterError, UsageError
from core.ray_executor import RayExecutor
from tests.conftest import SAMPLE
from tests.ray_cluster import STORE, cluster


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with cluster(nodes=1) as started:
        yield started


def refused(address: str | None) -> str:
    with pytest.raises((ClusterError, UsageError)) as raised, RayExecutor(address):
        pass
    return str(raised.value)


def train(address: str, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """From another directory, since workers look for modules where the driver was started."""
    command = [sys.executable, *more, "-m", "training.cli", "train", str(SAMPLE), "--out", str(out)]
    return subprocess.run(
        [*command, "--executor", "ray", "--ray-address", address], capture_output=True, text=True, cwd=out.parent
    )


def test_ray_is_imported_only_where_it_is_asked_for() -> None:
    code = (
        "import sys, training.cli, core.labelwise_job, training.fit, training.ingest.run; print('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refused("127.0.0.1:6379") == "the executor `ray` needs the package Ray: pip install 'xreg[ray]'"


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:", ":6379", "http://127.0.0.1:6379"])
def test_an_address_that_cannot_be_is_refused(address: str) -> None:
    assert refused(address) == f"--ray-address must be host:port or ray://host:port, got {address}"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_told_at_once(scheme: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert f"there is no Ray cluster at {address}: " in refused(f"{scheme}{address}")


def test_an_address_of_another_kind_of_server_is_told_at_once() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert "is no Ray cluster" in refused(f"127.0.0.1:{server.server_port}")
        server.shutdown()


def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ray_executor._PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in refused(f"127.0.0.1:{silent.getsockname()[1]}")


def test_no_cluster_on_this_machine_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert "start one with `ray start --head`, or say where it is with --ray-address" in refused(None)


def test_another_version_of_ray_is_told(nodes: Any, tmp_path: Path) -> None:
    code = "import ray, runpy; ray.__version__ = '2.1.0'; runpy.run_module('training.cli', run_name='__main__')"
    command = [sys.executable, "-c", code, "train", str(SAMPLE), "--out", str(tmp_path / "m"), "--executor", "ray"]
    ran = subprocess.run([*command, "--ray-address", nodes.address], capture_output=True, text=True)
    assert ran.returncode == ClusterError.exit_code
    assert f"error: the Ray cluster at {nodes.address} is of another version: Version mismatch" in ran.stderr
    assert "Ray: 2.1.0" in ran.stderr
    assert not list(tmp_path.glob("m*"))


def test_a_machine_with_another_cpu_is_told(nodes: Any) -> None:
    """Its kernels may round differently."""
    other = nodes.add_node(num_cpus=1, object_store_memory=STORE, env_vars={"NUMBA_CPU_NAME": "x86-64-v2"})
    nodes.wait_for_nodes()
    try:
        told = refused(nodes.address)
        assert "is another than the driver: cpu x86-64-v2" in told
        assert "set NUMBA_CPU_NAME and NUMBA_CPU_FEATURES to the same" in told
    finally:
        nodes.remove_node(other)


@pytest.fixture
def bare_node(nodes: Any, tmp_path: Path) -> Iterator[None]:
    """A node whose Python has Ray and all else, but not xreg: site-packages on the path, without its .pth files."""
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    inside = next(bare.glob("lib/python*/site-packages"))
    (inside / "others.pth").write_text(sysconfig.get_path("purelib"))
    python = str(bare / "bin" / "python")
    assert subprocess.run([python, "-c", "import core"], cwd=tmp_path, capture_output=True).returncode == 1
    start = ["-m", "ray.scripts.scripts", "start", f"--address={nodes.address}", "--num-cpus=1", "--block"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        [python, *start, f"--object-store-memory={STORE}"], cwd=tmp_path, start_new_session=True, **quiet
    )
    yield
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def test_a_worker_without_the_package_is_told(nodes: Any, bare_node: None, tmp_path: Path) -> None:
    """Whether it is there from the beginning or joins later."""
    out, deadline = tmp_path / "out", time.monotonic() + 60
    ran = train(nodes.address, out, "-P")
    while ran.returncode == 0 and time.monotonic() < deadline:  # the node has not joined yet
        shutil.rmtree(out)
        ran = train(nodes.address, out, "-P")
    assert ran.returncode == ClusterError.exit_code
    assert "cannot import xreg (No module named 'core'): install xreg" in ran.stderr
    assert not out.exists()
