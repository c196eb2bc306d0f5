"""Fitted nodes in the layout of the model: what units write, and what becomes the shards.

A fragment holds some nodes of one tree, by rising node id, in the arrays of `core.ensemble.Ensemble`. All fragments of
a tree make an ensemble of one tree, that becomes a trie, and the tries of all trees are the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.ensemble import Ensemble
from core.format import create_array
from core.sparse import Floats, Int32s, Int64s
from core.trie import Trie
from core.trie_build import BY_LABEL, POINTERS, Offsets, shifted
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


_NEVER = -1e4  # bias of a label never seen
_PARTS: dict[str, tuple[str, Any]] = {
    "edge_bias": ("edge", np.float32),
    "edge_step": ("edge", np.float32),
    "row_feature": ("row", np.uint32),
    "row_start": ("row", np.uint32),
    "entry_edge": ("entry", np.uint16),
    "entry_weight": ("entry", np.int8),
}


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


def together(fragments: Sequence[Fragment]) -> Fragment:
    """Fragments as one; their nodes rise from each to the next."""

    def pointers(name: str) -> Int64s:
        return _pointers(np.concatenate([np.diff(getattr(f, name)) for f in fragments]))

    arrays = {name: np.concatenate([getattr(f, name) for f in fragments]) for name in ("nodes", "node_frac", *_PARTS)}
    return Fragment(
        **arrays, edge_ptr=pointers("edge_ptr"), row_ptr=pointers("row_ptr"), entry_ptr=pointers("entry_ptr")
    )


def _pointers(lengths: npt.ArrayLike) -> Int64s:
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


def whole_tree(shape: Shape, fragments: Sequence[Callable[[], Fragment]], label_points: Int32s) -> Ensemble:
    """A tree from its fragments, which are loaded one at a time. Labels never seen lose their regressors: a bias so low
    that they score 0."""
    counts = {of: np.zeros(shape.n_nodes, np.int64) for of in ("edge", "row", "entry")}
    frac = np.zeros(shape.n_nodes, np.float32)
    for load in fragments:
        f = load()
        frac[f.nodes] = f.node_frac
        for of, lengths in counts.items():
            lengths[f.nodes] = np.diff(getattr(f, f"{of}_ptr"))
    ptr = {of: _pointers(lengths.tolist()) for of, lengths in counts.items()}
    arrays = {name: np.empty(int(ptr[of][-1]), dtype) for name, (of, dtype) in _PARTS.items()}
    target = np.empty(int(ptr["edge"][-1]), np.int32)
    for load in fragments:
        f = load()
        for i, node in enumerate(f.nodes.tolist()):
            for name, (of, _) in _PARTS.items():
                source = getattr(f, f"{of}_ptr")
                arrays[name][ptr[of][node] : ptr[of][node + 1]] = getattr(f, name)[source[i] : source[i + 1]]
            target[ptr["edge"][node] : ptr["edge"][node + 1]] = edge_targets(shape, node)
    leaf = shape.child < 0
    unseen = np.repeat(leaf, counts["edge"])
    unseen[unseen] = label_points[target[unseen]] == 0
    arrays["edge_bias"][unseen], arrays["edge_step"][unseen] = _NEVER, 0.0
    whole: dict[str, Any] = {f"{of}_ptr": pointers for of, pointers in ptr.items()} | arrays
    tree = np.array([0, shape.n_nodes], np.int64)
    return Ensemble(tree_ptr=tree, node_leaf=leaf.astype(np.uint8), node_frac=frac, edge_target=target, **whole)


def write_shards(directory: Path, tries: Sequence[Callable[[], Trie]]) -> None:
    """Join the tries of all trees, one at a time, straight into the files."""
    lengths, kinds = dict.fromkeys(Trie._fields, 0), dict[str, Any]()
    for load in tries:
        for name, array in load()._asdict().items():
            lengths[name] += len(array)
            kinds[name] = max(array.dtype, kinds.get(name, array.dtype))
    arrays = {}
    for name, length in lengths.items():
        shared = len(tries) - 1 if name in POINTERS else 0
        arrays[name] = create_array(directory, name, kinds[name], length - shared)
    first, at = Offsets(), dict.fromkeys(Trie._fields, 0)
    for tree, load in enumerate(tries):
        trie = load()
        for name, array in shifted(trie, first)._asdict().items():
            if name in BY_LABEL:
                arrays[name][tree :: len(tries)] = array
            else:
                arrays[name][at[name] : at[name] + len(array)] = array
                at[name] += len(array) - (1 if name in POINTERS else 0)
        first = first.after(trie)
