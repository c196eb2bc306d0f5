"""The trees of an ensemble by feature: a trie per feature, which is how a search wants them.

Nodes are taken together in *groups*: a few binary levels, or one level of a wide tree; the groups of one depth are a
*layer* of the tree. The row of feature f at a group says which of the groups below contain f at all (one bit each) and
where their rows of f begin, so a search goes from row to row by counting bits: below the root nothing is looked up, and
a feature that no regressor below knows drops out of the list that travels down (fractional cascading).
docs/model-format.md specifies the arrays; `core.kernels.search` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.ensemble import Ensemble
from core.jit import kernel
from core.sparse import Int, Int32s, Int64s

UInt32s = npt.NDArray[np.uint32]
Entries = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
VECTOR = 16  # a group's edges are computed in whole vectors of this many


class Trie(NamedTuple):
    """All trees in one set of arrays. Nodes are numbered tree by tree, group by group, breadth-first both ways.

    tree_ptr [T+1]         nodes of tree t are tree_ptr[t]:tree_ptr[t+1]; the first is its root
    node_leaf [n]          1 where the edges lead to labels
    node_head [n]          1 at the first node of a group; a leaf is a group of its own
    node_frac [n]          share of the training points with a relevant label below the node
    edge_ptr [n+1]         edges of a node
    edge_target [e]        child node, or label for a leaf's edge
    edge_bias, edge_step   regressor of the edge: margin = bias + step · Σ weight · x
    layer_ptr [T+1]        layers of a tree, from the root's down
    layer_words [y]        32-bit words of a row's mask; 0 in a layer of leaves only
    layer_row [y+1]        where in `row` the rows of a layer begin; a row takes 2 + words places, or 1 without a mask
    layer_entry [y+1]      where in `entry` the entries of a layer begin
    row                    by (layer, feature, group): first entry, first row below, mask; one more closes a layer
    entry                  by row: edge of the group << 8 | 8-bit weight; where many edges have one, a row is dense:
                           8 bits for each edge and for the padding to whole vectors
    label_leaf [L·T]       by label and tree, the leaf that holds the label
    label_position [L·T]   which of the leaf's edges leads to it
    """

    tree_ptr: Int64s
    node_leaf: npt.NDArray[np.uint8]
    node_head: npt.NDArray[np.uint8]
    node_frac: npt.NDArray[np.float32]
    edge_ptr: Int64s
    edge_target: Int32s
    edge_bias: npt.NDArray[np.float32]
    edge_step: npt.NDArray[np.float32]
    layer_ptr: Int64s
    layer_words: Int64s
    layer_row: Int64s
    layer_entry: Int64s
    row: UInt32s
    entry: Entries
    label_leaf: Int32s
    label_position: npt.NDArray[np.uint16]

    @property
    def n_trees(self) -> int:
        return len(self.tree_ptr) - 1


class Places(NamedTuple):
    """Where every node hangs; follows from a trie's shape.

    parent [n]        parent node, -1 at roots
    parent_edge [n]   the edge that leads to the node
    head [n]          first node of the node's group
    way [n]           for heads: which bit of the mask above stands for this group
    layer [n]         layer of the node's group
    n_edges [n]       for heads: edges of the group
    """

    parent: Int32s
    parent_edge: Int32s
    head: Int32s
    way: Int32s
    layer: Int32s
    n_edges: Int32s


@kernel(inline=True)
def dense_from(n_padded: Int, entry_size: Int) -> Int:
    """From how many weights on a row is dense: a third of the edges (a quarter with 32-bit entries) costs hardly any
    space, and vectors are faster."""
    return n_padded // 3 if entry_size == 2 else n_padded // 4


@kernel(inline=True)
def row_stride(words: Int) -> Int:
    """32-bit places that a row takes."""
    return 2 + words if words else 1


@kernel(inline=True)
def padded(n_edges: Int) -> Int:
    """Edges of a group, up to whole vectors."""
    return (n_edges + VECTOR - 1) // VECTOR * VECTOR


def places_of(t: Trie) -> Places:
    n = len(t.node_leaf)
    p = Places(*(np.full(n, -1, np.int32) for _ in Places._fields))
    _find_places(t.tree_ptr, t.node_leaf, t.node_head, t.edge_ptr, t.edge_target, t.layer_ptr, *p)
    return p


@kernel()
def _find_places(
    tree_ptr: Int64s,
    node_leaf: npt.NDArray[np.uint8],
    node_head: npt.NDArray[np.uint8],
    edge_ptr: Int64s,
    edge_target: Int32s,
    layer_ptr: Int64s,
    parent: Int32s,
    parent_edge: Int32s,
    head: Int32s,
    way: Int32s,
    layer: Int32s,
    n_edges: Int32s,
) -> None:
    for tree in range(tree_ptr.size - 1):
        current, ways = tree_ptr[tree], 0
        layer[current] = layer_ptr[tree]
        for node in range(tree_ptr[tree], tree_ptr[tree + 1]):
            if node_head[node]:
                current, ways = node, 0
            head[node] = current
            layer[node] = layer[current]
            n_edges[current] = edge_ptr[node + 1] - edge_ptr[current]
            if node_leaf[node]:
                continue
            for e in range(edge_ptr[node], edge_ptr[node + 1]):
                child = edge_target[e]
                parent[child], parent_edge[child] = node, e
                if node_head[child]:
                    way[child] = ways
                    layer[child] = layer[current] + 1
                    ways += 1


def layer_rows(t: Trie, p: Places, n_features: int) -> Iterator[tuple[int, Int32s, Int32s]]:
    """Every layer with the feature and the group (by its head) of each of its rows."""
    heads = np.flatnonzero((t.node_head == 1) & (p.parent >= 0)).astype(np.int32)
    # The groups below a group are numbered one after the other, so their ways are their order.
    below_ptr = np.searchsorted(p.head[p.parent[heads]], np.arange(len(t.node_leaf) + 1)).astype(np.int64)
    for tree in range(t.n_trees):
        feature, group = np.arange(n_features, dtype=np.int32), np.full(n_features, t.tree_ptr[tree], np.int32)
        for layer in range(t.layer_ptr[tree], t.layer_ptr[tree + 1]):
            yield layer, feature, group
            if t.layer_words[layer]:
                rows = t.row[t.layer_row[layer] : t.layer_row[layer + 1]]
                n = int(rows[1 - row_stride(t.layer_words[layer])])
                below = np.empty(n, np.int32), np.empty(n, np.int32)
                _rows_below(rows, t.layer_words[layer], feature, group, heads, below_ptr, *below)
                feature, group = below


@kernel()
def _rows_below(
    rows: UInt32s,
    words: int,
    feature: Int32s,
    group: Int32s,
    heads: Int32s,
    below_ptr: Int64s,
    out_feature: Int32s,
    out_group: Int32s,
) -> None:
    n = 0
    for r in range(feature.size):
        at = r * row_stride(words)
        for way in range(32 * words):
            if (rows[at + 2 + (way >> 5)] >> np.uint32(way & 31)) & np.uint32(1):
                out_feature[n], out_group[n] = feature[r], heads[below_ptr[group[r]] + way]
                n += 1


def node_major(t: Trie, n_features: int) -> Ensemble:
    """The same regressors by node."""
    p, n_nodes = places_of(t), len(t.node_leaf)
    row_ptr, entry_ptr = np.zeros(n_nodes + 1, np.int64), np.zeros(n_nodes + 1, np.int64)
    _collect(t, p, n_features, row_ptr[1:], entry_ptr[1:], _buffers(0, 0))
    np.cumsum(row_ptr, out=row_ptr)
    np.cumsum(entry_ptr, out=entry_ptr)
    feature, start, edge, weight = buffers = _buffers(int(row_ptr[-1]), int(entry_ptr[-1]))
    _collect(t, p, n_features, row_ptr[:-1].copy(), entry_ptr[:-1].copy(), buffers)
    start -= np.repeat(entry_ptr[:-1], np.diff(row_ptr)).astype(np.uint32)
    return Ensemble(
        t.tree_ptr, t.node_leaf, t.node_frac, t.edge_ptr, t.edge_target, t.edge_bias, t.edge_step,
        row_ptr, feature, start, entry_ptr, edge, weight,
    )  # fmt: skip


_Buffers = tuple[UInt32s, UInt32s, npt.NDArray[np.uint16], npt.NDArray[np.int8]]


def _collect(t: Trie, p: Places, n_features: int, at_row: Int64s, at_entry: Int64s, buffers: _Buffers) -> None:
    for layer, feature, group in layer_rows(t, p, n_features):
        rows = t.row[t.layer_row[layer] : t.layer_row[layer + 1]]
        entries = t.entry[t.layer_entry[layer] : t.layer_entry[layer + 1]]
        stride = row_stride(t.layer_words[layer])
        _by_node(rows, entries, stride, t.edge_ptr, p.n_edges, feature, group, at_row, at_entry, *buffers)


def _buffers(n_rows: int, n_entries: int) -> _Buffers:
    return (
        np.empty(n_rows, np.uint32),
        np.empty(n_rows, np.uint32),
        np.empty(n_entries, np.uint16),
        np.empty(n_entries, np.int8),
    )


@kernel()
def _by_node(
    rows: UInt32s,
    entries: Entries,
    stride: Int,
    edge_ptr: Int64s,
    n_edges: Int32s,
    feature: Int32s,
    group: Int32s,
    at_row: Int64s,
    at_entry: Int64s,
    row_feature: UInt32s,
    row_start: UInt32s,
    entry_edge: npt.NDArray[np.uint16],
    entry_weight: npt.NDArray[np.int8],
) -> None:
    """Hand a layer's entries to their nodes: counted in at_row and at_entry, and written there if there is room."""
    weights = np.empty(padded(n_edges.max()), np.int8)
    for r in range(feature.size):
        head = group[r]
        n = n_edges[head]
        unpack(entries, np.int64(rows[r * stride]), np.int64(rows[(r + 1) * stride]), weights[: padded(n)])
        node, last = head - 1, -1
        for e in range(n):
            if weights[e] == 0:
                continue
            edge = edge_ptr[head] + e
            while edge >= edge_ptr[node + 1]:
                node += 1
            if node != last:
                if row_feature.size:
                    row_feature[at_row[node]], row_start[at_row[node]] = feature[r], at_entry[node]
                at_row[node] += 1
                last = node
            if row_feature.size:
                entry_edge[at_entry[node]], entry_weight[at_entry[node]] = edge - edge_ptr[node], weights[e]
            at_entry[node] += 1


@kernel()
def unpack(entries: Entries, start: Int, stop: Int, weights: npt.NDArray[np.int8]) -> None:
    """The weight of every edge of a group in one row."""
    size = np.int64(entries.itemsize)
    if stop - start == weights.size // size:
        weights[:] = entries[start:stop].view(np.int8)
        return
    weights[:] = 0
    for i in range(start, stop):
        weights[np.int64(entries[i]) >> 8] = np.int8(np.int64(entries[i]) & 255)
