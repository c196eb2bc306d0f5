"""The best leaf of every point in one tree, for recipes whose labels are weighed against it.

With raw targets a label's score is own · (P_leaf / best P_leaf)^blend. The best leaf is the one that pointwise search
finds with the recipe's beam, so that both ways of inference give a pair the same score; it depends on neither quotas
nor blocks. Level by level for some thousand points at once, each node asked about all points that have it in their
beam.
"""

from __future__ import annotations

import numpy as np

from core.ensemble import Ensemble
from core.jit import kernel
from core.kernels.labelwise import retain
from core.kernels.nodes import Spread, child_scores
from core.sparse import Csr, Floats, Int32s, Int64s

_CHUNK = 4096


@kernel()
def best_leaves(e: Ensemble, tree: int, beam: int, points: Csr, spread: Spread, out: Floats) -> None:
    """out[i] = largest score of a leaf in the last beam of point i; nodes score σ(margin), not conditional."""
    n_points = points.indptr.size - 1
    for start in range(0, n_points, _CHUNK):
        n = min(_CHUNK, n_points - start)
        ptr, nodes = np.arange(n + 1), np.full(n, e.tree_ptr[tree], np.int32)
        scores = np.ones(n, np.float32)
        while not e.node_leaf[nodes].all():
            ptr, nodes, scores = _expand(e, points, start, ptr, nodes, scores, spread)
            if not e.node_leaf[nodes].all():
                ptr, nodes, scores = _trim(ptr, nodes, scores, beam)
        for p in range(n):
            out[start + p] = scores[ptr[p] : ptr[p + 1]].max()


@kernel()
def _expand(
    e: Ensemble, points: Csr, start: int, ptr: Int64s, nodes: Int32s, scores: Floats, spread: Spread
) -> tuple[Int64s, Int32s, Floats]:
    """Children in place of inner nodes; leaves stay. Entries of point p are ptr[p]:ptr[p+1]."""
    place, owner = np.empty(nodes.size + 1, np.int64), np.empty(nodes.size, np.int32)
    below = np.zeros(ptr.size, np.int64)
    n = 0
    for p in range(ptr.size - 1):
        for f in range(ptr[p], ptr[p + 1]):
            place[f], owner[f] = n, start + p
            n += 1 if e.node_leaf[nodes[f]] else e.edge_ptr[nodes[f] + 1] - e.edge_ptr[nodes[f]]
        below[p + 1] = n
    out_nodes, out_scores = np.empty(n, np.int32), np.empty(n, np.float32)
    order = np.argsort(nodes, kind="mergesort")
    first = 0
    while first < order.size:
        node, last = nodes[order[first]], first
        while last < order.size and nodes[order[last]] == node:
            last += 1
        here = order[first:last]
        first = last
        if e.node_leaf[node]:
            for f in here:
                out_nodes[place[f]], out_scores[place[f]] = node, scores[f]
            continue
        n_edges = e.edge_ptr[node + 1] - e.edge_ptr[node]
        children = np.empty((n_edges, here.size), np.float32)
        child_scores(e, node, points, owner[here], scores[here], False, spread, children)
        for h in range(here.size):
            for k in range(n_edges):
                out_nodes[place[here[h]] + k] = e.edge_target[e.edge_ptr[node] + k]
                out_scores[place[here[h]] + k] = children[k, h]
    return below, out_nodes, out_scores


@kernel()
def _trim(ptr: Int64s, nodes: Int32s, scores: Floats, beam: int) -> tuple[Int64s, Int32s, Floats]:
    """The `beam` best entries of every point, in their order."""
    kept = np.zeros(ptr.size, np.int64)
    for p in range(ptr.size - 1):
        kept[p + 1] = kept[p] + min(beam, ptr[p + 1] - ptr[p])
    out_nodes, out_scores = np.empty(kept[-1], np.int32), np.empty(kept[-1], np.float32)
    for p in range(ptr.size - 1):
        here, there = slice(ptr[p], ptr[p + 1]), slice(kept[p], kept[p + 1])
        retain(scores[here], nodes[here], kept[p + 1] - kept[p], out_nodes[there], out_scores[there])
    return kept, out_nodes, out_scores
