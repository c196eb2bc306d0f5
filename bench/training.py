"""Training against its peers: `python bench/training.py [--quick] [--json FILE]`, with XREG_DATA set.

CPU seconds of training, one thread, after compilation, all in one run; sizes, accuracy, growth with the number of
points, and what a second thread gives. The peers (omikuji, napkinxc, libpecos) live in an environment of their own,
which is made on first use. --quick: EURLex-4K against omikuji, and growth on a tenth of the points.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

# Run as a script, this file's folder comes first on the path, and `training` would mean this file.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from rich.console import Console
from rich.table import Table
from scipy import sparse

from core.engine import Engine
from core.metrics import evaluate
from core.relevance import BINARY
from core.sparse import from_scipy, to_scipy
from training.dataset import Dataset, read_dataset
from training.evaluate import THRESHOLD, evaluate_model
from training.fit import fit
from training.inputs import weighting_of
from training.params import PAPER, ROUTED, Params
from training.synth import make_points, make_world
from training.tune import tune

HERE = Path(__file__).parent
PEERS = {"omikuji": ["omikuji==0.5.2"], "napkinxc": ["napkinxc==0.7.2"], "pecos": ["torch==2.13.0", "libpecos==1.2.8"]}
COLUMNS = ("WP@1", "WP@3", "WP@5", "Tau@5", "XMAD@5", "XRMSE@5")
console = Console(width=130)


@dataclass
class Run:
    """One system on one data set."""

    system: str
    cpu: float
    megabytes: float | None = None
    figures: dict[str, float] = field(default_factory=dict)


class Bench:
    """A scratch directory, the peers' Python, and the figures so far."""

    def __init__(self, directory: Path, peers: list[str]) -> None:
        self.directory, self.results = directory, dict[str, Any]()
        self.models = 0
        self.peers = [name for name in peers if self._install(name)]

    def _install(self, name: str) -> bool:
        """Into an environment of their own: libpecos wants other versions than we do."""
        environment = HERE / ".peers" / name
        if not (environment / "ready").exists():
            with console.status(f"installing {name}"):
                shutil.rmtree(environment, ignore_errors=True)
                subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
                for package in PEERS[name]:
                    command = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", "scipy", package]
                    if subprocess.run(command, capture_output=True, check=False).returncode:
                        console.print(f"{name}: {package} does not install here; left out of the comparison")
                        return False
                (environment / "ready").touch()
        return True

    def ours(self, data: Dataset, params: Params, threads: int = 1) -> tuple[float, float, Path]:
        """CPU and wall seconds of one training, and the model."""
        self.models += 1
        path = self.directory / f"model{self.models}"
        cpu, wall = time.process_time(), time.perf_counter()
        fit(data, params, path, threads)
        return time.process_time() - cpu, time.perf_counter() - wall, path

    def warm_up(self, params: Params) -> None:
        """Load or compile every kernel, so that no timing contains it."""
        world = make_world(300, 500, 0)
        self.ours(make_points(world, 600, 20, 0), replace(params, max_leaf=20))

    def our_run(self, label: str, train: Dataset, test: Dataset, params: Params) -> Run:
        cpu, _, path = self.ours(train, params)
        size = sum(f.stat().st_size for f in path.iterdir() if not f.name.startswith("tail_")) / 1e6
        return Run(label, cpu, size, evaluate_model(Engine.open(path), test, threads=2))

    def peer_run(self, name: str, train: Dataset, test: Dataset, like: Params) -> Run:
        """The peer's scores judged like ours: same weighting, same scale."""
        folder = self.directory / "peer"
        folder.mkdir(exist_ok=True)
        binary = to_scipy(BINARY.apply(train.relevance))
        for file, matrix in (("X", to_scipy(train.features)), ("Y", binary), ("T", to_scipy(test.features))):
            sparse.save_npz(folder / f"{file}.npz", matrix)
        write_text(folder / "train.txt", train)
        python = HERE / ".peers" / name / "bin/python"
        done = subprocess.run([python, HERE / "peers.py", name, folder], capture_output=True, text=True, check=False)
        if done.returncode:
            console.print(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}")
            return Run(name, float("nan"))
        cpu = float(json.loads(done.stdout.strip().splitlines()[-1])["cpu"])
        scores = from_scipy(sparse.csr_matrix(sparse.load_npz(folder / f"{name}.npz")))
        truth = weighting_of(like, train).apply(test.relevance)
        return Run(name, cpu, None, evaluate(truth, scores, THRESHOLD))


def write_text(path: Path, data: Dataset) -> None:
    """The repository's single-file form."""
    x, y = to_scipy(data.features), to_scipy(data.relevance)
    with path.open("w") as file:
        file.write(f"{data.n_points} {data.n_features} {data.n_labels}\n")
        for i in range(data.n_points):
            labels = ",".join(map(str, y.indices[y.indptr[i] : y.indptr[i + 1]]))
            row = slice(x.indptr[i], x.indptr[i + 1])
            pairs = " ".join(f"{f}:{v:.6g}" for f, v in zip(x.indices[row], x.data[row], strict=True))
            file.write(f"{labels} {pairs}\n")


def show(title: str, runs: list[Run]) -> None:
    base = next((run.cpu for run in runs if run.system == "omikuji"), float("nan"))
    table = Table("", "CPU s", "× omikuji", "MB", *COLUMNS, title=title)
    for run in runs:
        size = f"{run.megabytes:.1f}" if run.megabytes else ""
        cells = [f"{run.figures[c]:.4f}" if c[0] == "X" else f"{run.figures[c]:.2f}" for c in COLUMNS if run.figures]
        table.add_row(run.system, f"{run.cpu:.1f}", f"{run.cpu / base:.2f}", size, *cells)
    console.print(table)


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="xreg-bench-") as directory:
        yield Path(directory)


def eurlex(bench: Bench, root: Path) -> None:
    train, test = read_dataset(root / "eurlex4k", "train"), read_dataset(root / "eurlex4k", "test")
    params = Params(propensity=(0.55, 1.5))
    runs = [bench.peer_run(name, train, test, params) for name in bench.peers]
    paper = bench.our_run("xreg, paper", train, test, replace(params, recipe=PAPER))
    default = bench.our_run("xreg, default", train, test, params)
    show("EURLex-4K, 3 trees, one thread", [*runs, paper, default])
    omikuji = next((run.cpu for run in runs if run.system == "omikuji"), float("nan"))
    bench.results |= {
        "omikuji_cpu_ratio": default.cpu / omikuji,
        "omikuji_cpu_ratio_paper": paper.cpu / omikuji,
        "model_mb": default.megabytes,
        "model_mb_paper": paper.megabytes,
        "eurlex": default.figures,
        "eurlex_paper": paper.figures,
    }


def tuned(bench: Bench, root: Path, name: str) -> None:
    train, test = read_dataset(root / name, "train"), read_dataset(root / name, "test")
    with console.status(f"tuning {name}"):
        choice = tune(train, Params(), threads=2, on_trial=lambda trial: None)
    console.print(f"{name}: {choice}")
    omikuji = bench.peer_run("omikuji", train, test, Params())
    ours = bench.our_run("xreg, tuned", train, test, choice.apply(Params()))
    show(f"{name}, 3 trees, one thread", [omikuji, ours])
    bench.results[name] = ours.figures
    if name == "debian-deps":
        bench.results["omikuji_cpu_ratio_debian"] = ours.cpu / omikuji.cpu


def two_threads(bench: Bench, root: Path, rounds: int) -> None:
    """Interleaved, the sum of several rounds: the machine is noisy."""
    train = read_dataset(root / "eurlex4k", "train")
    wall = {1: 0.0, 2: 0.0}
    for _ in range(rounds):
        for threads in wall:
            wall[threads] += bench.ours(train, Params(propensity=(0.55, 1.5)), threads)[1]
    bench.results["threads2_wall_ratio"] = wall[2] / wall[1]
    console.print(f"two threads against one, wall time: {wall[2] / wall[1]:.2f} ×")


def growth(bench: Bench, scale: int) -> None:
    """Made-up data of 130K labels: CPU at N, 2N and 4N points."""
    world = make_world(130_000 // scale, 100_000 // scale, seed=0)
    test = make_points(world, 5000 // scale, 45, seed=9)
    runs = []
    for n in (30_000, 60_000, 120_000):
        data = make_points(world, n // scale, 45, seed=0)
        runs.append(bench.our_run(f"{n // scale} points", data, test, Params(ROUTED)))
    show(f"made-up data, {130_000 // scale} labels", runs)
    bench.results["growth_points"] = runs[2].cpu / runs[0].cpu
    bench.results["made_up"] = runs[2].figures | {"cpu": runs[2].cpu, "mb": runs[2].megabytes}
    console.print(f"CPU at 4 × the points: {runs[2].cpu / runs[0].cpu:.2f} ×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="EURLex-4K and omikuji only, little made-up data")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if "XREG_DATA" not in os.environ:
        sys.exit("error: XREG_DATA must name the directory with the real data sets")
    root = Path(os.environ["XREG_DATA"])
    with scratch() as directory:
        bench = Bench(directory, ["omikuji"] if options.quick else list(PEERS))
        for recipe in (PAPER, ROUTED):
            bench.warm_up(Params(recipe))
        eurlex(bench, root)
        two_threads(bench, root, rounds=1 if options.quick else 2)
        if not options.quick:
            tuned(bench, root, "movielens-small")
            tuned(bench, root, "debian-deps")
        growth(bench, scale=10 if options.quick else 1)
    if options.json:
        options.json.write_text(json.dumps(bench.results, indent=1) + "\n")


if __name__ == "__main__":
    main()
