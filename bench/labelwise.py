"""Labelwise inference: `python bench/labelwise.py [--quick] [--json FILE]`, with XREG_DATA set.

Accuracy on real data for several factors F, as in the paper's ablation: against exhaustive labelwise scoring (an F that
turns nobody away), against the paper's own rule (a pair that a tree does not list counts 0) and against pointwise
scores, transposed. Then CPU per point on made-up data of 130K labels, one thread, after compilation. --quick: a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

# Run as a script, this file's folder comes first on the path, and `training` would mean bench/training.py.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np
from rich.console import Console
from rich.table import Table

from core.engine import Engine
from core.labelwise import Labelwise, best_points
from core.sparse import take_rows
from training.dataset import read_dataset
from training.evaluate import LABEL_TOP, evaluate_model
from training.fit import fit
from training.params import PAPER, ROUTED, Params, Recipe
from training.synth import make_points, make_world

EVERYONE = 1e9
COLUMNS = ("WP-l@5", "Tau-l@5", "XMAD-l@5", "coverage-l")
# Tuned: what `xreg tune` chose on the training parts (bench/README.md).
RECIPES: dict[str, dict[str, Recipe]] = {
    "movielens-small": {
        "tuned": replace(ROUTED, leaf=replace(ROUTED.leaf, cost=0.2), blend=0.4, routed=5),
        "paper": PAPER,
    },
    "debian-deps": {
        "tuned": replace(ROUTED, leaf=replace(ROUTED.leaf, loss="logistic", cost=30.0), blend=0.8, routed=5),
        "paper": PAPER,
    },
}
console = Console(width=120)


def accuracy(directory: Path, root: Path, name: str, recipe: str) -> dict[str, dict[str, float]]:
    """Figures of one model by every way of ranking points for labels."""
    path = directory / f"{name}-{recipe}"
    fit(read_dataset(root / name, "train"), Params(RECIPES[name][recipe]), path, threads=1)
    engine, test = Engine.open(path, verify=False), read_dataset(root / name, "test")
    ways: dict[str, Any] = {"pointwise, transposed": "transposed"}
    ways |= {f"F = {factor}": Labelwise(LABEL_TOP, factor) for factor in (1, 2, 4, 8)}
    ways |= {f"F = {factor}, paper's rule": Labelwise(10, factor, complete=False) for factor in (1, 4)}
    ways["exhaustive"] = Labelwise(LABEL_TOP, EVERYONE)
    table = Table("", *COLUMNS, title=f"{name}, {recipe}, 3 trees")
    results = {}
    for way, labelwise in ways.items():
        figures = evaluate_model(engine, test, labelwise=labelwise)
        results[way] = {column: figures[column] for column in COLUMNS}
        table.add_row(way, *(f"{v:.4f}" if c.startswith("X") else f"{v:.2f}" for c, v in results[way].items()))
    console.print(table)
    return results


def speed(directory: Path, scale: int) -> dict[str, float]:
    """CPU µs per point of labelwise inference, `top` 10, F = 4, `paper` recipe, 3 trees."""
    world = make_world(130_000 // scale, 100_000 // scale, seed=0)
    path = directory / "made-up"
    fit(make_points(world, 60_000 // scale, 45, seed=0), Params(PAPER), path, threads=1)
    engine, points = Engine.open(path, verify=False), make_points(world, 200_000 // scale, 45, seed=9).features
    best_points(engine.model, take_rows(points, np.arange(50)), Labelwise())
    table, results = Table("points", "completed, µs", "paper's rule, µs", title="CPU per point, made-up data"), {}
    for n in (20_000 // scale, 50_000 // scale, 200_000 // scale):
        some = take_rows(points, np.arange(n))
        for complete in (True, False):
            start = time.process_time()
            best_points(engine.model, some, Labelwise(complete=complete))
            key = f"labelwise_us_{n}" + ("" if complete else "_paper")
            results[key] = (time.process_time() - start) / n * 1e6
        table.add_row(str(n), f"{results[f'labelwise_us_{n}']:.1f}", f"{results[f'labelwise_us_{n}_paper']:.1f}")
    console.print(table)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="movielens-small only, a tenth of the made-up data")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if "XREG_DATA" not in os.environ:
        sys.exit("error: XREG_DATA must name the directory with the real data sets")
    root, results = Path(os.environ["XREG_DATA"]), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="xreg-bench-") as directory:
        for name in ["movielens-small"] if options.quick else RECIPES:
            for recipe in RECIPES[name]:
                results[f"{name}, {recipe}"] = accuracy(Path(directory), root, name, recipe)
        results |= speed(Path(directory), scale=10 if options.quick else 1)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
