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
from core.kernels.numbers import popcount
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
    layer_row [y+1]        where in `row` the rows of a layer begin; a row takes 1 + 2 · words places
    layer_entry [y+1]      where in `entry` the entries of a layer begin
    row                    by (layer, feature, group): first entry; for each word of the mask, the first row below of
                           its groups, and the word. One more row closes a layer
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
def dense_from(n_padded: int, entry_size: int) -> int:
    """From how many weights on a row is dense: a third of the edges (a quarter with 32-bit entries) costs hardly any
    space, and vectors are faster. Where one vector holds all edges, from 2 weights on: a loop of unknown length costs
    more than the vector does."""
    if n_padded == VECTOR:
        return 2
    return n_padded // 3 if entry_size == 2 else n_padded // 4


@kernel(inline=True)
def row_stride(words: Int) -> Int:
    """32-bit places that a row takes."""
    return 1 + 2 * words


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
        for word in range(words):
            mask = np.int64(rows[at + 2 + 2 * word])
            while mask:
                way = 32 * word + popcount(np.uint64((mask & -mask) - 1))  # of the lowest bit
                mask &= mask - 1
                out_feature[n], out_group[n] = feature[r], heads[below_ptr[group[r]] + way]
                n += 1


def node_major(t: Trie, n_features: int) -> Ensemble:
    """The same regressors by node."""
    p, n_nodes = places_of(t), len(t.node_leaf)
    node_of_edge = np.repeat(np.arange(n_nodes, dtype=np.int32), np.diff(t.edge_ptr))
    row_ptr, entry_ptr = np.zeros(n_nodes + 1, np.int64), np.zeros(n_nodes + 1, np.int64)
    for part in _layers(t, p, n_features):
        _count(*part, t.edge_ptr, p.n_edges, node_of_edge, row_ptr[1:], entry_ptr[1:])
    np.cumsum(row_ptr, out=row_ptr)
    np.cumsum(entry_ptr, out=entry_ptr)
    rows = np.empty(row_ptr[-1], np.uint32), np.empty(row_ptr[-1], np.uint32)
    edge, weight = np.empty(entry_ptr[-1], np.uint16), np.empty(entry_ptr[-1], np.int8)
    at_row, at_entry = row_ptr[:-1].copy(), entry_ptr[:-1].copy()
    places = entry_ptr, at_row, at_entry
    for part in _layers(t, p, n_features):
        _by_node(*part, t.edge_ptr, p.n_edges, node_of_edge, *places, rows[0], rows[1], edge, weight)
    return Ensemble(
        t.tree_ptr, t.node_leaf, t.node_frac, t.edge_ptr, t.edge_target, t.edge_bias, t.edge_step,
        row_ptr, rows[0], rows[1], entry_ptr, edge, weight,
    )  # fmt: skip


def _layers(t: Trie, p: Places, n_features: int) -> Iterator[tuple[UInt32s, Entries, Int, Int32s, Int32s]]:
    """Of every layer: its rows, its entries, the places that a row takes; feature and group of its rows."""
    for layer, feature, group in layer_rows(t, p, n_features):
        rows = t.row[t.layer_row[layer] : t.layer_row[layer + 1]]
        entries = t.entry[t.layer_entry[layer] : t.layer_entry[layer + 1]]
        yield rows, entries, row_stride(t.layer_words[layer]), feature, group


@kernel()
def _count(
    rows: UInt32s,
    entries: Entries,
    stride: Int,
    feature: Int32s,
    group: Int32s,
    edge_ptr: Int64s,
    n_edges: Int32s,
    node_of_edge: Int32s,
    n_rows: Int64s,
    n_entries: Int64s,
) -> None:
    """Rows and entries of every node in a layer, added up."""
    weights = np.empty(padded(n_edges.max()), np.int8)
    for r in range(feature.size):
        first, last = edge_ptr[group[r]], -1
        start, stop = np.int64(rows[r * stride]), np.int64(rows[(r + 1) * stride])
        dense = is_dense(entries, start, stop, n_edges[group[r]])
        if dense:
            unpack(entries, start, stop, weights[: padded(n_edges[group[r]])])
        for i in range(n_edges[group[r]] if dense else stop - start):
            if dense and weights[i] == 0:
                continue
            node = node_of_edge[first + (i if dense else np.int64(entries[start + i]) >> 8)]
            n_entries[node] += 1
            n_rows[node] += 1 if node != last else 0
            last = node


@kernel()
def _by_node(
    rows: UInt32s,
    entries: Entries,
    stride: Int,
    feature: Int32s,
    group: Int32s,
    edge_ptr: Int64s,
    n_edges: Int32s,
    node_of_edge: Int32s,
    entry_ptr: Int64s,
    at_row: Int64s,
    at_entry: Int64s,
    row_feature: UInt32s,
    row_start: UInt32s,
    entry_edge: npt.NDArray[np.uint16],
    entry_weight: npt.NDArray[np.int8],
) -> None:
    """Hand a layer's entries to their nodes, at the places counted."""
    weights = np.empty(padded(n_edges.max()), np.int8)
    for r in range(feature.size):
        first, last = edge_ptr[group[r]], -1
        start, stop = np.int64(rows[r * stride]), np.int64(rows[(r + 1) * stride])
        dense = is_dense(entries, start, stop, n_edges[group[r]])
        if dense:
            unpack(entries, start, stop, weights[: padded(n_edges[group[r]])])
        for i in range(n_edges[group[r]] if dense else stop - start):
            if dense and weights[i] == 0:
                continue
            packed = np.int64(i << 8) if dense else np.int64(entries[start + i])
            edge = first + (packed >> 8)
            node = node_of_edge[edge]
            at = at_entry[node]
            if node != last:
                row_feature[at_row[node]], row_start[at_row[node]] = feature[r], at - entry_ptr[node]
                at_row[node] += 1
                last = node
            entry_edge[at] = edge - edge_ptr[node]
            entry_weight[at] = weights[i] if dense else np.int8(packed & 255)
            at_entry[node] = at + 1


@kernel(inline=True)
def is_dense(entries: Entries, start: Int, stop: Int, n_edges: Int) -> bool:
    return stop - start == padded(n_edges) // entries.itemsize


@kernel()
def unpack(entries: Entries, start: Int, stop: Int, weights: npt.NDArray[np.int8]) -> None:
    """The weight of every edge of a group in a dense row."""
    weights[:] = entries[start:stop].view(np.int8)
