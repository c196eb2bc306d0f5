"""Fitted nodes in the layout of the model: what units write, and what becomes the shards.

A fragment holds some nodes of one tree, by rising node id, in the arrays of `core.model.Ensemble` (with wide integer
types). Joining all fragments of all trees, node by node, is the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.format import create_array
from core.model import Ensemble
from core.sparse import Floats, Int32s, Int64s
from training.partition import Shape
from training.pruning import Block


class Fragment(NamedTuple):
    """Nodes of one tree with their regressors; pointers count from the fragment's own beginning."""

    nodes: Int64s
    node_frac: Floats
    edge_ptr: Int64s
    edge_bias: Floats
    edge_step: Floats
    row_ptr: Int64s
    row_feature: npt.NDArray[np.uint32]
    row_start: npt.NDArray[np.uint32]
    entry_ptr: Int64s
    entry_edge: npt.NDArray[np.uint16]
    entry_weight: npt.NDArray[np.int8]


# A whole tree: what its fragments together hold. They are loaded when needed and let go again, one at a time.
Tree = tuple[Shape, Sequence[Callable[[], Fragment]]]


class Fitted(NamedTuple):
    """One node, its regressors, and the share of the training points with a relevant label below it."""

    node: int
    block: Block
    frac: float


def join(fitted: Sequence[Fitted]) -> Fragment:
    """Fitted nodes as one fragment, by rising node id."""
    fitted = sorted(fitted, key=lambda f: f.node)
    blocks = [f.block for f in fitted]
    return Fragment(
        nodes=np.array([f.node for f in fitted], np.int64),
        node_frac=np.array([f.frac for f in fitted], np.float32),
        edge_ptr=_pointers([len(b.biases) for b in blocks]),
        edge_bias=_joined([b.biases for b in blocks], np.float32),
        edge_step=_joined([b.steps for b in blocks], np.float32),
        row_ptr=_pointers([len(b.features) for b in blocks]),
        row_feature=_joined([b.features for b in blocks], np.uint32),
        row_start=_joined([b.row_ptr[:-1] for b in blocks], np.uint32),
        entry_ptr=_pointers([len(b.edges) for b in blocks]),
        entry_edge=_joined([b.edges for b in blocks], np.uint16),
        entry_weight=_joined([b.weights for b in blocks], np.int8),
    )


def _pointers(lengths: Sequence[int]) -> Int64s:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype)


def edge_targets(shape: Shape, node: int) -> Int32s:
    """The children of a node, or the labels of a leaf."""
    if shape.child[node] < 0:
        return shape.labels[shape.first[node] : shape.last[node]]
    return np.arange(shape.child[node], shape.child[node] + shape.n_children[node], dtype=np.int32)


def upper_tree(shape: Shape, fragment: Fragment) -> Ensemble:
    """A tree whose unfitted nodes are leaves without edges: enough to route points down to them."""
    fitted = np.zeros(shape.n_nodes, bool)
    fitted[fragment.nodes] = True

    def spread(ptr: Int64s) -> Int64s:
        lengths = np.zeros(shape.n_nodes, np.int64)
        lengths[fragment.nodes] = np.diff(ptr)
        return _pointers(lengths.tolist())

    frac = np.zeros(shape.n_nodes, np.float32)
    frac[fragment.nodes] = fragment.node_frac
    return Ensemble(
        tree_ptr=np.array([0, shape.n_nodes], np.int64),
        node_leaf=(~fitted).astype(np.uint8),
        node_frac=frac,
        edge_ptr=spread(fragment.edge_ptr),
        edge_target=_joined([edge_targets(shape, int(n)) for n in fragment.nodes], np.int32),
        edge_bias=fragment.edge_bias,
        edge_step=fragment.edge_step,
        row_ptr=spread(fragment.row_ptr),
        row_feature=fragment.row_feature,
        row_start=fragment.row_start,
        entry_ptr=spread(fragment.entry_ptr),
        entry_edge=fragment.entry_edge,
        entry_weight=fragment.entry_weight,
    )


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write one unit's result aside and rename: the file is whole or not there."""
    aside = path.with_suffix(".writing")
    with aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def load_arrays(path: Path, prefix: str = "") -> dict[str, npt.NDArray[Any]]:
    """The arrays of a file whose names begin with `prefix`; the others are not read."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files if name.startswith(prefix)}


def write_shards(directory: Path, trees: Sequence[Tree], n_features: int) -> None:
    """Join the fragments of all trees into the model's arrays, in node order, straight into the files."""
    n_nodes = [shape.n_nodes for shape, _ in trees]
    frac, edges, rows, entries = (np.zeros(sum(n_nodes), dtype) for dtype in (np.float32, np.int64, np.int64, np.int64))
    most_edges, most_entries = 0, 0
    for first, (_, fragments) in zip(_pointers(n_nodes), trees, strict=False):
        for load in fragments:
            f = load()
            at = first + f.nodes
            frac[at], edges[at], rows[at] = f.node_frac, np.diff(f.edge_ptr), np.diff(f.row_ptr)
            entries[at] = np.diff(f.entry_ptr)
            most_edges = max(most_edges, int(edges[at].max(initial=0)))
            most_entries = max(most_entries, int(f.row_start.max(initial=0)))
    pointers = {"tree": _pointers(n_nodes), "edge": _pointers(edges.tolist())}
    pointers |= {"row": _pointers(rows.tolist()), "entry": _pointers(entries.tolist())}
    for name, ptr in pointers.items():
        create_array(directory, f"{name}_ptr", np.int64, len(ptr))[:] = ptr
    create_array(directory, "node_frac", np.float32, len(frac))[:] = frac
    leaf = np.concatenate([shape.child < 0 for shape, _ in trees])
    create_array(directory, "node_leaf", np.uint8, len(leaf))[:] = leaf
    out = {
        "edge_target": (np.int32, "edge"),
        "edge_bias": (np.float32, "edge"),
        "edge_step": (np.float32, "edge"),
        "row_feature": (np.uint16 if n_features <= 1 << 16 else np.uint32, "row"),
        "row_start": (np.uint16 if most_entries < 1 << 16 else np.uint32, "row"),
        "entry_edge": (np.uint8 if most_edges <= 1 << 8 else np.uint16, "entry"),
        "entry_weight": (np.int8, "entry"),
    }
    arrays = {n: create_array(directory, n, dtype, int(pointers[of][-1])) for n, (dtype, of) in out.items()}
    for first, (shape, fragments) in zip(pointers["tree"], trees, strict=False):
        for load in fragments:
            f = load()
            for i, node in enumerate(f.nodes.tolist()):
                _copy_node(f, i, int(first) + node, pointers, out, arrays)
                start = pointers["edge"][first + node]
                targets = edge_targets(shape, node)
                offset = int(first) if shape.child[node] >= 0 else 0
                arrays["edge_target"][start : start + len(targets)] = targets + offset


def _copy_node(
    f: Fragment,
    i: int,
    node: int,
    pointers: dict[str, Int64s],
    out: dict[str, tuple[Any, str]],
    arrays: dict[str, npt.NDArray[Any]],
) -> None:
    sources = {"edge": f.edge_ptr, "row": f.row_ptr, "entry": f.entry_ptr}
    for name, (_, of) in out.items():
        if name != "edge_target":
            start, stop = pointers[of][node], pointers[of][node + 1]
            arrays[name][start:stop] = getattr(f, name)[sources[of][i] : sources[of][i + 1]]
