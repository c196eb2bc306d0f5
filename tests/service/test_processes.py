"""Processes beside a worker: what they say is heard, how they end is known, and they do not outlive their use."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
import uvloop

from service import processes
from service.processes import Process

_SLEEPING = "print('up', flush=True); import time; time.sleep(60)"
_STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + _SLEEPING
_OPEN = Path("/proc/self/fd")


async def _python(code: str) -> Process:
    return await Process.start([sys.executable, "-c", code])


@pytest.mark.parametrize(
    ("code", "out", "ended"),
    [
        ("print('a' * 300_000)", b"a" * 300_000 + b"\n", 0),  # more than a pipe holds
        ("raise SystemExit(7)", b"", 7),
        ("import os; os.kill(os.getpid(), 9)", b"", -signal.SIGKILL),
    ],
)
def test_what_a_process_says_and_how_it_ends_is_known_to_all_who_wait(code: str, out: bytes, ended: int) -> None:
    async def run() -> None:
        process = await _python(code)
        said, _, *codes = await asyncio.gather(
            process.out.read(), process.err.read(), *(process.wait() for _ in range(3))
        )
        assert said == out
        assert codes == [ended] * 3
        await process.stop()
        assert await process.wait() == ended

    uvloop.run(run())


@pytest.mark.parametrize(
    ("code", "ended"),
    [(_SLEEPING, -signal.SIGTERM), (_STUBBORN, -signal.SIGKILL)],
)
def test_a_process_is_asked_to_end_and_then_made_to(code: str, ended: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PATIENCE", 0.5)

    async def run() -> None:
        process = await _python(code)
        assert await process.out.readline() == b"up\n"
        await process.stop()
        assert await process.wait() == ended
        assert not Path(f"/proc/{process.pid}").exists()  # nor is it left to be buried

    uvloop.run(run())


def test_a_process_that_has_ended_leaves_nothing_open() -> None:
    async def one() -> int:
        process = await _python("pass")
        await process.wait()
        await process.stop()
        await asyncio.sleep(0.05)  # for the event loop to close what it was told to
        return len(list(_OPEN.iterdir()))

    async def run() -> None:
        first = await one()  # the event loop opens something of its own for the first
        assert [await one() for _ in range(3)] == [first] * 3

    uvloop.run(run())
