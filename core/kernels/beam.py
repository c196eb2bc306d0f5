"""Pointwise inference: beam search down each tree, average, re-rank, the k best.

One call answers a run of points with scratch that it allocates once. Ties are broken by the lower id everywhere, so an
answer does not depend on the order of features or of work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.model import Ensemble, Scoring
from core.sparse import Floats, Int32s, Int64s

Doubles = npt.NDArray[np.float64]
TREE_TOP = 100  # labels that a tree contributes at most


class Scratch(NamedTuple):
    """Buffers of one search, large enough for any level of the beam."""

    nodes: Int64s
    paths: Doubles
    ids: Int64s
    scores: Doubles
    margins: Doubles


@kernel()
def new_scratch(e: Ensemble, beam: int) -> Scratch:
    widest = 1
    for node in range(e.edge_ptr.size - 1):
        widest = max(widest, e.edge_ptr[node + 1] - e.edge_ptr[node])
    room = (beam + 1) * widest
    return Scratch(
        np.empty(room, np.int64),
        np.empty(room, np.float64),
        np.empty(room, np.int64),
        np.empty(room, np.float64),
        np.empty(widest, np.float64),
    )


@kernel(inline=True)
def sigmoid(margin: float) -> float:
    return float(1.0 / (1.0 + np.exp(-margin)))


@kernel()
def node_margins(e: Ensemble, node: int, features: Int32s, values: Floats, margins: Doubles) -> int:
    """margins[:edges] = bias + step · Σ weight·x over the features that the node knows; returns the edges.

    `features` rise, and so do the node's rows: each search begins where the last one ended.
    """
    first_edge = e.edge_ptr[node]
    n_edges = e.edge_ptr[node + 1] - first_edge
    for k in range(n_edges):
        margins[k] = 0.0
    row, last_row = e.row_ptr[node], e.row_ptr[node + 1]
    first_entry, last_entry = e.entry_ptr[node], e.entry_ptr[node + 1]
    for j in range(features.size):
        row = _find(e.row_feature, row, last_row, features[j])
        if row == last_row:
            break
        if e.row_feature[row] != features[j]:
            continue
        start = first_entry + np.int64(e.row_start[row])
        stop = first_entry + np.int64(e.row_start[row + 1]) if row + 1 < last_row else last_entry
        x = np.float64(values[j])
        for entry in range(start, stop):
            margins[e.entry_edge[entry]] += x * e.entry_weight[entry]
    for k in range(n_edges):
        margins[k] = e.edge_bias[first_edge + k] + e.edge_step[first_edge + k] * margins[k]
    return int(n_edges)


@kernel()
def _find(row_feature: npt.NDArray[Any], low: int, high: int, feature: int) -> int:
    """The first row in low:high whose feature is not below `feature`: galloping, then bisection."""
    step = 1
    while low + step < high and row_feature[low + step] < feature:
        low += step
        step *= 2
    high = min(high, low + step + 1)
    while low < high:
        middle = (low + high) >> 1
        if row_feature[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return low


@kernel()
def best(scores: Doubles, ids: Int64s, n: int, keep: int) -> int:
    """Move the `keep` best of the first n (score, id) pairs to the front, best first; returns how many."""
    keep = min(keep, n)
    if keep < n:
        cut = np.partition(-scores[:n], keep - 1)[keep - 1]
        kept = 0
        for i in range(n):  # everything better than the cut, then those equal to it by lower id
            if -scores[i] < cut:
                scores[i], scores[kept] = scores[kept], scores[i]
                ids[i], ids[kept] = ids[kept], ids[i]
                kept += 1
        while kept < keep:
            lowest = -1
            for i in range(kept, n):
                if -scores[i] == cut and (lowest < 0 or ids[i] < ids[lowest]):
                    lowest = i
            scores[lowest], scores[kept] = scores[kept], scores[lowest]
            ids[lowest], ids[kept] = ids[kept], ids[lowest]
            kept += 1
    order = np.argsort(ids[:keep], kind="mergesort")
    order = order[np.argsort(-scores[:keep][order], kind="mergesort")]
    scores[:keep] = scores[:keep][order]
    ids[:keep] = ids[:keep][order]
    return keep


@kernel()
def descend_tree(
    e: Ensemble,
    tree: int,
    conditional: bool,
    beam: int,
    features: Int32s,
    values: Floats,
    nodes: Int64s,
    scores: Doubles,
    margins: Doubles,
) -> int:
    """The `beam` best leaves of a tree, best first: nodes[:n], scores[:n]; returns n.

    Level by level; a leaf that is reached early waits in the beam and competes with what lies deeper.
    """
    nodes[0], scores[0] = e.tree_ptr[tree], 1.0
    n = 1
    while True:
        found, grew = n, False
        for b in range(n):
            node = nodes[b]
            if e.node_leaf[node]:
                continue
            grew = True
            n_edges = node_margins(e, node, features, values, margins)
            for k in range(n_edges):
                score = sigmoid(margins[k]) * (scores[b] if conditional else 1.0)
                child = np.int64(e.edge_target[e.edge_ptr[node] + k])
                if k == 0:
                    nodes[b], first_score = child, score  # the first child takes its parent's place
                else:
                    nodes[found], scores[found] = child, score
                    found += 1
            scores[b] = first_score
        if not grew:
            return n
        n = best(scores, nodes, found, beam)


@kernel()
def tree_labels(
    e: Ensemble,
    tree: int,
    scoring: Scoring,
    beam: int,
    label_points: Int32s,
    features: Int32s,
    values: Floats,
    scratch: Scratch,
) -> int:
    """The labels that one tree contributes: scratch.ids[:n], scratch.scores[:n], best first; returns n."""
    nodes, paths, margins = scratch.nodes, scratch.paths, scratch.margins
    n_leaves = descend_tree(e, tree, scoring.conditional, beam, features, values, nodes, paths, margins)
    n = 0
    for b in range(n_leaves):
        path = paths[b]
        if not scoring.conditional:
            path = (paths[b] / paths[0]) ** scoring.blend if paths[0] > 0.0 else 1.0
        n_edges = node_margins(e, nodes[b], features, values, margins)
        for k in range(n_edges):
            label = e.edge_target[e.edge_ptr[nodes[b]] + k]
            score = min(max(margins[k], 0.0), 1.0) if scoring.ridge_leaves else sigmoid(margins[k])
            score *= path
            if score > 0.0 and label_points[label] > 0:  # a label never seen in training scores 0
                scratch.scores[n] = score
                scratch.ids[n] = label
                n += 1
    return best(scratch.scores, scratch.ids, n, TREE_TOP)


@kernel()
def predict_rows(
    e: Ensemble,
    scoring: Scoring,
    beam: int,
    k: int,
    label_points: Int32s,
    indptr: Int64s,
    indices: Int32s,
    values: Floats,
    out_labels: npt.NDArray[np.int32],
    out_scores: Floats,
    out_counts: Int64s,
) -> None:
    """The k best labels of every row by the mean over trees: out_labels, out_scores [rows, k], out_counts [rows].

    Rows are unit vectors in the model's features. A label that a tree did not return counts 0 there.
    """
    n_trees = e.tree_ptr.size - 1
    scratch = new_scratch(e, beam)
    total = np.zeros(label_points.size, np.float64)
    found, means = np.empty(n_trees * TREE_TOP, np.int64), np.empty(n_trees * TREE_TOP, np.float64)
    for i in range(indptr.size - 1):
        features, x = indices[indptr[i] : indptr[i + 1]], values[indptr[i] : indptr[i + 1]]
        n_found = 0
        for tree in range(n_trees):
            n = tree_labels(e, tree, scoring, beam, label_points, features, x, scratch)
            for c in range(n):
                label = scratch.ids[c]
                if total[label] == 0.0:
                    found[n_found] = label
                    n_found += 1
                total[label] += scratch.scores[c]
        for c in range(n_found):
            means[c] = total[found[c]] / n_trees
            total[found[c]] = 0.0
        n = best(means, found, n_found, k)
        for c in range(n):
            out_labels[i, c] = found[c]
            out_scores[i, c] = means[c]
        out_counts[i] = n


@kernel()
def route_rows(
    e: Ensemble, conditional: bool, beam: int, indptr: Int64s, indices: Int32s, values: Floats, out_nodes: Int32s
) -> None:
    """The beam's leaves for every row in the first tree, best first: out_nodes [rows, beam], -1 beyond."""
    scratch = new_scratch(e, beam)
    for i in range(indptr.size - 1):
        features, x = indices[indptr[i] : indptr[i + 1]], values[indptr[i] : indptr[i + 1]]
        n = descend_tree(e, 0, conditional, beam, features, x, scratch.nodes, scratch.paths, scratch.margins)
        for b in range(n):
            out_nodes[i, b] = scratch.nodes[b]
