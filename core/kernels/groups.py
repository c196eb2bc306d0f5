"""Many points at one group: the margins of its edges, for labelwise inference.

A search asks many groups about one point; here one group is asked about many points. Its rows are spread once into a
map feature → row, then every point adds up from its own features without any search. Rows that reach many edges become
vectors of 8-bit weights; those of narrow groups are such from the start. The map is undone when the group is done.
Sums are 32-bit numbers in the order of the features, so that a margin has the same bits wherever it is computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.groups import Groups
from core.jit import kernel
from core.kernels.numbers import logistic
from core.kernels.vectors import add_vectors
from core.sparse import Csr, Floats, Int32s, Int64s
from core.trie import VECTOR, Entries, is_dense, padded

Doubles = npt.NDArray[np.float64]
SOME = 64  # points at once, where their margins stay in cache
_MANY = 8  # a row that reaches one in so many edges becomes a vector


class Spread(NamedTuple):
    """One group's rows, spread out; reused from group to group.

    row_of [D]             row of a feature, counted from 1; 0: the group does not know it
    starts [rows + 2]      entries of row r: starts[r]:starts[r+1], counted from the group's first
    vector_of [rows + 1]   which of the vectors is the row's, counted from 1; 0: only its entries are
    vectors                8-bit weights of all edges, padded: vector v stands at v · padded(edges)
    met [features + some]  rows that one point meets, and its values there
    margins [some, edges]  of some points; edges are padded
    """

    row_of: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.uint32]
    vector_of: npt.NDArray[np.uint32]
    vectors: npt.NDArray[np.int8]
    met: npt.NDArray[np.uint32]
    met_values: Floats
    margins: Floats


@kernel()
def new_spread(g: Groups, points: Csr) -> Spread:
    rows, edges, size = 0, 0, 0
    for head in range(g.node_head.size):
        if g.node_head[head]:
            n_rows, room = g.row_ptr[head + 1] - g.row_ptr[head], padded(g.n_edges[head])
            rows, edges = max(rows, n_rows), max(edges, room)
            # A row becomes a vector of at most 8 bytes for each of its entries.
            most = min(n_rows * room, _MANY * (g.entry_ptr[head + 1] - g.entry_ptr[head]))
            size = max(size, room + (most if room > VECTOR else 0))
    longest = np.diff(points.indptr).max()
    return Spread(
        np.zeros(points.n_cols, np.uint32),
        np.zeros(rows + 2, np.uint32),
        np.zeros(rows + 1, np.uint32),
        np.empty(size, np.int8),
        np.empty(longest, np.uint32),
        np.empty(longest, np.float32),
        np.empty((SOME, edges), np.float32),
    )


@kernel()
def spread_rows(g: Groups, head: int, spread: Spread) -> None:
    first, room = g.row_ptr[head], padded(g.n_edges[head])
    n_rows = g.row_ptr[head + 1] - first
    for r in range(n_rows):
        spread.row_of[g.row_feature[first + r]] = r + 1
    if room > VECTOR:
        spread.starts[1 : n_rows + 1] = g.row_start[first : first + n_rows]
        spread.starts[n_rows + 1] = g.entry_ptr[head + 1] - g.entry_ptr[head]
        _write_vectors(g.entry[g.entry_ptr[head] : g.entry_ptr[head + 1]], n_rows, room, spread)


@kernel()
def _write_vectors(entry: Entries, n_rows: int, room: int, spread: Spread) -> None:
    """The weights of all edges, in the rows that reach many."""
    starts, vectors, raw, size = spread.starts, spread.vectors, entry.view(np.int8), entry.itemsize
    at = 0
    for row in range(1, n_rows + 1):
        start, stop = np.int64(starts[row]), np.int64(starts[row + 1])
        if (stop - start) * _MANY < room:
            spread.vector_of[row] = 0
            continue
        at += room
        spread.vector_of[row] = at // room
        if (stop - start) * size == room:  # the row is dense
            for k in range(room):
                vectors[at + k] = raw[start * size + k]
            continue
        for k in range(room):
            vectors[at + k] = 0
        for i in range(start, stop):
            packed = np.int64(entry[i])
            vectors[at + (packed >> 8)] = np.int8(packed & 255)


@kernel()
def gather_rows(g: Groups, head: int, spread: Spread) -> None:
    """Undo `spread_rows`."""
    for row in range(g.row_ptr[head], g.row_ptr[head + 1]):
        spread.row_of[g.row_feature[row]] = 0


@kernel()
def some_margins(g: Groups, head: int, points: Csr, ids: Int32s, spread: Spread) -> None:
    """spread.margins[p, k] = bias + step · Σ weight·x of edge k for the point ids[p], at most SOME of them, at a group
    whose rows are spread."""
    n_edges, first = np.int64(g.n_edges[head]), g.edge_ptr[head]
    bias, step = g.edge_bias[first : first + n_edges], g.edge_step[first : first + n_edges]
    room, entry = padded(n_edges), g.entry[g.entry_ptr[head] : g.entry_ptr[head + 1]]
    raw = entry.view(np.int8)
    met, x, margins = spread.met, spread.met_values, spread.margins
    for p in range(ids.size):
        n = _meet(points, ids[p], spread.row_of, met, x)
        sums = margins[p, :room]
        if room == VECTOR:
            add_vectors(raw, met, x, n, sums)
        else:
            _add_rows(n, entry, spread, sums)
        for k in range(n_edges):
            sums[k] = bias[k] + step[k] * sums[k]


@kernel(inline=True)
def _meet(points: Csr, i: int, row_of: npt.NDArray[np.uint32], met: npt.NDArray[np.uint32], x: Floats) -> int:
    """The rows that a point meets, and its values there; returns how many."""
    n = np.uint64(0)
    for j in range(np.uint64(points.indptr[i]), np.uint64(points.indptr[i + 1])):
        row = row_of[np.uint32(points.indices[j])]
        met[n], x[n] = row, points.values[j]
        n += np.uint64(row > 0)
    return np.int64(n)


@kernel(inline=True)
def _add_rows(n: int, entry: Entries, spread: Spread, sums: Floats) -> None:
    """sums [padded edges] = Σ weight·x over the n rows met, by vectors and by entries."""
    room = sums.size
    sums[:] = 0.0
    for j in range(n):
        row, x = spread.met[j], spread.met_values[j]
        first = np.uint64(spread.vector_of[row]) * np.uint64(room)
        if first > 0:
            for k in range(room):
                sums[k] += x * np.float32(spread.vectors[first + np.uint64(k)])
        else:
            for i in range(spread.starts[row], spread.starts[row + np.uint32(1)]):
                packed = np.int64(entry[i])
                sums[packed >> 8] += x * np.float32(np.int8(packed & 255))


@kernel()
def edge_scores(g: Groups, head: int, points: Csr, ids: Int32s, spread: Spread) -> Floats:
    """σ(margin) [edges of the group, points]: the probability of every edge, given its node."""
    n_edges = np.int64(g.n_edges[head])
    out, room = np.empty((n_edges, ids.size), np.float32), padded(n_edges)
    spread_rows(g, head, spread)
    for start in range(0, ids.size, SOME):
        some = ids[start : start + SOME]
        some_margins(g, head, points, some, spread)
        for p in range(some.size):
            for k in range(room):
                spread.margins[p, k] = logistic(spread.margins[p, k])
        for k in range(n_edges):
            for p in range(some.size):
                out[k, start + p] = spread.margins[p, k]
    gather_rows(g, head, spread)
    return out


@kernel()
def edge_columns(g: Groups, head: int) -> tuple[Int64s, npt.NDArray[np.uint32], Floats]:
    """A group's weights by edge: (ptr [edges + 1], features, weights), features rising; some may be 0."""
    n_edges, most = np.int64(g.n_edges[head]), (g.entry_ptr[head + 1] - g.entry_ptr[head]) * g.entry.itemsize
    edge, weight, row = np.empty(most, np.int32), np.empty(most, np.int8), np.empty(most, np.int64)
    n, ptr = _unpacked(g, head, edge, weight, row), np.zeros(n_edges + 1, np.int64)
    for i in range(n):
        ptr[edge[i] + 1] += 1
    for k in range(n_edges):
        ptr[k + 1] += ptr[k]
    cursor, features, weights = ptr.copy(), np.empty(n, np.uint32), np.empty(n, np.float32)
    for i in range(n):
        at = cursor[edge[i]]
        features[at], weights[at] = g.row_feature[row[i]], weight[i]
        cursor[edge[i]] = at + 1
    return ptr, features, weights


@kernel()
def _unpacked(g: Groups, head: int, edge: Int32s, weight: npt.NDArray[np.int8], row: Int64s) -> int:
    """Edge, weight and row of all entries of a group, in their order; returns how many there are."""
    first, last, n_edges, n = g.entry_ptr[head], g.entry_ptr[head + 1], np.int64(g.n_edges[head]), 0
    raw, size = g.entry.view(np.int8), g.entry.itemsize
    for r in range(g.row_ptr[head], g.row_ptr[head + 1]):
        start = first + np.int64(g.row_start[r])
        stop = first + np.int64(g.row_start[r + 1]) if r + 1 < g.row_ptr[head + 1] else last
        dense = is_dense(g.entry, start, stop, n_edges)
        for i in range(n_edges if dense else stop - start):
            packed = np.int64(g.entry[start + (0 if dense else i)])
            edge[n] = i if dense else packed >> 8
            weight[n] = raw[start * size + i] if dense else np.int8(packed & 255)
            row[n] = r
            n += 1
    return n


class Walk(NamedTuple):
    """One tree from left to right: its leaves in that order, and where nodes and labels find theirs.

    leaf_node [leaves]    node of a leaf
    first_leaf [nodes+1]  leaves below node n of the tree (counted from its root): first_leaf[n] … last_leaf[n] − 1
    label_leaf [labels]   leaf of a label
    label_edge [labels]   its edge, counted from the leaf's first
    """

    leaf_node: Int64s
    first_leaf: Int64s
    last_leaf: Int64s
    label_leaf: Int32s
    label_edge: Int32s


@kernel()
def walk(g: Groups, tree: int, n_labels: int) -> Walk:
    root, n_nodes = g.tree_ptr[tree], g.tree_ptr[tree + 1] - g.tree_ptr[tree]
    leaves, first, last = np.empty(n_nodes, np.int64), np.empty(n_nodes, np.int64), np.zeros(n_nodes, np.int64)
    label_leaf, label_edge = np.empty(n_labels, np.int32), np.empty(n_labels, np.int32)
    stack = np.empty(n_nodes, np.int64)
    stack[0], height, n = root, 1, 0
    while height > 0:
        height -= 1
        node = stack[height]
        first[node - root] = n
        if g.node_leaf[node]:
            for edge in range(g.edge_ptr[node], g.edge_ptr[node + 1]):
                label_leaf[g.edge_target[edge]] = n
                label_edge[g.edge_target[edge]] = edge - g.edge_ptr[node]
            leaves[n] = node
            n += 1
            last[node - root] = n
            continue
        for edge in range(g.edge_ptr[node + 1] - 1, g.edge_ptr[node] - 1, -1):
            stack[height] = g.edge_target[edge]
            height += 1
    for node in range(root + n_nodes - 1, root - 1, -1):  # a parent comes before its children
        if not g.node_leaf[node]:
            last[node - root] = last[g.edge_target[g.edge_ptr[node + 1] - 1] - root]
    return Walk(leaves[:n].copy(), first, last, label_leaf, label_edge)
