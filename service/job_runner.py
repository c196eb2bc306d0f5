"""Who runs the jobs: one worker of all, one job at a time, in a process of its own that yields to everything else.

The process is `xreg refresh --table-only`: it works in steps that are whole or not there, so a job goes on from its
last finished unit, whoever was killed: the process, the worker, the machine. The lock is the operating system's: where
the worker that runs jobs dies, another takes over. A run that has published its release is not made again.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from core.errors import ReleaseError, ResumeError
from service.jobs import Jobs, Work
from service.problems import cause_of
from service.processes import Process
from service.settings import Settings
from service.telemetry import Telemetry

_LOOK = 0.5  # seconds between looks at the jobs, at wishes to cancel, and between notes of progress
_PATIENCE = 10.0  # seconds that a process has to end
_CRASHES = 3  # times that a job's process may die before the job has failed
_WAITS = (ResumeError.exit_code, ReleaseError.exit_code)  # somebody else works or publishes: later, perhaps
_TRIES = 60


class JobRunner:
    """Runs what waits, for as long as it is not cancelled."""

    def __init__(self, settings: Settings, jobs: Jobs, telemetry: Telemetry) -> None:
        self._settings, self._jobs, self._telemetry = settings, jobs, telemetry

    async def run(self) -> None:
        """One runner per directory, in whichever worker holds the lock."""
        while True:
            if self._jobs.directory.is_dir():
                with _locked(self._jobs.directory) as ours:
                    if ours:
                        await self._work()
            await asyncio.sleep(_LOOK)

    async def _work(self) -> None:
        await self._jobs.on_thread(self._jobs.tidy)
        while True:
            work = await self._jobs.on_thread(self._jobs.next)
            if work is None:
                await asyncio.sleep(_LOOK)
                continue
            try:
                await self._finish(work)
            except (sqlite3.Error, OSError):  # of the jobs' own disk: whoever keeps this running tries again
                raise
            except Exception as error:  # of this job: the next must not wait for it
                await self._ended(work, "failed", detail=cause_of(error))
            await self._jobs.on_thread(self._jobs.tidy)

    async def _finish(self, work: Work) -> None:
        """Run a job to its end: try again while others are in the way, and a few times after crashes."""
        await _end_orphan(work)
        crashes = work.crashes
        for _ in range(_TRIES):
            if await self._jobs.on_thread(self._jobs.is_cancelled, work.id):
                await self._ended(work, "cancelled")
                return
            code, release, said = await self._process(work)
            if code == 0:
                await self._ended(work, "succeeded", release=release)
                return
            if code < 0 and not await self._jobs.on_thread(self._jobs.is_cancelled, work.id):
                crashes += 1
                await self._note(work, crashes=crashes, detail=f"its process died ({signal.Signals(-code).name})")
            if crashes >= _CRASHES or (code > 0 and code not in _WAITS):
                await self._ended(work, "failed", detail=said or f"its process ended with {code}")
                return
            await asyncio.sleep(2 * _LOOK)
        await self._ended(work, "failed", detail=said)

    async def _process(self, work: Work) -> tuple[int, str | None, str | None]:
        """Exit code, the release that was published, and the cause that was given."""
        process = await Process.start(self._command(work))
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))  # requests come first
        self._telemetry.log("job runs", job=work.id, pid=process.pid)
        await self._note(work, pid=process.pid)
        watching = asyncio.create_task(self._watch_cancelled(work, process))
        try:
            said = await self._progress(work, process)
            out = (await process.out.read()).decode("utf-8", "replace").strip()
            return await process.wait(), out.splitlines()[0] if out else None, said
        finally:
            watching.cancel()
            await process.stop()

    def _command(self, work: Work) -> list[str]:
        words = ["--table-only", "--ads", str(work.path), "--releases", str(self._settings.releases)]
        words += ["--threads", str(self._settings.job_threads), "--run", work.id, "--progress", "json"]
        return [sys.executable, "-m", "training.cli", "refresh", *words, *(["--add"] if work.mode == "add" else [])]

    async def _progress(self, work: Work, process: Process) -> str | None:
        """Note what the process says about its steps; returns the last other thing it says, which is the cause."""
        said, noted = None, 0.0
        async for raw in process.err:
            line = raw.decode("utf-8", "replace").strip()
            step = _step(line)
            if step is None:
                said = line.removeprefix("error: ")[:2000] or said
            elif monotonic() - noted > _LOOK:
                noted = monotonic()
                await self._note(work, step=step["step"], progress=_share(step))
        return said

    async def _watch_cancelled(self, work: Work, process: Process) -> None:
        while not await self._jobs.on_thread(self._jobs.is_cancelled, work.id):
            await asyncio.sleep(_LOOK)
        await process.stop()

    async def _note(self, work: Work, **fields: Any) -> None:
        await self._jobs.on_thread(self._jobs.note, work.id, **fields)

    async def _ended(self, work: Work, state: Any, **fields: Any) -> None:
        await self._jobs.on_thread(self._jobs.end, work.id, state, **fields)
        self._telemetry.log(f"job {state}", job=work.id, **fields)


def _step(line: str) -> dict[str, Any] | None:
    """A line of progress, or None."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.keys() == {"step", "done", "total"} else None


def _share(step: dict[str, Any]) -> float:
    """Filling the table takes nearly all of the time; what comes after it is the rest."""
    if step["step"] == "publishing":
        return 0.95
    return round(0.9 * step["done"] / step["total"], 4) if step["total"] else 0.0


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Whether nobody else runs the jobs of the directory."""
    with (directory / "runner.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


async def _end_orphan(work: Work) -> None:
    """The process of a worker that died may still be there: end it, and go on from what it has finished."""
    if work.pid is None or not _is_process_of(work):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(work.pid, number)
        until = monotonic() + _PATIENCE
        while _is_process_of(work) and monotonic() < until:
            await asyncio.sleep(0.05)


def _is_process_of(work: Work) -> bool:
    try:
        return work.id.encode() in Path(f"/proc/{work.pid}/cmdline").read_bytes()
    except OSError:
        return False
