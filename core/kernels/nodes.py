"""Many points at one node: the margins of its edges, for labelwise inference.

A search asks many nodes about one point; here one node is asked about many points. Its rows are spread once into a map
feature → row, then every point adds up from its own features without any search. Row 0 of the map is an empty one, for
the features that the node does not know; the map is undone when the node is done.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.model import Ensemble
from core.sparse import Csr, Floats, Int32s, Int64s

Doubles = npt.NDArray[np.float64]


class Spread(NamedTuple):
    """One node's rows, spread out; reused from node to node.

    row_of [D]           row of a feature, counted from 1; 0: the node does not know it
    starts [rows + 2]    entries of row r: starts[r]:starts[r+1], counted from the node's first; row 0 has none
    pairs [rows + 1, 2]  weights of a node with two edges
    sums [edges]         margins of one point
    """

    row_of: Int32s
    starts: Int64s
    pairs: Floats
    sums: Doubles


@kernel()
def new_spread(e: Ensemble, n_features: int) -> Spread:
    rows, edges = 0, 2
    for node in range(e.node_leaf.size):
        rows = max(rows, e.row_ptr[node + 1] - e.row_ptr[node])
        edges = max(edges, e.edge_ptr[node + 1] - e.edge_ptr[node])
    return Spread(
        np.zeros(n_features, np.int32),
        np.zeros(rows + 2, np.int64),
        np.zeros((rows + 1, 2), np.float32),
        np.zeros(edges, np.float64),
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
def point_margins(e: Ensemble, node: int, points: Csr, i: int, spread: Spread) -> None:
    """spread.sums[k] = bias + step · Σ weight·x of edge k, for one point at a node whose rows are spread."""
    first_edge, first_entry = e.edge_ptr[node], e.entry_ptr[node]
    n_edges = e.edge_ptr[node + 1] - first_edge
    sums = spread.sums
    for k in range(n_edges):
        sums[k] = 0.0
    for j in range(points.indptr[i], points.indptr[i + 1]):
        row = spread.row_of[points.indices[j]]
        x = np.float64(points.values[j])
        for entry in range(first_entry + spread.starts[row], first_entry + spread.starts[row + 1]):
            sums[e.entry_edge[entry]] += x * e.entry_weight[entry]
    for k in range(n_edges):
        sums[k] = e.edge_bias[first_edge + k] + e.edge_step[first_edge + k] * sums[k]


@kernel()
def edge_margins(e: Ensemble, node: int, points: Csr, ids: Int32s, spread: Spread, out: Doubles) -> None:
    """out[k, p] = margin of edge k for the point ids[p]."""
    spread_rows(e, node, spread)
    if e.edge_ptr[node + 1] - e.edge_ptr[node] == 2:
        _two_margins(e, node, points, ids, spread, out)
    else:
        for p in range(ids.size):
            point_margins(e, node, points, ids[p], spread)
            for k in range(out.shape[0]):
                out[k, p] = spread.sums[k]
    gather_rows(e, node, spread)


@kernel()
def _two_margins(e: Ensemble, node: int, points: Csr, ids: Int32s, spread: Spread, out: Doubles) -> None:
    """A binary node's weights lie side by side, so that two sums run in registers without a branch."""
    pairs, first_entry = spread.pairs, e.entry_ptr[node]
    for row in range(1, e.row_ptr[node + 1] - e.row_ptr[node] + 1):
        pairs[row, 0], pairs[row, 1] = 0.0, 0.0
        for entry in range(first_entry + spread.starts[row], first_entry + spread.starts[row + 1]):
            pairs[row, e.entry_edge[entry]] = e.entry_weight[entry]
    left = e.edge_ptr[node]
    for p in range(ids.size):
        a, b = 0.0, 0.0
        for j in range(points.indptr[ids[p]], points.indptr[ids[p] + 1]):
            row = spread.row_of[points.indices[j]]
            x = np.float64(points.values[j])
            a += x * np.float64(pairs[row, 0])
            b += x * np.float64(pairs[row, 1])
        out[0, p] = e.edge_bias[left] + e.edge_step[left] * a
        out[1, p] = e.edge_bias[left + 1] + e.edge_step[left + 1] * b


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
