"""`xreg inspect`: a model directory in tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from core.ensemble import Ensemble
from core.model import Model, check_structure, open_model
from core.trie import node_major

_FREQUENCIES = (0, 1, 2, 5, 10, 100, 1000)


def show_model(path: Path, verify: bool, console: Console) -> None:
    model = open_model(path, verify)
    if not verify:
        check_structure(path, model)  # without the checksums, which take longer
    manifest = model.manifest
    console.print(
        _pairs(
            "model", {"path": path, "xreg": manifest.get("xreg", ""), "scale": manifest["scale"], **manifest["sizes"]}
        )
    )
    params = dict(manifest["params"])
    recipe = params.pop("recipe")
    console.print(_pairs("hyper-parameters", {**params, **{f"recipe.{name}": value for name, value in recipe.items()}}))
    console.print(_frequency_table(model))
    console.print(_level_table(node_major(model.trie, model.n_features)))
    console.print(_array_table(manifest["arrays"]))
    if verify:
        console.print("verified: every checksum, the whole structure")


def _pairs(title: str, values: dict[str, Any]) -> Table:
    table = Table("", "", title=title, show_header=False)
    for name, value in values.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(name, shown)
    return table


def _frequency_table(model: Model) -> Table:
    table = Table("training points", "labels", title="label frequency")
    for low, high in zip(_FREQUENCIES, (*_FREQUENCIES[1:], None), strict=True):
        count = int(((model.label_points >= low) & (model.label_points < (high or np.inf))).sum())
        span = str(low) if high == low + 1 else f"{low} …" if high is None else f"{low} … {high - 1}"
        table.add_row(span, str(count))
    return table


def node_depths(e: Ensemble) -> npt.NDArray[np.int64]:
    """The level of every node; parents come before their children."""
    depth = np.zeros(len(e.node_leaf), np.int64)
    for node in np.flatnonzero(e.node_leaf == 0):
        depth[e.edge_target[e.edge_ptr[node] : e.edge_ptr[node + 1]]] = depth[node] + 1
    return depth


def _level_table(e: Ensemble) -> Table:
    depth = node_depths(e)
    edges, rows, entries = np.diff(e.edge_ptr), np.diff(e.row_ptr), np.diff(e.entry_ptr)
    table = Table(
        "level", "nodes", "leaves", "edges", "weights", "weights per edge", "features per node", title="levels"
    )
    for level in range(int(depth.max()) + 1):
        here = depth == level
        table.add_row(
            str(level),
            str(int(here.sum())),
            str(int(e.node_leaf[here].sum())),
            str(int(edges[here].sum())),
            str(int(entries[here].sum())),
            f"{entries[here].sum() / edges[here].sum():.0f}",
            f"{rows[here].mean():.0f}",
        )
    return table


def _array_table(arrays: dict[str, Any]) -> Table:
    table = Table("array", "dtype", "shape", "MB", "sha256", title="files")
    for name, about in arrays.items():
        shape = " × ".join(str(n) for n in about["shape"])
        table.add_row(name, about["dtype"], shape, f"{about['bytes'] / 1e6:.2f}", about["sha256"][:16] + "…")
    return table
