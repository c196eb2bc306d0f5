"""Processes as a container runs them: another user, no home, nothing of ours writable but one directory for TMPDIR."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.server import eventually

NOBODY = 65534


@cache
def as_another() -> list[str]:
    """What to put before a command. Who is not root cannot become another; for such a user modes alone are a seal.

    Where Python or the checkout lies in a home that is closed to others, the other user gets the one capability to read
    everything: what counts here is what may be written."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed: it comes with Debian's package util-linux")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
    for sets in ("-all", "-all,+dac_read_search"):
        command = [*user, *(f"--{name}={sets}" for name in ("inh-caps", "ambient-caps", "bounding-set"))]
        if _can_start(command):
            return command
    pytest.skip(f"another user cannot read {sys.executable} or this checkout")


def _can_start(command: list[str]) -> bool:
    """Our programs, and from them others."""
    start = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import service.command'], check=True)"
    probe = [*command, sys.executable, "-c", start]
    environment = variables(Path("/none"))
    return subprocess.run(probe, cwd="/", env=environment, capture_output=True, check=False).returncode == 0


def variables(kernels: Path, **more: str) -> dict[str, str]:
    """No HOME, nothing of the caller's but the path."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "XREG_KERNEL_CACHE": str(kernels),
        **{name: value for name, value in os.environ.items() if name.startswith("NUMBA_")},
        **more,
    }


def seal(path: Path) -> None:
    """For all to read, for nobody to write."""
    for part in [path, *path.rglob("*")]:
        part.chmod(0o555 if part.is_dir() else 0o444)


def unseal(path: Path) -> None:
    """So that its owner can remove it."""
    for part in [path, *path.rglob("*")]:
        if part.is_dir():
            part.chmod(0o755)


@contextmanager
def sealed_service(releases: Path, kernels: Path, writable: Path, **settings: str) -> Iterator[httpx.Client]:
    """A service that is ready; ended with SIGTERM."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [*as_another(), sys.executable, "-m", "service.command", "--releases", str(releases), "--port", str(port)]
    more = {f"XREG_{name.upper()}": value for name, value in settings.items()}
    with (writable.parent / "log").open("wb") as log:
        environment = variables(kernels, TMPDIR=str(writable), **more)
        process = subprocess.Popen(command, cwd="/", stderr=log, env=environment)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            eventually(lambda: _ready(process, http))
            yield http
    finally:
        process.terminate()
        assert process.wait(60) == 0


def _ready(process: subprocess.Popen[bytes], http: httpx.Client) -> bool:
    assert process.poll() is None
    try:
        return http.get("/health/ready").status_code == 200
    except httpx.TransportError:
        return False


def events(writable: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (writable.parent / "log").read_text().splitlines()]
