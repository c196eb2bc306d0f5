"""Past one machine: `python bench/cluster.py [--quick] [--json FILE]`, with the extra `ray` installed.

Made-up data; training and labelwise inference on Ray nodes of one CPU each, all on this machine. Ratios within one run
are what to trust; two nodes need two idle cores.

    nodes2_labelwise, nodes2_training   wall time on two nodes / on one, the same units
    ray_overhead                        CPU of driver, workers and Ray itself on one node / of the local executor
    sent                                the same three where nodes see nothing of each other's files: inputs are sent,
                                        results come back, as between machines
    killed_lost, killed_diff            a node is killed half-way: finished units run again; bytes that differ
    worker_memory_ratio                 peak of a worker / peak of a local run on one thread, the worse of both ways
    compile_ratio                       CPU spent on compiling by two workers that begin together / by one
    units                               CPU of every kind of unit, which bench/cluster_plan.py scales up

--quick: a tenth of the work; the jobs are then short, and the overhead mostly that of starting workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

# Run as a script, this file's folder comes first on the path, and `training` would mean bench/training.py.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from ray.cluster_utils import Cluster
from rich.console import Console
from rich.table import Table

from core.executors import After, Executor, LocalExecutor, Tell, Unit
from core.labelwise import Labelwise
from core.labelwise_job import run_job
from core.ray_executor import Files, RayExecutor
from training.dataset import Dataset, read_dataset, write_dataset
from training.fit import begin, finish
from training.params import ROUTED, Params
from training.synth import make_points, make_world

console = Console(width=120)
STORE = 2**30  # the inputs fit below four fifths of it: nothing is spilled to disk


@dataclass(frozen=True)
class Size:
    """Of the made-up data."""

    labels: int
    features: int
    training: int
    points: int
    block: int


FULL = Size(labels=60_000, features=60_000, training=120_000, points=1_000_000, block=1 << 16)
QUICK = Size(labels=20_000, features=20_000, training=40_000, points=200_000, block=1 << 14)
TINY = Size(labels=600, features=900, training=900, points=900, block=100)
PARAMS = Params(replace(ROUTED, calibration="none"), trees=3)


class Noted:
    """An executor that notes what another one runs."""

    def __init__(self, inner: Executor) -> None:
        self.inner, self.remote, self.finished, self.seconds = inner, inner.remote, Counter[str](), 0.0

    def run(self, units: Iterable[Unit], after: After, tell: Tell) -> None:
        def then(unit: Unit, fresh: bool) -> Iterable[Unit]:
            self.finished[unit.makes.name] += 1
            return after(unit, fresh)

        start = time.perf_counter()
        self.inner.run(units, then, tell)
        self.seconds += time.perf_counter() - start


class Timed:
    """Units one after the other, the CPU of each kind added up."""

    remote = False

    def __init__(self) -> None:
        self.cpu, self.count, self.bytes = defaultdict[str, float](float), Counter[str](), Counter[str]()
        self.real = dict[Path, Callable[..., None]]()

    def run(self, units: Iterable[Unit], after: After, tell: Tell) -> None:
        def then(unit: Unit, fresh: bool) -> Iterable[Unit]:
            original = unit._replace(do=self.real[unit.makes])
            self.bytes[kind_of(original)] += unit.makes.stat().st_size
            return [self._timed(each) for each in after(original, fresh)]

        LocalExecutor(1).run([self._timed(unit) for unit in units], then, tell)

    def _timed(self, unit: Unit) -> Unit:
        real, kind = unit.do, kind_of(unit)
        self.real[unit.makes] = real

        def do(*args: Any) -> None:
            start = time.thread_time()
            real(*args)
            self.cpu[kind] += time.thread_time() - start
            self.count[kind] += 1

        return unit._replace(do=do)


def kind_of(unit: Unit) -> str:
    """What is called, and its rank: in training the stage."""
    return f"{unit.do.__name__}{unit.rank}"


class Jobs:
    """The two jobs on the same data."""

    def __init__(self, directory: Path, size: Size) -> None:
        self.directory, self.size, self.number = directory, size, 1000 * os.getpid()
        self.data, self.points = directory / "data", directory / "points"
        if not self.data.exists():
            directory.mkdir(exist_ok=True)
            world = make_world(size.labels, size.features, seed=0)
            for path, n, seed in ((self.data, size.training, 0), (self.points, size.points, 9)):
                path.mkdir()
                write_dataset(path, "train", make_points(world, n, 45, seed))
        self.model = directory / "model"
        self.asked = Labelwise(block=size.block)

    def train(self, executor: Executor, out: Path | None = None) -> Path:
        """Begin, unmeasured, and finish."""
        self.number += 1
        out = out or self.directory / f"model{self.number}"
        begin(read_dataset(self.data, "train"), PARAMS, out)
        finish(out, 1, executor=executor)
        return out

    def labelwise(self, executor: Executor) -> Path:
        self.number += 1
        out = self.directory / f"best{self.number}.parquet"
        run_job(self.model, self.rows.features, self.asked, out, 1, executor=executor)
        return out

    @property
    def rows(self) -> Dataset:
        return read_dataset(self.points, "train")


@contextmanager
def nodes(count: int, cpus: int = 1, **variables: str) -> Iterator[Any]:
    """A cluster whose head has no CPUs, and an executor on it; workers are there when the block begins."""
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=cpus, object_store_memory=STORE, env_vars=variables)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


def processes() -> dict[int, list[str]]:
    """/proc/PID/stat of this process and all below it."""
    stats = dict[int, list[str]]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        stats[int(path.parent.name)] = text[text.rindex(")") + 2 :].split()
    mine = {os.getpid()}
    while more := {pid for pid, stat in stats.items() if int(stat[1]) in mine} - mine:
        mine |= more
    return {pid: stats[pid] for pid in mine}


def cpu_of_all() -> float:
    """CPU seconds of this process and all below it, those that ended included."""
    ticks = sum(sum(map(int, stat[11:15])) for stat in processes().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def peak(pid: int | str) -> float:
    """The most memory a process had, in MB."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) / 1e3 for line in text.splitlines() if line.startswith("VmHWM")), 0.0)


def peak_of_workers() -> float:
    def is_worker(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::")
        except OSError:
            return False

    return max(peak(pid) for pid in processes() if is_worker(pid))


def run_local(jobs: Jobs, name: str) -> dict[str, Any]:
    """One thread, in this process: wall time, CPU, peak, what every kind of unit took, and where the result lies."""
    timed, start, cpu = Timed(), time.perf_counter(), time.process_time()
    out = jobs.train(timed, jobs.model) if name == "training" else jobs.labelwise(timed)
    took = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu, "peak": peak("self")}
    kinds = {k: {"count": timed.count[k], "cpu": timed.cpu[k], "bytes": timed.bytes[k]} for k in timed.cpu}
    return {**took, "units": kinds, "out": str(out)}


def local(directory: Path, name: str, quick: bool) -> dict[str, Any]:
    """The same in a process of its own, whose peak is that of the job."""
    command = [sys.executable, __file__, "--local", name, "--directory", str(directory)]
    done = subprocess.run([*command, *(["--quick"] if quick else [])], stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def different_bytes(one: Path, other: Path) -> int:
    """Bytes in which two directories or two answers differ."""
    if one.is_dir():
        pairs = [(one / name, other / name) for name in sorted({p.name for d in (one, other) for p in d.iterdir()})]
    else:
        pairs = [(one.with_suffix(end), other.with_suffix(end)) for end in (".parquet", ".npz")]
    total = 0
    for a, b in pairs:
        x, y = (path.read_bytes() if path.exists() else b"" for path in (a, b))
        total += abs(len(x) - len(y)) + sum(p != q for p, q in zip(x, y, strict=False)) if x != y else 0
    return total


class Ran(NamedTuple):
    """Wall time of the units, CPU of driver, workers and Ray, peak of a worker."""

    seconds: float
    cpu: float
    peak: float


def run_on_nodes(run: Callable[[Executor], Path], count: int, files: Files) -> tuple[Path, Ran]:
    with nodes(count) as cluster, RayExecutor(cluster.address, files) as executor:
        noted, before = Noted(executor), cpu_of_all()
        out = run(noted)
        return out, Ran(noted.seconds, cpu_of_all() - before, peak_of_workers())


def ratios(ran: dict[tuple[Files, str, int], Ran], here: dict[str, Any], files: Files) -> dict[str, Any]:
    """What Ray costs and what a second node gains, files going one way."""
    results, spent = dict[str, Any](), 0.0
    for name, about in here.items():
        one, two = ran[files, name, 1], ran[files, name, 2]
        results[f"nodes2_{name}"] = two.seconds / one.seconds
        results[f"{name}_seconds"] = {"local": about["seconds"], "one node": one.seconds, "two nodes": two.seconds}
        results[f"{name}_cpu"] = {"local": about["cpu"], "one node": one.cpu}
        spent += one.cpu
    return results | {"ray_overhead": spent / sum(about["cpu"] for about in here.values())}


def measure(jobs: Jobs, quick: bool) -> dict[str, Any]:
    tiny = Jobs(jobs.directory / "tiny", TINY)
    tiny.train(LocalExecutor(1), tiny.model)  # compiles
    tiny.labelwise(LocalExecutor(1))
    work: dict[str, Callable[[Executor], Path]] = {"training": jobs.train, "labelwise": jobs.labelwise}
    here = {name: local(jobs.directory, name, quick) for name in work}
    ways: tuple[Files, ...] = ("auto", "sent")
    ran = dict[tuple[Files, str, int], Ran]()
    for files, name, count in product(ways, work, (1, 2)):
        out, ran[files, name, count] = run_on_nodes(work[name], count, files)
        assert different_bytes(Path(here[name]["out"]), out) == 0
    results = ratios(ran, here, "auto") | {"sent": ratios(ran, here, "sent")}
    peaks = {name: max(ran[files, name, 1].peak for files in ways) for name in work}
    results["peak_megabytes"] = {name: {"worker": peaks[name], "local": here[name]["peak"]} for name in work}
    results["worker_memory_ratio"] = max(peaks[name] / here[name]["peak"] for name in work)
    results["units"] = here["training"]["units"] | here["labelwise"]["units"]
    results["size"] = asdict(jobs.size) | {"trees": PARAMS.trees, "top": jobs.asked.top}
    return results | killed(work, here) | compiling(jobs.directory)


def killed(work: dict[str, Callable[[Executor], Path]], here: dict[str, Any]) -> dict[str, int]:
    """A node is killed when half of the units are done."""
    lost = different = 0
    for name, run in work.items():
        with nodes(2) as cluster, RayExecutor(cluster.address, "sent") as executor:
            noted, half = Noted(executor), sum(kind["count"] for kind in here[name]["units"].values()) // 2
            doomed = cluster.worker_nodes.copy().pop()
            done = threading.Event()

            killer = threading.Thread(target=kill_at, args=(half, noted, done, cluster, doomed), daemon=True)
            killer.start()
            out = run(noted)
            done.set()
            killer.join()
            lost += sum(times - 1 for times in noted.finished.values())
            different += different_bytes(Path(here[name]["out"]), out)
    return {"killed_lost": lost, "killed_diff": different}


def kill_at(half: int, noted: Noted, done: threading.Event, cluster: Any, doomed: Any) -> None:
    while noted.finished.total() < half and not done.is_set():
        time.sleep(0.01)
    cluster.remove_node(doomed, allow_graceful=False)


def compiling(directory: Path) -> dict[str, float]:
    """CPU that a node of one and of two workers spends on the kernels of a tiny training, its cache being empty."""
    spent = dict[int, float]()
    tiny = Jobs(directory / "tiny", TINY)
    for workers in (1, 2):
        cache = directory / f"kernels{workers}"
        cpu = list[float]()
        for _ in ("cold", "warm"):
            with nodes(1, workers, XREG_KERNEL_CACHE=str(cache)) as cluster:
                before = cpu_of_all()
                with RayExecutor(cluster.address, "sent") as executor:
                    tiny.train(executor)
                    cpu.append(cpu_of_all() - before)  # before its workers end
        spent[workers] = cpu[0] - cpu[1]
    return {
        "compile_cpu_one_worker": spent[1],
        "compile_cpu_two_workers": spent[2],
        "compile_ratio": spent[2] / spent[1],
    }


def show(results: dict[str, Any]) -> None:
    table = Table("", "measured", "must", title="Ray nodes of one CPU on this machine")
    bounds = {"nodes2_labelwise": 0.6, "nodes2_training": 0.6, "ray_overhead": 1.15, "worker_memory_ratio": 1.3}
    bounds["compile_ratio"] = 1.3
    for name, bound in bounds.items():
        table.add_row(name, f"{results[name]:.3f}", f"≤ {bound}")
    for name in ("killed_lost", "killed_diff"):
        table.add_row(name, str(results[name]), "0")
    for name in ("nodes2_labelwise", "nodes2_training", "ray_overhead"):
        table.add_row(f"{name}, files sent", f"{results['sent'][name]:.3f}", "")
    for name, way in product(("training", "labelwise"), ("", "sent")):
        for what, unit in ((f"{name}_seconds", "s"), (f"{name}_cpu", "s of CPU")):
            told = ", ".join(f"{key} {value:.1f}" for key, value in (results[way] if way else results)[what].items())
            table.add_row(f"{what} {way}", f"{told} {unit}", "")
    for name, about in results["peak_megabytes"].items():
        table.add_row(f"peak, {name}", f"worker {about['worker']:.0f} MB, local {about['local']:.0f} MB", "")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--local", choices=["training", "labelwise"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    if options.local:
        print(json.dumps(run_local(Jobs(options.directory, size), options.local)))
        return
    with tempfile.TemporaryDirectory(prefix="xreg-bench-") as directory:
        results = measure(Jobs(Path(directory), size), options.quick)
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
