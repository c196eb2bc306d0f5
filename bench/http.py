"""The service under load: `python bench/http.py [--quick] [--soak] [--releases DIR] [--json FILE]`.

The load generator (bench/load.py) has one core, the server the other. CPU per request is what the kernel says the
server's process took, over a fixed number of requests of a closed loop, in rounds that go from server to server; ratios
are medians of the rounds. `cpu_ratio_echo` = (CPU of /predict − time inside `Served.ask`) / CPU of the bare echo, where
the time inside (words, table, search, merge) is what the service itself says about each answer (Server-Timing; the
server has its core for itself, so this is CPU). Three other ways to count stand beside it: `…_loop` takes `Served.ask`
asked the same queries in a loop, whose code and data stay in the caches as they never do in a server; `…_marginal`
takes what an echo that also asks costs more than one that does not; `…_whole` is the key against an echo that writes
its answer in one piece, as the service does and uvicorn does not.
Saturation is the best of closed loops; p99 counts from when a request was due, in overload from its sending.

No answer is given from the cache (XREG_CACHE=0), so that every one is the engine's; only `throughput_ratio_fastapi` is
of mixed traffic with a cache, with `cache_hits` beside it, and `…_unseen` is the same without.

All loads are offered over 128 connections, used in turn. `overload_waited`: requests that found no free connection and
so were not offered in time; above 0.01 the load was not offered. `…_512` and `…_2048` are the same over so many
connections that ever less of one is in any cache when its next request comes. Saturation is looked for in closed loops
of up to 16 connections.
`others_cores`: how many cores other processes took meanwhile; above 0.1, times are not to be trusted.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Run as a script, this file's folder comes first on the path, and `http` would mean this file.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np
import uvloop
from rich.console import Console
from rich.table import Table

from bench.http_endurance import Jobs, Probes, Reloads, end_figures, job_figures, reload_figures, soak_figures
from bench.http_questions import Constant, Rig, make_rig, point_to
from bench.http_servers import ROOT, TOKEN, Server, cores, floor, free_port, serving, started, wait_for
from bench.load import REFUSED, RIGHT, Target, closed_loop, open_loop

Figures = dict[str, float]
MUST = {
    "cpu_ratio_echo": "≤ 2 (1.5)",
    "throughput_ratio_fastapi": "≥ 1.3 (2)",
    "p99_ms_half": "≤ 5 (2)",
    "overload_goodput": "≥ 0.9",
    "overload_p99_ratio": "≤ 3",
    "reload_failed": "0",
    "reload_mixed": "0",
    "reload_growth": "≤ 0.02",
    "sigterm_lost": "0",
    "ready_s": "≤ 5 (2)",
    "job_p99_ratio": "≤ 2",
    "soak_errors": "0",
    "soak_growth": "≤ 0.02",
}
_CONNECTIONS = 8  # of the closed loop that CPU is counted in
_TRIED = 4, 8, 16  # of those that look for saturation
_QUIET = 0.1  # cores of others below which times can be trusted
_MANY = 512, 2048  # connections over which overload is offered besides
_ANSWER = re.compile(rb"answer;dur=([0-9.]+)")
console = Console(width=120)


class Sizes(NamedTuple):
    """How much is asked."""

    rounds: int
    requests: int  # of a closed loop
    seconds: float  # of an open loop
    overload: float
    reloads: int
    ends: int
    starts: int
    soak: float


FULL = Sizes(rounds=7, requests=20_000, seconds=15, overload=30, reloads=50, ends=5, starts=5, soak=600)
QUICK = Sizes(rounds=3, requests=8_000, seconds=4, overload=5, reloads=12, ends=2, starts=2, soak=30)


def processor(rig: Rig, sizes: Sizes) -> Figures:
    """CPU and throughput of the service and of what it is measured against, in turns."""
    cpu, rate, answer = dict[str, list[float]](), dict[str, list[float]](), list[float]()
    with ExitStack() as stack:
        servers = {
            kind: stack.enter_context(floor(kind, rig.log.with_name(kind), rig.core, rig.release))
            for kind in ("raw", "echo", "whole", "ask", "fastapi")
        }
        targets = {kind: Target(server.port, rig.requests, Constant()) for kind, server in servers.items()}
        servers["predict"] = stack.enter_context(serving(rig.releases, rig.log, rig.core, cache="0"))
        targets["predict"] = rig.target(servers["predict"].port)
        log = rig.log.with_name("mixed")
        servers["mixed"] = stack.enter_context(serving(rig.releases, log, rig.core))
        for turn in range(-1, sizes.rounds):  # one to get warm
            targets["mixed"] = rig.mixed_target(servers["mixed"].port, sizes.requests, seed=turn + 1)
            for kind, target in targets.items():
                seconds, per_second = _closed(servers[kind], target, sizes.requests)
                if turn >= 0:
                    cpu.setdefault(kind, []).append(1e6 * seconds)
                    rate.setdefault(kind, []).append(per_second)
            if turn >= 0:
                answer.append(_said_to_take(targets["predict"], sizes.requests))
                cpu.setdefault("loop", []).append(1e6 * _asked_in_a_loop(rig))
        hits = _cache_hits(servers["mixed"])
    per = {kind: np.array(values) for kind, values in cpu.items()}
    figures = {f"{kind}_us": _median(values) for kind, values in per.items()}
    outside, fastapi = per["predict"] - np.array(answer), np.array(rate["fastapi"])
    return {
        "cpu_ratio_echo": _median(outside / per["echo"]),
        "cpu_ratio_echo_loop": _median((per["predict"] - per["loop"]) / per["echo"]),
        "cpu_ratio_echo_marginal": _median((per["predict"] - per["ask"] + per["echo"]) / per["echo"]),
        "cpu_ratio_echo_whole": _median(outside / per["whole"]),
        "throughput_ratio_fastapi": _median(np.array(rate["mixed"]) / fastapi),
        "throughput_ratio_fastapi_unseen": _median(np.array(rate["predict"]) / fastapi),
        "cache_hits": hits,
        "cpu_ratio_fastapi": _median(per["mixed"] / per["fastapi"]),
        "generator_rps": _median(np.array(rate["raw"])),
        "answer_us": _median(np.array(answer)),
        **figures,
    }


def _cache_hits(server: Server) -> float:
    """Share of the answers that came from the cache."""
    text = server.ask("GET", "/metrics")[2].decode()
    hits, misses = (
        float(re.search(rf'xreg_cache_total{{result="{result}"}} (\S+)', text)[1])  # type: ignore[index]
        for result in ("hit", "miss")
    )
    return hits / (hits + misses)


def _closed(server: Server, target: Target, requests: int) -> tuple[float, float]:
    """CPU seconds of a request, requests per second."""
    before = server.cpu
    outcome = uvloop.run(closed_loop(target, requests, _CONNECTIONS))
    if outcome.errors or outcome.count(REFUSED):
        raise SystemExit(f"of {requests} requests {outcome.errors} failed, {outcome.count(REFUSED)} were refused")
    return (server.cpu - before) / requests, outcome.goodput


def _said_to_take(target: Target, requests: int) -> float:
    """µs that the service says it needed to find an answer, the slowest hundredth left out."""
    seen = list[float]()

    def timed(question: int, status: int, head: bytes, body: bytes) -> int:
        if said := _ANSWER.search(head):
            seen.append(1e3 * float(said[1]))
        return target.judge(question, status, head, body)

    uvloop.run(closed_loop(target._replace(judge=timed), requests, _CONNECTIONS))
    return float(np.mean(sorted(seen)[: max(1, len(seen) * 99 // 100)])) if seen else float("nan")


def _asked_in_a_loop(rig: Rig) -> float:
    """CPU seconds of Served.ask."""
    command = [sys.executable, "-m", "bench.http_floors", "loop", "0", str(rig.release)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    os.sched_setaffinity(process.pid, {rig.core})
    said, _ = process.communicate(json.dumps(rig.queries).encode())
    return float(said) / len(rig.queries)


def _median(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.median(values))


def saturation(server: Server, rig: Rig, sizes: Sizes) -> float:
    """Right answers per second at most."""
    target = rig.target(server.port)
    return max(
        uvloop.run(closed_loop(target, sizes.requests, connections)).goodput for _ in range(2) for connections in _TRIED
    )


def latencies(server: Server, rig: Rig, peak: float, sizes: Sizes) -> Figures:
    """At half, at 70 % and at twice what the server can do."""
    target = rig.target(server.port)
    with others(server) as taken:
        half = uvloop.run(open_loop(target, 0.5 * peak, sizes.seconds))
        most = uvloop.run(open_loop(target, 0.7 * peak, sizes.seconds))
        before = rig.judge.degraded
        probes = Probes(server)
        over = uvloop.run(open_loop(target, 2 * peak, sizes.overload, meanwhile=probes.always))
        degraded = rig.judge.degraded - before
        time.sleep(1)  # for the end of so many connections
        colder = {}
        for connections in _MANY:
            colder[connections] = uvloop.run(open_loop(target, 2 * peak, sizes.seconds, connections))
            time.sleep(1)
        after = uvloop.run(open_loop(target, 0.5 * peak, sizes.seconds))
    return {
        "p50_ms_half": 1e3 * half.latency(50),
        "p99_ms_half": 1e3 * half.latency(99),
        "p99_ms_70": 1e3 * most.latency(99),
        "late_ms_half": 1e3 * half.late(99),  # of the generator: part of p99_ms_half
        "errors": sum(outcome.errors for outcome in (half, most, over, *colder.values(), after)),
        "refused_half": half.count(REFUSED) / len(half.verdict),
        "refused_70": most.count(REFUSED) / len(most.verdict),
        "overload_goodput": over.goodput / peak,
        "overload_p99_ms": 1e3 * over.latency(99, since_sent=True),
        "overload_p99_ratio": over.latency(99, since_sent=True) / most.latency(99, since_sent=True),
        "overload_degraded": degraded / max(1, over.count(RIGHT)),  # of the good ones, those of a narrowed beam
        "overload_probe_ms": 1e3 * max(probes.seconds, default=float("nan")),  # /health/live over a new connection
        "overload_shed": over.count(REFUSED) / len(over.verdict),
        "overload_waited": over.waited / len(over.verdict),  # above 0.01: the load was not offered
        **{f"overload_goodput_{n}": outcome.goodput / peak for n, outcome in colder.items()},
        **{f"overload_p99_ms_{n}": 1e3 * outcome.latency(99, since_sent=True) for n, outcome in colder.items()},
        "overload_refusals_rps": over.count(REFUSED) / sizes.overload,
        "after_p99_ms_half": 1e3 * after.latency(99),
        "others_cores": taken[0],
    }


def refusal(rig: Rig, sizes: Sizes) -> Figures:
    """CPU of a request that is refused: nearly all are where there is one place and many ask."""
    with serving(rig.releases, rig.log, rig.core, max_concurrency="1", cache="0") as server:
        uvloop.run(closed_loop(rig.target(server.port), sizes.requests, 128))
        before = server.cpu
        outcome = uvloop.run(closed_loop(rig.target(server.port), 2 * sizes.requests, 128))
        share = outcome.count(REFUSED) / len(outcome.verdict)
        return {"refusal_us": 1e6 * (server.cpu - before) / len(outcome.verdict), "refusal_share": share}


@contextmanager
def others(server: Server) -> Iterator[list[float]]:
    """Cores that neither the server nor this process used but somebody did."""
    taken = [0.0]
    start, before = time.perf_counter(), _busy() - server.cpu - time.process_time()
    yield taken
    taken[0] = (_busy() - server.cpu - time.process_time() - before) / (time.perf_counter() - start)


def _busy() -> float:
    """Seconds that all cores were busy since they were started."""
    user, nice, system, _idle, _io, irq, soft, steal = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, soft, steal))) / os.sysconf("SC_CLK_TCK")


def ready(rig: Rig, sizes: Sizes) -> Figures:
    """Process start to ready, kernels cached by those who started before."""
    seconds = list[float]()
    for _ in range(sizes.starts):
        port = free_port()
        command = ["service.command", "--releases", str(rig.releases), "--port", str(port)]
        start = time.perf_counter()
        with started(command, port, rig.log, rig.core, admin_token=TOKEN) as server:
            wait_for(server, "/health/ready")
            seconds.append(time.perf_counter() - start)
    return {"ready_s": _median(np.array(seconds))}


def measure(rig: Rig, sizes: Sizes, soak: bool) -> Iterator[Figures]:
    """All figures, part by part."""
    yield processor(rig, sizes)
    yield refusal(rig, sizes) | ready(rig, sizes)
    ads = rig.release / "catalogue" / "ads.parquet"
    with serving(rig.releases, rig.log, rig.core, cache="0") as server:
        peak = saturation(server, rig, sizes)
        yield {"saturation_rps": peak} | latencies(server, rig, peak, sizes)
        yield job_figures(Jobs(server, ads), rig.target(server.port), 0.5 * peak, sizes.seconds)
    yield reload_figures(rig, 0.5 * peak, sizes.reloads)
    yield end_figures(rig, 0.7 * peak, sizes.ends)
    if soak:
        point_to(rig.releases, rig.names[0])
        with serving(rig.releases, rig.log, rig.core, watch_seconds="0.5", cache="0") as server:
            swaps, jobs = Reloads(server, rig), Jobs(server, ads)
            yield soak_figures(rig.target(server.port), 0.7 * peak, sizes.soak, swaps, jobs)


def show(figures: Figures) -> None:
    table = Table("key", "seen", "must (aim)")
    for name in [*(key for key in MUST if key in figures), *(key for key in figures if key not in MUST)]:
        value = figures[name]
        table.add_row(name, f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}", MUST.get(name, ""))
    console.print(table)
    if figures["others_cores"] > _QUIET:
        console.print(
            f"Other processes took {figures['others_cores']:.2f} cores meanwhile: latencies, goodput, throughput and "
            "ready_s are theirs too. CPU per request, failures and memory hold."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter everything")
    parser.add_argument("--soak", action="store_true", help="also 10 minutes (--quick: 30 s) with reloads and a job")
    parser.add_argument("--releases", type=Path, default=ROOT / "demo" / "releases", help="default: the demo's")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if not (options.releases / "CURRENT").is_file():
        raise SystemExit(f"{options.releases}: no release; `make demo` makes the demo's")
    ours, theirs = cores()
    with tempfile.TemporaryDirectory(prefix="xreg-bench-") as directory:
        rig = make_rig(options.releases, Path(directory), theirs)
        os.sched_setaffinity(0, {ours})
        figures: Figures = {}
        for part in measure(rig, QUICK if options.quick else FULL, options.soak):
            figures |= part
            console.print("  ".join(f"{name} {part[name]:.3f}" for name in part if name in MUST))
            if options.json:  # so that what was measured is there whatever happens to the rest
                options.json.write_text(json.dumps(figures, indent=1) + "\n")
    show(figures)


if __name__ == "__main__":
    main()
