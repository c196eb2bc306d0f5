"""Inference: `python bench/inference.py [--quick] [--json FILE]`, with XREG_DATA for EURLex-4K.

One core unless said; everything in one run. libpecos answers the same queries from the same weights, in an environment
of its own (`bench/.peers`). Models of made-up data are trained once and kept in `bench/.models`. --quick: a tenth of
the labels, and no libpecos.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

# Run as a script, this file's folder comes first on the path, and `training` would mean bench/training.py.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
sys.path.append(str(Path(__file__).resolve().parent.parent))  # and `bench` would be unknown

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse

from bench.imported import pecos_engine
from bench.training import Bench
from core.engine import Engine
from core.labelwise import Labelwise, best_points, prepared
from core.relevance import BINARY
from core.sparse import Csr, from_scipy, take_rows, to_scipy, transformed
from training.dataset import Dataset, read_dataset
from training.fit import fit
from training.params import PAPER, ROUTED, Params, Recipe
from training.synth import make_points, make_world

HERE = Path(__file__).parent
FEATURES, SHOWN = 100_000, 0.01  # of the made-up world; the score from which an answer is shown
# Routing and leaves of the paper in a third of its passes: the same layout and sparsity, sooner.
SOON = replace(PAPER, route=replace(PAPER.route, passes=5), leaf=replace(PAPER.leaf, passes=6))
console = Console(width=130)


class Market:
    """Made-up models and queries; half as many training points as labels."""

    def __init__(self, n_labels: int) -> None:
        self.n_labels, self.world = n_labels, make_world(n_labels, FEATURES, seed=0)

    def data(self) -> Dataset:
        return make_points(self.world, self.n_labels // 2, 45, seed=0)

    def engine(self, recipe: Recipe = SOON) -> Engine:
        path = HERE / ".models" / f"{recipe.name}-{self.n_labels}"
        return kept_engine(path, self.data, Params(recipe))

    def queries(self, n: int, words: int) -> Csr:
        return make_points(self.world, n, words, seed=9).features


def kept_engine(path: Path, data: Callable[[], Dataset], params: Params) -> Engine:
    """A model that is trained where it is not there yet."""
    if not path.exists():
        with console.status(f"training {path.name}"):
            fit(data(), params, path, os.cpu_count() or 1, resume=True)
    engine = Engine.open(path, verify=False)
    engine.warm_up()
    return engine


def cpu_of(call: Callable[[], Any], rounds: int = 3) -> float:
    """The least CPU seconds of some rounds."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def latencies(engine: Engine, rows: Csr) -> Any:
    """Microseconds of every query, asked one at a time through the Python call, the second time around."""
    points = [
        (rows.indices[rows.indptr[i] : rows.indptr[i + 1]], rows.values[rows.indptr[i] : rows.indptr[i + 1]])
        for i in range(rows.n_rows)
    ]
    for indices, values in points[:200]:
        engine.predict(indices, values)
    taken = []
    for indices, values in points:
        start = time.perf_counter()
        engine.predict(indices, values)
        taken.append(time.perf_counter() - start)
    return np.array(taken) * 1e6


def exact_shares(engine: Engine, rows: Csr) -> tuple[float, float]:
    """Share of the queries whose ten best are those of a full beam; the same among scores that would be shown."""
    got, full = (engine.predict_batch(rows, 10, beam) for beam in (None, 10**6))
    shares = []
    for least in (0.0, SHOWN):
        a, b = ((to_scipy(s) >= max(least, 1e-30)).tolil().rows for s in (got, full))
        shares.append(float(np.mean([x == y for x, y in zip(a, b, strict=True)])))
    return shares[0], shares[1]


def pointwise(results: dict[str, Any], market: Market) -> None:
    table = Table("model", "features", "p50 µs", "p99 µs", "batch µs", "exact", f"exact ≥ {SHOWN}", title="pointwise")
    for recipe in (SOON, ROUTED):
        engine = market.engine(recipe)
        for words in (45, 8):
            rows = market.queries(2000, words)
            p50, p99 = map(float, np.percentile(latencies(engine, rows), (50, 99)))
            batch = cpu_of(partial(engine.predict_batch, rows)) / rows.n_rows * 1e6
            cells = [f"{recipe.name}, {market.n_labels} labels", str(words), f"{p50:.0f}", f"{p99:.0f}", f"{batch:.0f}"]
            tail = "" if recipe is SOON else f"_{recipe.name}"
            results |= {f"p50_us_130k_{words}f{tail}": p50, f"p99_us_130k_{words}f{tail}": p99}
            if recipe is SOON:  # with routed leaves a wider beam gives other answers, and worse ones
                exact, shown = exact_shares(engine, take_rows(rows, np.arange(300)))
                results |= {f"exact_{words}f": exact, f"exact_shown_{words}f": shown}
                cells += [f"{exact:.3f}", f"{shown:.3f}"]
            table.add_row(*cells)
    console.print(table)


def growth(results: dict[str, Any], market: Market, large: Market) -> None:
    small, big = market.engine(), large.engine()
    for key, words in (("growth_1m", 45), ("growth_1m_8f", 8)):
        few, many = market.queries(1000, words), large.queries(1000, words)
        ratios = [np.median(latencies(big, many)) / np.median(latencies(small, few)) for _ in range(3)]
        results[key] = float(min(ratios))
        console.print(f"{large.n_labels} labels against {market.n_labels}, {words} features: {results[key]:.2f} ×")


def threads(results: dict[str, Any], market: Market) -> None:
    engine, rows = market.engine(), market.queries(8000, 45)
    wall: dict[int, list[float]] = {1: [], 2: []}
    cpu: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(4):
        for n in (1, 2):
            start, used = time.perf_counter(), time.process_time()
            engine.predict_batch(rows, threads=n)
            wall[n].append(time.perf_counter() - start)
            cpu[n].append(time.process_time() - used)
    results["threads2_throughput"] = min(wall[1]) / min(wall[2])
    results["threads2_cpu"] = min(cpu[2]) / min(cpu[1])
    wall_ratio, cpu_ratio = results["threads2_throughput"], results["threads2_cpu"]
    console.print(f"2 threads: {wall_ratio:.2f} × the throughput, {cpu_ratio:.2f} × the CPU per query")


def eurlex(results: dict[str, Any], root: Path) -> None:
    params = Params(PAPER, propensity=(0.55, 1.5))
    engine = kept_engine(HERE / ".models" / "eurlex-paper", partial(read_dataset, root / "eurlex4k", "train"), params)
    test = read_dataset(root / "eurlex4k", "test")
    results["eurlex_ms"] = cpu_of(partial(engine.predict_batch, test.features)) / test.n_points * 1e3
    console.print(f"EURLex-4K, paper, whole test set: {results['eurlex_ms']:.3f} ms of CPU per point")


def labelwise(results: dict[str, Any], market: Market, n_points: int) -> None:
    engine, rows = market.engine(), market.queries(n_points, 45)
    best_points(engine.model, take_rows(rows, np.arange(500)), Labelwise())  # compiles
    pointwise_cpu = cpu_of(partial(engine.predict_batch, take_rows(rows, np.arange(5000)))) / 5000
    layout_cpu = cpu_of(partial(prepared, engine.model, rows), rounds=2) / n_points
    cpu = cpu_of(partial(best_points, engine.model, rows, Labelwise()), rounds=2) / n_points
    results |= {"labelwise_us": cpu * 1e6, "labelwise_ratio": cpu / pointwise_cpu}
    results["labelwise_layout_us"] = layout_cpu * 1e6
    console.print(
        f"labelwise over {n_points} points: {cpu * 1e6:.0f} µs of CPU per point, {layout_cpu * 1e6:.0f} of them for "
        f"laying the trees out; pointwise {pointwise_cpu * 1e6:.0f}: {cpu / pointwise_cpu:.2f} ×"
    )


def opening(results: dict[str, Any], path: Path) -> None:
    """What opening adds to the memory of a process, beside pages of the files."""
    script = (
        "import sys, re; from pathlib import Path; from core.engine import Engine\n"
        "def anon(): return int(re.search(r'RssAnon:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "engine = Engine.open(Path(sys.argv[1]), verify=False); before = anon()\n"
        "other = Engine.open(Path(sys.argv[1]), verify=False); print((anon() - before) / 1024)\n"
    )
    results["open_mb"] = float(output_of([sys.executable, "-c", script, str(path)]))
    results["open_ms"] = cpu_of(partial(Engine.open, path, verify=False)) * 1e3
    console.print(f"opening {path.name}: {results['open_mb']:.1f} MB, {results['open_ms']:.0f} ms")


def output_of(command: list[str]) -> str:
    """The last line that a command prints."""
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1] if done.stdout else ""


def against_pecos(results: dict[str, Any], market: Market) -> None:
    """The same weights, the same queries, the same answers."""
    folder = HERE / ".models" / f"pecos-{market.n_labels}"
    command = [str(HERE / ".peers" / "pecos" / "bin" / "python"), str(HERE / "pecos_peer.py")]
    even = np.ones(FEATURES, np.float32)
    if not (folder / "model" / "ranker").exists():
        with console.status("training libpecos"):
            folder.mkdir(parents=True, exist_ok=True)
            data = market.data()
            sparse.save_npz(folder / "X.npz", to_scipy(transformed(data.features, 1.0, even)))
            sparse.save_npz(folder / "Y.npz", to_scipy(BINARY.apply(data.relevance)))
            output_of([*command, "train", str(folder)])
    rows = transformed(market.queries(5000, 45), 1.0, even)
    sparse.save_npz(folder / "T.npz", to_scipy(rows))
    engine = pecos_engine(folder / "model", FEATURES, market.n_labels)
    engine.warm_up()
    batch, online, theirs = [], [], []
    for _ in range(3):
        theirs.append(json.loads(output_of([*command, "time", str(folder)])))
        batch.append(cpu_of(partial(engine.predict_batch, rows)) / rows.n_rows * 1e6)  # the best of three, as theirs
        online.append(float(np.median(latencies(engine, take_rows(rows, np.arange(1000))))))
    their_batch, their_online = (min(t[key] for t in theirs) for key in ("batch_us", "online_us"))
    results |= {"pecos_batch_ratio": min(batch) / their_batch, "pecos_online_ratio": min(online) / their_online}
    results["pecos_same"] = same_answers(
        engine.predict_batch(rows), from_scipy(sparse.csr_matrix(sparse.load_npz(folder / "pecos.npz")))
    )
    table = Table("same weights, µs a row", "libpecos", "xreg", "ratio")
    table.add_row("5,000 rows at once", f"{their_batch:.1f}", f"{min(batch):.1f}", f"{min(batch) / their_batch:.3f}")
    table.add_row("one row per call", f"{their_online:.1f}", f"{min(online):.1f}", f"{min(online) / their_online:.3f}")
    console.print(table, f"the same ten labels for {100 * results['pecos_same']:.2f} % of the rows")


def same_answers(ours: Csr, theirs: Csr) -> float:
    """Share of the rows with the same labels, but for those whose scores tie with the last."""
    same = 0
    for i in range(ours.n_rows):
        labels = []
        for s in (ours, theirs):
            row = slice(s.indptr[i], s.indptr[i + 1])
            last = s.values[row].min(initial=0.0)
            labels.append(set(s.indices[row][s.values[row] > last * (1 + 1e-4)].tolist()))
        same += labels[0] == labels[1]
    return same / ours.n_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the labels, no libpecos")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    market, large = Market(130_000 // scale), Market(1_040_000 // scale)
    results: dict[str, Any] = {}
    if not options.quick and Bench(HERE, ["pecos"]).peers:
        against_pecos(results, market)
    pointwise(results, market)
    growth(results, market, large)
    threads(results, market)
    labelwise(results, market, 50_000 // scale)
    opening(results, HERE / ".models" / f"paper-{large.n_labels}")
    if "XREG_DATA" in os.environ:
        eurlex(results, Path(os.environ["XREG_DATA"]))
    else:
        console.print("EURLex-4K is left out: XREG_DATA is not set")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
