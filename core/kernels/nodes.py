"""Many points at one node: the margins of its edges, for labelwise inference.

A search asks many nodes about one point; here one node is asked about many points. Its rows are spread once into a map
feature → row, then every point adds up from its own features without any search. Row 0 of the map is an empty one, for
the features that the node does not know; the map is undone when the node is done.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.ensemble import Ensemble
from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s

Doubles = npt.NDArray[np.float64]
SOME = 64  # points at once, where their margins stay in cache
_DENSE_ROWS, _DENSE_SIZE = 512, 1 << 20  # rows written out as vectors at most, and their numbers in all


class Spread(NamedTuple):
    """One node's rows, spread out; reused from node to node.

    row_of [D]             row of a feature, counted from 1; 0: the node does not know it
    starts [rows + 2]      entries of row r: starts[r]:starts[r+1], counted from the node's first; row 0 has none
    pairs [rows + 1, 2]    weights of a node with two edges
    dense_of [rows + 1]    where the row stands in `dense`, counted from 1; 0: only in its entries
    dense [some, edges]    rows that reach many edges, as vectors; filled where `dense_of` leads
    met [features]         rows that one point meets, and its values there
    margins [some, edges]  of some points
    """

    row_of: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.uint32]
    pairs: Doubles
    dense_of: npt.NDArray[np.uint32]
    dense: Doubles
    met: npt.NDArray[np.uint32]
    met_values: Doubles
    margins: Doubles


@kernel(inline=True)
def sigmoid(margin: float) -> float:
    """1 / (1 + e^−margin) without a call, so that loops over it become vectors; relative error below 1e-8.

    e^x = (e^(x/1024))^1024: a short series, then ten squarings. Beyond ±87 a 32-bit score is 0 or 1 anyway.
    """
    x = min(max(-margin, -87.0), 87.0) * (1.0 / 1024.0)
    y = 1.0 + x * (1.0 + x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720))))))
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    return 1.0 / (1.0 + y)


@kernel()
def new_spread(e: Ensemble, points: Csr) -> Spread:
    rows, edges = 0, 2
    for node in range(e.node_leaf.size):
        rows = max(rows, e.row_ptr[node + 1] - e.row_ptr[node])
        edges = max(edges, e.edge_ptr[node + 1] - e.edge_ptr[node])
    longest = np.diff(points.indptr).max()
    return Spread(
        np.zeros(points.n_cols, np.uint32),
        np.zeros(rows + 2, np.uint32),
        np.zeros((rows + 1, 2), np.float64),
        np.zeros(rows + 1, np.uint32),
        np.zeros((min(_DENSE_ROWS, _DENSE_SIZE // edges) + 1, edges), np.float64),
        np.empty(longest + 1, np.uint32),
        np.empty(longest + 1, np.float64),
        np.empty((SOME, edges), np.float64),
    )


@kernel()
def spread_rows(e: Ensemble, node: int, spread: Spread) -> None:
    first = e.row_ptr[node]
    n_rows = e.row_ptr[node + 1] - first
    for r in range(n_rows):
        spread.row_of[e.row_feature[first + r]] = r + 1
        spread.starts[r + 1] = e.row_start[first + r]
    spread.starts[0], spread.starts[1] = 0, 0
    spread.starts[n_rows + 1] = e.entry_ptr[node + 1] - e.entry_ptr[node]


@kernel()
def gather_rows(e: Ensemble, node: int, spread: Spread) -> None:
    """Undo `spread_rows`."""
    for row in range(e.row_ptr[node], e.row_ptr[node + 1]):
        spread.row_of[e.row_feature[row]] = 0


@kernel()
def spread_dense(e: Ensemble, node: int, spread: Spread) -> None:
    """Also write the rows that reach an eighth of the edges out as vectors, as far as there is room."""
    first_entry, n_edges = e.entry_ptr[node], e.edge_ptr[node + 1] - e.edge_ptr[node]
    n = 0
    for row in range(1, e.row_ptr[node + 1] - e.row_ptr[node] + 1):
        spread.dense_of[row] = 0
        start, stop = np.int64(spread.starts[row]), np.int64(spread.starts[row + 1])
        if (stop - start) * 8 >= n_edges and n + 1 < spread.dense.shape[0]:
            n += 1
            spread.dense_of[row] = n
            spread.dense[n, :n_edges] = 0.0
            for entry in range(first_entry + start, first_entry + stop):
                spread.dense[n, e.entry_edge[entry]] = e.entry_weight[entry]


@kernel()
def some_margins(e: Ensemble, node: int, points: Csr, ids: Int32s, spread: Spread) -> None:
    """spread.margins[p, k] = bias + step · Σ weight·x of edge k for the point ids[p], at most SOME of them, at a node
    whose rows are spread, densely too. Features are added in their order, whatever the form of their rows."""
    first_edge, first_entry = e.edge_ptr[node], e.entry_ptr[node]
    n_edges = e.edge_ptr[node + 1] - first_edge
    entry_edge, entry_weight = e.entry_edge[first_entry:], e.entry_weight[first_entry:]
    met, met_values = spread.met, spread.met_values
    for p in range(ids.size):
        n, sums = 0, spread.margins[p, :n_edges]
        for j in range(points.indptr[ids[p]], points.indptr[ids[p] + 1]):
            row = spread.row_of[np.uint32(points.indices[j])]
            met[n], met_values[n] = row, points.values[j]
            n += 1 if row > 0 else 0
        sums[:] = 0.0
        for j in range(n):
            row, x = met[j], met_values[j]
            at = spread.dense_of[row]
            if at > 0:
                for k in range(n_edges):
                    sums[k] += x * spread.dense[at, k]
            else:
                for entry in range(spread.starts[row], spread.starts[row + np.uint32(1)]):
                    sums[entry_edge[entry]] += x * entry_weight[entry]
        for k in range(n_edges):
            sums[k] = e.edge_bias[first_edge + k] + e.edge_step[first_edge + k] * sums[k]


@kernel()
def child_scores(
    e: Ensemble, node: int, points: Csr, ids: Int32s, scores: Floats, conditional: bool, spread: Spread, out: Floats
) -> None:
    """out[k, p] = σ(margin of edge k for ids[p]), times scores[p] where edges are conditional on their node."""
    spread_rows(e, node, spread)
    if out.shape[0] == 2:
        margins = np.empty((2, ids.size), np.float64)
        _two_margins(e, node, points, ids, spread, margins)
        for k in range(2):
            for p in range(ids.size):
                out[k, p] = sigmoid(margins[k, p]) * (np.float64(scores[p]) if conditional else 1.0)
    else:
        spread_dense(e, node, spread)
        for start in range(0, ids.size, SOME):
            some = ids[start : start + SOME]
            some_margins(e, node, points, some, spread)
            for k in range(out.shape[0]):
                for p in range(some.size):
                    given = np.float64(scores[start + p]) if conditional else 1.0
                    out[k, start + p] = sigmoid(spread.margins[p, k]) * given
    gather_rows(e, node, spread)


@kernel()
def _two_margins(e: Ensemble, node: int, points: Csr, ids: Int32s, spread: Spread, out: Doubles) -> None:
    """A binary node's weights lie side by side, so that two sums run in registers without a branch."""
    pairs, row_of, first_entry = spread.pairs, spread.row_of, e.entry_ptr[node]
    for row in range(1, e.row_ptr[node + 1] - e.row_ptr[node] + 1):
        pairs[row, 0], pairs[row, 1] = 0.0, 0.0
        for entry in range(first_entry + spread.starts[row], first_entry + spread.starts[row + 1]):
            pairs[row, e.entry_edge[entry]] = e.entry_weight[entry]
    left = e.edge_ptr[node]
    for p in range(ids.size):
        start, stop = points.indptr[ids[p]], points.indptr[ids[p] + 1]
        a, b, c, d = 0.0, 0.0, 0.0, 0.0  # two sums per edge: additions wait for each other
        for j in range(start, stop - 1, 2):
            row, other = row_of[np.uint32(points.indices[j])], row_of[np.uint32(points.indices[j + 1])]
            x, y = np.float64(points.values[j]), np.float64(points.values[j + 1])
            a += x * pairs[row, 0]
            b += x * pairs[row, 1]
            c += y * pairs[other, 0]
            d += y * pairs[other, 1]
        if (stop - start) & 1:
            row, x = row_of[np.uint32(points.indices[stop - 1])], np.float64(points.values[stop - 1])
            a += x * pairs[row, 0]
            b += x * pairs[row, 1]
        out[0, p] = e.edge_bias[left] + e.edge_step[left] * (a + c)
        out[1, p] = e.edge_bias[left + 1] + e.edge_step[left + 1] * (b + d)


@kernel()
def edge_columns(e: Ensemble, node: int) -> tuple[Int64s, npt.NDArray[np.uint32], Floats]:
    """A node's weights by edge: (ptr [edges + 1], features, weights), features rising."""
    first, last = e.entry_ptr[node], e.entry_ptr[node + 1]
    ptr = np.zeros(e.edge_ptr[node + 1] - e.edge_ptr[node] + 1, np.int64)
    for entry in range(first, last):
        ptr[np.int64(e.entry_edge[entry]) + 1] += 1
    for k in range(ptr.size - 1):
        ptr[k + 1] += ptr[k]
    cursor = ptr.copy()
    features, weights = np.empty(last - first, np.uint32), np.empty(last - first, np.float32)
    for row in range(e.row_ptr[node], e.row_ptr[node + 1]):
        stop = first + np.int64(e.row_start[row + 1]) if row + 1 < e.row_ptr[node + 1] else last
        for entry in range(first + np.int64(e.row_start[row]), stop):
            at = cursor[e.entry_edge[entry]]
            features[at], weights[at] = e.row_feature[row], e.entry_weight[entry]
            cursor[e.entry_edge[entry]] = at + 1
    return ptr, features, weights


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
def walk(e: Ensemble, tree: int, n_labels: int) -> Walk:
    root, n_nodes = e.tree_ptr[tree], e.tree_ptr[tree + 1] - e.tree_ptr[tree]
    leaves, first, last = np.empty(n_nodes, np.int64), np.empty(n_nodes, np.int64), np.zeros(n_nodes, np.int64)
    label_leaf, label_edge = np.empty(n_labels, np.int32), np.empty(n_labels, np.int32)
    stack = np.empty(n_nodes, np.int64)
    stack[0], height, n = root, 1, 0
    while height > 0:
        height -= 1
        node = stack[height]
        first[node - root] = n
        if e.node_leaf[node]:
            for edge in range(e.edge_ptr[node], e.edge_ptr[node + 1]):
                label_leaf[e.edge_target[edge]] = n
                label_edge[e.edge_target[edge]] = edge - e.edge_ptr[node]
            leaves[n] = node
            n += 1
            last[node - root] = n
            continue
        for edge in range(e.edge_ptr[node + 1] - 1, e.edge_ptr[node] - 1, -1):
            stack[height] = e.edge_target[edge]
            height += 1
    for node in range(root + n_nodes - 1, root - 1, -1):  # a parent comes before its children
        if not e.node_leaf[node]:
            last[node - root] = last[e.edge_target[e.edge_ptr[node + 1] - 1] - root]
    return Walk(leaves[:n].copy(), first, last, label_leaf, label_edge)
