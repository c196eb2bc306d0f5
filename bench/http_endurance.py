"""What happens to requests while the service changes: reloads, its end, a job beside it, a long time."""

from __future__ import annotations

import asyncio
import signal
from itertools import cycle
from pathlib import Path
from time import monotonic

import numpy as np
import pyarrow.parquet as pq
import uvloop

from bench.http_questions import Rig, point_to
from bench.http_servers import Memory, Server, serving
from bench.load import LOST, MIXED, PENDING, REFUSED, UNREAD, Outcome, Run, Target, open_loop
from core.errors import ReleaseError
from core.releases import current

_PATIENCE = 60.0


class Reloads:
    """Swaps between releases while a load runs, and looks at the memory after every swap."""

    def __init__(self, server: Server, rig: Rig) -> None:
        self._server, self._rig, self._names = server, rig, cycle(rig.names)
        next(self._names)  # the first is being served
        self.memory = list[Memory]()

    async def swap(self, run: Run) -> None:
        """Point to the other release, and wait until it answers."""
        name, until = next(self._names), monotonic() + _PATIENCE
        while self._rig.judge.release != name.encode() and not run.over:
            if not self._is_current(name):  # or a job has published meanwhile
                point_to(self._rig.releases, name)
            if monotonic() > until:
                raise SystemExit(f"{name} was not loaded:\n{self._server.log.read_text()[-2000:]}")
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        self.memory.append(self._server.memory)

    def _is_current(self, name: str) -> bool:
        try:
            return current(self._rig.releases) == name
        except ReleaseError:  # tidied away after all
            return False

    def growth(self, skip: int) -> dict[str, float]:
        """Share by which memory grew after the first `skip` swaps: a line laid through what was seen."""
        seen = np.array(self.memory[skip:])
        if len(seen) < 3:
            return {"own": float("nan"), "resident": float("nan")}
        at = np.arange(len(seen))
        grown = {}
        for column, name in enumerate(Memory._fields):
            slope, start = np.polyfit(at, seen[:, column], 1)
            grown[name] = float(slope * at[-1] / start)
        return grown


def reloads(target: Target, rate: float, swaps: Reloads, count: int) -> Outcome:
    """So many swaps under load."""

    async def swapping(run: Run) -> None:
        for _ in range(count):
            await swaps.swap(run)
        run.stop()

    return uvloop.run(open_loop(target, rate, count * 4.0, meanwhile=swapping))


def reload_figures(rig: Rig, rate: float, count: int) -> dict[str, float]:
    """`count` reloads under load."""
    with serving(rig.releases, rig.log, rig.core, watch_seconds="0.05", cache="0") as server:
        swaps = Reloads(server, rig)
        outcome = reloads(rig.target(server.port), rate, swaps, count)
        mapped = sum(f"/{name}/" in server.maps for name in rig.names)
    grown = swaps.growth(skip=min(10, count // 3))
    return {
        "reload_failed": outcome.errors - outcome.count(MIXED),
        "reload_mixed": outcome.count(MIXED),
        "reload_growth": max(grown.values()),
        "reload_growth_own": grown["own"],
        "reload_growth_resident": grown["resident"],
        "reload_own_mb": swaps.memory[-1].own,
        "reload_mapped": mapped,
        "reload_count": len(swaps.memory),
        "reload_requests": len(outcome.verdict),
        "reload_refused": outcome.count(REFUSED),
        "reload_p99_ms": 1e3 * outcome.latency(99),
    }


def end_figures(rig: Rig, rate: float, trials: int) -> dict[str, float]:
    """SIGTERM under load: what was read and never answered."""
    lost = unread = answered = failed = 0
    for seed in range(trials):
        point_to(rig.releases, rig.names[0])
        with serving(rig.releases, rig.log, rig.core, cache="0") as server:

            async def ending(run: Run, server: Server = server) -> None:
                await asyncio.sleep(1.0)
                server.process.send_signal(signal.SIGTERM)

            outcome = uvloop.run(open_loop(rig.target(server.port), rate, 30.0, 64, ending, seed))
            failed += server.process.wait(40) != 0
        lost += outcome.count(LOST) + outcome.count(PENDING)
        unread += outcome.count(UNREAD)
        answered += len(outcome.verdict) - outcome.errors
    return {
        "sigterm_lost": lost,
        "sigterm_unread": unread,  # never read by the service: may be sent again elsewhere
        "sigterm_answered": answered,
        "sigterm_bad_exits": failed,
    }


class Probes:
    """/health/live over new connections, as an orchestrator asks it: how long each took."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        self.seconds = list[float]()

    async def always(self, run: Run) -> None:
        while not run.over:
            start = monotonic()
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if not (await reader.read()).startswith(b"HTTP/1.1 200"):
                raise SystemExit("the service is not live")
            self.seconds.append(monotonic() - start)
            writer.close()
            await asyncio.sleep(0.25)


class Jobs:
    """Labelwise jobs, one after the other."""

    def __init__(self, server: Server, ads: Path) -> None:
        self._server, self._ads = server, ads
        self.started = 0

    @property
    def there(self) -> bool:
        return "/labelwise" in self._server.ask("GET", "/openapi.json")[2]["paths"]

    def start(self) -> str:
        """A job over the release's own ads; returns where it is looked at."""
        columns = pq.read_table(self._ads, columns=["ad_id", "title", "text"]).to_pylist()
        status, headers, body = self._server.ask("POST", "/labelwise", {"ads": columns})
        if status != 202:
            raise SystemExit(f"POST /labelwise was answered with {status}: {body}")
        self.started += 1
        return headers["location"]

    def runs(self, location: str) -> bool:
        return self._server.ask("GET", location)[2]["state"] in ("queued", "running")

    async def always(self, run: Run) -> None:
        """One job after the other until the load ends."""
        location = await asyncio.to_thread(self.start)
        while not run.over:
            await asyncio.sleep(0.2)
            if not await asyncio.to_thread(self.runs, location):
                location = await asyncio.to_thread(self.start)


def job_figures(jobs: Jobs, target: Target, rate: float, seconds: float) -> dict[str, float]:
    """p99 while a job runs against without."""
    if not jobs.there:
        return {}
    before = uvloop.run(open_loop(target, rate, seconds))
    during = uvloop.run(open_loop(target, rate, seconds, meanwhile=jobs.always))
    return {
        "job_p99_ratio": during.latency(99) / before.latency(99),
        "job_p99_ms": 1e3 * during.latency(99),
        "job_errors": during.errors,
        "jobs": jobs.started,
    }


def soak_figures(target: Target, rate: float, seconds: float, swaps: Reloads, jobs: Jobs) -> dict[str, float]:
    """A long time at a steady load, with reloads and jobs."""

    async def meanwhile(run: Run) -> None:
        busy = [_swapping(swaps, run, seconds / 60)]
        if jobs.there:
            busy.append(jobs.always(run))
        await asyncio.gather(*busy)

    outcome = uvloop.run(open_loop(target, rate, seconds, meanwhile=meanwhile))
    grown = swaps.growth(skip=len(swaps.memory) // 5)
    return {
        "soak_s": seconds,
        "soak_requests": len(outcome.verdict),
        "soak_errors": outcome.errors,
        "soak_refused": outcome.count(REFUSED),
        "soak_growth": max(grown.values()),
        "soak_reloads": len(swaps.memory),
        "soak_jobs": jobs.started,
        "soak_p99_ms": 1e3 * outcome.latency(99),
    }


async def _swapping(swaps: Reloads, run: Run, pause: float) -> None:
    while not run.over:
        await swaps.swap(run)
        await asyncio.sleep(pause)
