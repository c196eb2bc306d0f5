"""The paper's EURLex-4K tables beside ours: `python bench/paper.py [--json FILE]`, with XREG_DATA set.

Every figure of ours comes from the shipped pipeline: train on the training part, answer the test part, score.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

# Run as a script, this file's folder comes first on the path, and `training` would mean bench/training.py.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np
from rich.console import Console
from rich.table import Table

from core.engine import Engine
from core.metrics import evaluate
from core.sparse import Csr
from training.dataset import read_dataset
from training.evaluate import THRESHOLD, evaluate_model, scores_for_evaluation, weighting_for
from training.fit import fit
from training.params import PAPER, Params

PROPENSITY = (0.55, 1.5)
THREADS = os.cpu_count() or 1
XREG = Params(PAPER, propensity=PROPENSITY, tail=True)
console = Console(width=140)

MAIN = ("WP@1", "WP@3", "WP@5", "nDCG@5", "Tau@1", "Tau@3", "Tau@5", "XMAD@5", "XRMSE@5")
PUBLISHED: dict[str, dict[str, float]] = {
    "XReg": {"WP@1": 44.00, "WP@3": 47.44, "WP@5": 49.72, "nDCG@5": 47.99, "Tau@1": 51.69, "Tau@3": 50.51,
             "Tau@5": 52.86, "XMAD@5": 0.1849, "XRMSE@5": 0.2127},
    "XReg-t": {"WP@1": 45.23, "WP@3": 48.51, "WP@5": 50.40, "nDCG@5": 48.89, "Tau@1": 53.06, "Tau@3": 51.59,
               "Tau@5": 53.45, "XMAD@5": 0.2132, "XRMSE@5": 0.2338},
    "Parabel": {"WP@1": 36.36, "WP@3": 44.04, "WP@5": 48.29, "nDCG@5": 44.78, "Tau@1": 40.96, "Tau@3": 46.03,
                "XMAD@5": 0.4227, "XRMSE@5": 0.4673},
}  # fmt: skip
REGRET: dict[str, tuple[float, float, float]] = {
    "XReg": (0.1134, 0.2432, 1.2284),
    "XReg-t": (0.1119, 0.3141, 3.4887),
    "Parabel": (0.1166, 0.5696, 3.9622),
}
AUPRC = {"XReg": 0.117, "Parabel": 0.092, "XReg-zero": 0.085}
SWEPT = ("WP@5", "Tau@5", "XMAD@5")
SWEEPS: dict[str, dict[int, tuple[float, float, float]]] = {
    "trees": {
        1: (48.05, 51.14, 0.1899),
        3: (49.72, 52.86, 0.1849),
        5: (50.25, 53.24, 0.1836),
        7: (50.44, 53.42, 0.1831),
    },
    "beam": {
        5: (49.6, 52.76, 0.1858),
        10: (49.72, 52.86, 0.1849),
        20: (49.7, 52.86, 0.1847),
        30: (49.71, 52.86, 0.1847),
    },
    "max-leaf": {
        20: (49.34, 52.75, 0.1845),
        50: (49.6, 52.71, 0.1859),
        100: (49.72, 52.86, 0.1849),
        200: (50.11, 53.05, 0.1846),
    },
}


class Bench:
    """Models by their parameters, each trained once."""

    def __init__(self, data: Path, directory: Path) -> None:
        self.train, self.test = read_dataset(data, "train"), read_dataset(data, "test")
        self.directory, self.engines = directory, dict[Params, Engine]()

    def engine(self, params: Params) -> Engine:
        if params not in self.engines:
            path = self.directory / f"m{len(self.engines)}"
            with console.status(f"training {params.recipe.name}, {params.trees} trees, leaves of {params.max_leaf}"):
                fit(self.train, params, path, THREADS)
            self.engines[params] = Engine.open(path)
        return self.engines[params]

    def figures(self, params: Params, **options: Any) -> dict[str, float]:
        return evaluate_model(self.engine(params), self.test, PROPENSITY, threads=THREADS, **options)


def main_table(rows: dict[str, dict[str, float]]) -> None:
    table = Table("EURLex-4K", "", *MAIN, title="Ranking and regression")
    for name, ours in rows.items():
        published = PUBLISHED[name]
        table.add_row(name, "paper", *(shown(published.get(key)) for key in MAIN))
        table.add_row("", "ours", *(shown(ours[key]) for key in MAIN), end_section=True)
    console.print(table)


def regret_table(rows: dict[str, dict[str, float]]) -> None:
    columns = ("regret@5", "2·XMAD@10", "MAD", "2·XMAD@10 / regret", "MAD / regret")
    table = Table("EURLex-4K", "", *columns, title="regret@5 ≤ 2·XMAD@10: how tight the bound is")
    for name, ours in rows.items():
        for who, (regret, bound, mad) in (
            ("paper", REGRET[name]),
            ("ours", (ours["regret@5"], 2 * ours["XMAD@10"], ours["MAD"])),
        ):
            ratios = (bound / regret, mad / regret)
            table.add_row(name, who, *(shown(v) for v in (regret, bound, mad)), *(f"{r:.2f}" for r in ratios))
    console.print(table)


def auprc_table(bench: Bench, rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """XReg-zero: the same ranking with all scores crushed towards 0."""
    engine = bench.engine(XREG)
    scores = scores_for_evaluation(engine, bench.test, None, 1.0, THREADS)
    truth = weighting_for(engine.model, None).apply(bench.test.relevance)
    zero = evaluate(truth, crushed(scores), THRESHOLD)
    ours = {"XReg": rows["XReg"], "Parabel": rows["Parabel"], "XReg-zero": zero}
    table = Table(
        "EURLex-4K", "AUPRC, paper", "AUPRC, ours", "XMAD@5, ours", "WP@5, ours", title="One threshold for all"
    )
    for name, figures in ours.items():
        table.add_row(name, *(shown(v) for v in (AUPRC[name], figures["AUPRC"], figures["XMAD@5"], figures["WP@5"])))
    console.print(table)
    return {name: figures["AUPRC"] for name, figures in ours.items()}


def crushed(scores: Csr) -> Csr:
    """Every point's r-th best score becomes 0.001 / r: its ranking stays, the scores say nothing more."""
    row = np.repeat(np.arange(scores.n_rows), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.values, row))
    rank = np.empty(scores.nnz, np.float32)
    rank[order] = np.arange(scores.nnz) - scores.indptr[row[order]] + 1
    return scores._replace(values=np.float32(0.001) / rank)


def sweep(bench: Bench, name: str) -> dict[str, dict[str, float]]:
    table = Table(name, "", *SWEPT, title=f"EURLex-4K by {name}")
    results = {}
    for value, published in SWEEPS[name].items():
        if name == "beam":
            figures = bench.figures(XREG, beam=value)
        elif name == "trees":
            figures = bench.figures(replace(XREG, trees=value))
        else:
            figures = bench.figures(replace(XREG, max_leaf=value))
        results[str(value)] = {key: figures[key] for key in SWEPT}
        table.add_row(str(value), "paper", *(shown(v) for v in published))
        table.add_row("", "ours", *(shown(figures[key]) for key in SWEPT), end_section=True)
    console.print(table)
    return results


def shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if "XREG_DATA" not in os.environ:
        sys.exit("error: XREG_DATA must name the directory that holds eurlex4k")
    with tempfile.TemporaryDirectory(prefix="xreg-paper-") as directory:
        bench = Bench(Path(os.environ["XREG_DATA"]) / "eurlex4k", Path(directory))
        rows = {
            "XReg": bench.figures(XREG),
            "XReg-t": bench.figures(XREG, alpha=0.5),
            "Parabel": bench.figures(replace(XREG, propensity=None, relevance="binary", tail=False)),
        }
        main_table(rows)
        regret_table(rows)
        results: dict[str, Any] = {"main": rows, "AUPRC": auprc_table(bench, rows)}
        for name in SWEEPS:
            results[name] = sweep(bench, name)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
