"""Servers under test, each a process pinned to a core of its own, and what Linux says about them.

CPU is the time that the process was on a core, in nanoseconds, children included (/proc/PID/task/*/schedstat).
Memory is looked at in two ways: what the process made itself (anonymous pages: heaps, caches, compiled kernels), and
all that is resident, which also counts the mapped release. A leak of Python objects shows in the first, a mapping that
is never given back in the second.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "a token for the benchmark"
_PATIENCE = 120.0


def cores() -> tuple[int, int]:
    """Where the load generator runs, and where the server does."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise SystemExit("two cores are needed: one for the load, one for the server")
    return allowed[0], allowed[1]


class Memory(NamedTuple):
    """MB of a process."""

    own: float
    resident: float


class Server(NamedTuple):
    """A process that listens."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return sum(_cpu(pid) for pid in _family(self.process.pid))

    @property
    def memory(self) -> Memory:
        own = resident = 0.0
        for pid in _family(self.process.pid):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, value = line.partition(":")
                own += int(value.split()[0]) / 1024 if name == "Anonymous" else 0
                resident += int(value.split()[0]) / 1024 if name == "Rss" else 0
        return Memory(own, resident)

    @property
    def maps(self) -> str:
        return Path(f"/proc/{self.process.pid}/maps").read_text()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], Any]:
        """A call beside the load: status, headers, body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, _decoded(answer.read())
        except HTTPError as error:
            with error:
                return error.code, {k.lower(): v for k, v in error.headers.items()}, _decoded(error.read())

    def events(self) -> list[dict[str, Any]]:
        """What the service logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body


def _family(pid: int) -> list[int]:
    """A process and those it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _family(int(child))
    return found


def _cpu(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def started(command: list[str], port: int, log: Path, core: int, **settings: str) -> Iterator[Server]:
    """A process on a core, handed over at once; ended with SIGTERM."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XREG_")}
    if cache := os.environ.get("XREG_KERNEL_CACHE"):
        environment["XREG_KERNEL_CACHE"] = cache
    environment |= {f"XREG_{name.upper()}": value for name, value in settings.items()}
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stdout=out, stderr=out, env=environment)
    os.sched_setaffinity(process.pid, {core})  # threads and children take it over
    try:
        yield Server(process, port, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def serving(releases: Path, log: Path, core: int, **settings: str) -> Iterator[Server]:
    """The service, ready."""
    port = free_port()
    command = ["service.command", "--releases", str(releases.resolve()), "--port", str(port)]
    with started(command, port, log, core, admin_token=TOKEN, **settings) as server:
        wait_for(server, "/health/ready")
        yield server


@contextmanager
def floor(kind: str, log: Path, core: int, release: Path) -> Iterator[Server]:
    """One of bench/http_floors.py, listening."""
    port = free_port()
    command = ["bench.http_floors", kind, str(port), str(release.resolve())]
    with started(command, port, log, core) as server:
        wait_for(server, None)
        yield server


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(server: Server, path: str | None) -> float:
    """Seconds until the path is answered with 200, or, without one, until somebody listens."""
    start = time.perf_counter()
    while time.perf_counter() - start < _PATIENCE:
        if server.process.poll() is not None:
            raise SystemExit(f"the server ended:\n{server.log.read_text()}")
        try:
            if path is None:
                socket.create_connection(("127.0.0.1", server.port), 5).close()
                return time.perf_counter() - start
            if server.ask("GET", path)[0] == 200:
                return time.perf_counter() - start
        except OSError:
            pass
        time.sleep(0.005)
    raise SystemExit(f"the server did not get ready:\n{server.log.read_text()}")
