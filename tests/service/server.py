"""A real server in a process of its own, on a free port of this machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from core.releases import listing

TOKEN = "a token for tests"
_PATIENCE = 120.0  # kernels may have to be compiled first


class Running(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int
    http: httpx.Client
    log: Path

    def predict(self, **asked: Any) -> httpx.Response:
        return self.http.post("/predict", json=asked)

    def metric(self, name: str) -> float:
        """The value of a metric, with its labels as Prometheus writes them."""
        lines = self.http.get("/metrics").text.splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " ")), 0.0)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def serving(releases: Path, log: Path, until: str = "/health/ready", **settings: str) -> Iterator[Running]:
    """Handed over when the path `until` answers; ended with SIGTERM."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    variables = {
        f"XREG_{name.upper()}": value
        for name, value in {"admin_token": TOKEN, "drain_seconds": "0", **settings}.items()
    }
    command = [sys.executable, "-m", "service.command", "--releases", str(releases), "--port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stderr=out, env={**os.environ, **variables})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            eventually(lambda: _answers(process, http, until, log))
            yield Running(process, port, http, log)
    finally:
        process.terminate()
        process.wait(30)


def _answers(process: subprocess.Popen[bytes], http: httpx.Client, path: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return http.get(path).status_code == 200
    except httpx.TransportError:
        return False


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what must come; the limit is there for what never does."""
    until = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def copied(releases: Path, to: Path, served: int = 0) -> list[str]:
    """A copy of the releases that serves one of them; returns their names."""
    shutil.copytree(releases, to)
    names = listing(to)
    point_to(to, names[served])
    return names


def point_to(releases: Path, name: str) -> None:
    aside = releases / ".CURRENT.test"
    aside.write_text(f"{name}\n")
    aside.replace(releases / "CURRENT")
