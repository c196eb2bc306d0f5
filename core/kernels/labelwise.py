"""Labelwise inference in one tree: points go down by quota, labels keep the best points of their leaf.

The algorithm of the paper's appendix. Every point starts at the root with score 1; child c of node n keeps the best
min(|points(n)|, ⌈F · N · frac(c)⌉) points of n; a label keeps its best points among those of its leaf. The walk is
depth first, so the points of a subtree stay in cache. With raw targets a label scores only where its leaf is in the
point's beam: there beams send the points, and quotas hold at leaves. Ties, at nodes and at labels, are won by the lower
point id.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.groups import Groups
from core.jit import kernel
from core.kernels.groups import (
    SOME,
    Spread,
    edge_scores,
    gather_rows,
    some_margins,
    spread_rows,
)
from core.kernels.numbers import logistic
from core.kernels.search import Scoring
from core.sparse import Csr, Floats, Int32s, Int64s

_RUNS, _ONE = 256, 0x3F800000  # runs of `by_falling`; the bits of 1.0
_TINY = np.float32(1e-45)  # the least number above 0


class Visits(NamedTuple):
    """The points that reach the leaves of one tree, by leaf (from left to right) and rising id.

    ptr [leaves + 1]  visits of a leaf
    point, score [n]  who, and with which probability of the leaf
    """

    ptr: Int64s
    point: Int32s
    score: Floats


@kernel()
def quota(g: Groups, node: int, factor: float, n_points: int) -> int:
    """⌈F · N · frac⌉, at most N; a node whose labels no training point had gets none."""
    return int(min(np.ceil(factor * n_points * np.float64(g.node_frac[node])), np.float64(n_points)))


@kernel()
def visit_leaves(g: Groups, tree: int, leaf_node: Int64s, factor: float, points: Csr, spread: Spread) -> Visits:
    """Send all points of a block down one tree, from group to group; edges are conditional on their nodes."""
    n_points = points.indptr.size - 1
    ids, scores = np.empty(4 * n_points + 16, np.int32), np.empty(4 * n_points + 16, np.float32)
    ids[:n_points] = np.arange(n_points)
    scores[:n_points] = 1.0
    inner = np.empty(4 * n_points + 16, np.int32), np.empty(4 * n_points + 16, np.float32)
    out_point, out_score = np.empty(8 * n_points + 16, np.int32), np.empty(8 * n_points + 16, np.float32)
    ptr = np.zeros(leaf_node.size + 1, np.int64)
    stack = new_stack(g, tree)
    height, n_leaves, n_out = push(stack, 0, g.tree_ptr[tree], 0, n_points), 0, 0
    while height > 0:
        height -= 1
        head, start, stop = stack[height]
        n = stop - start
        if not g.node_leaf[head]:
            edges = edge_scores(g, head, points, ids[start:stop], spread)
            height, ids, scores, inner = _send_down(g, edges, factor, n_points, stack, height, ids, scores, inner)
            continue
        out_point, out_score = grown(out_point, out_score, n_out + n)
        out_point[n_out : n_out + n] = ids[start:stop]
        out_score[n_out : n_out + n] = scores[start:stop]
        n_out += n
        n_leaves += 1
        ptr[n_leaves] = n_out
    return Visits(ptr, out_point[:n_out].copy(), out_score[:n_out].copy())


@kernel()
def _send_down(
    g: Groups,
    edges: Floats,
    factor: float,
    n_points: int,
    stack: Int64s,
    height: int,
    ids: Int32s,
    scores: Floats,
    inner: tuple[Int32s, Floats],
) -> tuple[int, Int32s, Floats, tuple[Int32s, Floats]]:
    """Replace the group that was on top of the stack by the groups below it, so that the leftmost comes first.

    edges [edges of the group, its points]; ids and scores of what is on the stack may move where they need more room.
    Inside, nodes have lists of places in the group's list, and those on their way are a second stack, in `inner`.
    """
    head, start, at = stack[height]
    n, first = at - start, g.edge_ptr[head]
    places, products = grown(inner[0], inner[1], n)
    places[:n] = np.arange(n)
    products[:n] = scores[start:at]
    waiting = np.empty((g.n_edges[head] + 1, 3), np.int64)
    left = push(waiting, 0, head, 0, n)
    while left > 0:
        left -= 1
        node, begin, end = waiting[left]
        here = places[begin:end]
        if node != head and g.node_head[node]:
            ids, scores = grown(ids, scores, at + end - begin)
            ids[at : at + end - begin] = ids[start : start + n][here]
            scores[at : at + end - begin] = products[begin:end]
            height = push(stack, height, node, at, at + end - begin)
            at += end - begin
            continue
        top = end
        places, products = grown(places, products, end + (g.edge_ptr[node + 1] - g.edge_ptr[node]) * (end - begin))
        for e in range(g.edge_ptr[node], g.edge_ptr[node + 1]):
            below = products[begin:end] * edges[e - first][here]
            keep = min(end - begin, quota(g, g.edge_target[e], factor, n_points))
            retain(below, here, keep, places[top : top + keep], products[top : top + keep])
            left = push(waiting, left, g.edge_target[e], top, top + keep)
            top += keep
    return height, ids, scores, (places, products)


@kernel()
def new_stack(g: Groups, tree: int) -> Int64s:
    """Room for all nodes of a tree, each with a list: (node, first place, first after it)."""
    return np.empty((g.tree_ptr[tree + 1] - g.tree_ptr[tree], 3), np.int64)


@kernel(inline=True)
def push(stack: Int64s, height: int, node: int, start: int, stop: int) -> int:
    """Returns the new height."""
    stack[height, 0], stack[height, 1], stack[height, 2] = node, start, stop
    return height + 1


@kernel()
def routed_visits(nodes: Int32s, paths: Floats, leaf_of_node: Int32s, n_leaves: int) -> Visits:
    """The visits of all points to the leaves in their beams: nodes, paths [points, beam], -1 where there is none."""
    ptr = np.zeros(n_leaves + 1, np.int64)
    for node in nodes.flat:
        if node >= 0:
            ptr[leaf_of_node[node] + 1] += 1
    for leaf in range(n_leaves):
        ptr[leaf + 1] += ptr[leaf]
    cursor = ptr[:-1].copy()
    point, score = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.float32)
    for i in range(nodes.shape[0]):
        for b in range(nodes.shape[1]):
            if nodes[i, b] >= 0:
                at = cursor[leaf_of_node[nodes[i, b]]]
                point[at], score[at] = i, paths[i, b]
                cursor[leaf_of_node[nodes[i, b]]] = at + 1
    return Visits(ptr, point, score)


@kernel()
def within_quota(g: Groups, leaf_node: Int64s, factor: float, n_points: int, visits: Visits) -> Visits:
    """The best visits of every leaf, as many as its quota."""
    ptr = np.zeros(leaf_node.size + 1, np.int64)
    for leaf in range(leaf_node.size):
        n = visits.ptr[leaf + 1] - visits.ptr[leaf]
        ptr[leaf + 1] = ptr[leaf] + min(n, quota(g, leaf_node[leaf], factor, n_points))
    point, score = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.float32)
    for leaf in range(leaf_node.size):
        all_of, kept = slice(visits.ptr[leaf], visits.ptr[leaf + 1]), slice(ptr[leaf], ptr[leaf + 1])
        retain(visits.score[all_of], visits.point[all_of], ptr[leaf + 1] - ptr[leaf], point[kept], score[kept])
    return Visits(ptr, point, score)


@kernel()
def grown(ids: Int32s, scores: Floats, room: int) -> tuple[Int32s, Floats]:
    """The same arrays, or longer ones that begin with them."""
    if room <= ids.size:
        return ids, scores
    more_ids, more_scores = np.empty(2 * room, np.int32), np.empty(2 * room, np.float32)
    more_ids[: ids.size] = ids
    more_scores[: scores.size] = scores
    return more_ids, more_scores


@kernel()
def retain(scores: Floats, ids: Int32s, keep: int, out_ids: Int32s, out_scores: Floats) -> None:
    """The `keep` best of rising ids, in the same order, ties by lower id."""
    n = ids.size
    if keep == n:
        out_ids[:] = ids
        out_scores[:] = scores
        return
    if keep == 0:
        return
    cut = _largest(scores, keep)
    ties = keep
    for p in range(n):
        ties -= 1 if scores[p] > cut else 0
    at, p = 0, 0
    while at < keep:  # without a branch to guess
        tied = scores[p] == cut and ties > 0
        out_ids[at], out_scores[at] = ids[p], scores[p]
        at += 1 if scores[p] > cut or tied else 0
        ties -= 1 if tied else 0
        p += 1


@kernel()
def _largest(scores: Floats, rank: int) -> np.float32:
    """The rank-th largest (from 1) of numbers in 0 … 1: by eighths of octaves, read off their bits, then in one."""
    if scores.size > _RUNS:
        runs, bits = np.zeros((_ONE >> 20) + 1, np.int64), scores.view(np.int32)
        for p in range(bits.size):
            runs[bits[p] >> 20] += 1
        run = runs.size - 1
        while runs[run] < rank:
            rank -= runs[run]
            run -= 1
        n, some = 0, np.empty(runs[run] + 1, np.float32)
        for p in range(bits.size):
            some[n] = scores[p]
            n += 1 if bits[p] >> 20 == run else 0
        scores = some[:n]
    return np.partition(scores, scores.size - rank)[scores.size - rank]


@kernel(inline=True)
def path_factor(scoring: Scoring, score: float, best_leaf: float) -> float:
    """What the way to a leaf makes of a label's own score; as a 32-bit number, like the score."""
    if scoring.conditional:
        return score
    return np.float64(np.float32((score / best_leaf) ** scoring.blend)) if best_leaf > 0.0 else 1.0


@kernel(inline=True)
def own_score(scoring: Scoring, margin: np.float32) -> np.float32:
    """The score of a label by its own regressor."""
    return min(max(margin, np.float32(0.0)), np.float32(1.0)) if scoring.ridge_leaves else logistic(margin)


class Best(NamedTuple):
    """The best points of every label, best first: points, scores [labels, N], counts [labels]."""

    points: Int32s
    scores: Floats
    counts: Int32s


@kernel()
def fill_lists(
    g: Groups,
    leaf_node: Int64s,
    scoring: Scoring,
    label_points: Int32s,
    points: Csr,
    best_leaf: Floats,
    visits: Visits,
    spread: Spread,
    lists: Best,
) -> None:
    """Every label keeps its N best points of its leaf, by score, then lower id; a score of 0 is no answer.

    A leaf takes its points by falling path factor; some are skipped when theirs are below the gates of all its labels,
    which are the last scores of their lists.
    """
    gates = np.empty(spread.margins.shape[1], np.float32)
    for leaf in range(leaf_node.size):
        node, first, last = leaf_node[leaf], visits.ptr[leaf], visits.ptr[leaf + 1]
        if first == last:
            continue
        labels = g.edge_target[g.edge_ptr[node] : g.edge_ptr[node + 1]]
        factors = np.empty(last - first, np.float32)
        for v in range(last - first):
            best = np.float64(best_leaf[visits.point[first + v]])
            factors[v] = path_factor(scoring, np.float64(visits.score[first + v]), best)
        for k in range(labels.size):  # every score passes while a list has room; a label never seen lets nothing in
            gates[k] = _TINY if label_points[labels[k]] > 0 else np.inf
        spread_rows(g, node, spread)
        order = by_falling(factors)
        for start in range(0, order.size, SOME):
            some = order[start : start + SOME]
            if factors[some].max() >= gates[: labels.size].min():
                ids = visits.point[first:last][some]
                some_margins(g, node, points, ids, spread)
                _offer(scoring, labels, ids, factors[some], spread.margins, gates, lists)
        gather_rows(g, node, spread)


@kernel()
def _offer(
    scoring: Scoring, labels: Int32s, ids: Int32s, factors: Floats, margins: Floats, gates: Floats, lists: Best
) -> None:
    """Offer points to the labels of their leaf: scores of all as vectors; no branch finds those that pass a gate."""
    room, passed = lists.points.shape[1], np.empty(labels.size + 1, np.int64)
    for p in range(ids.size):
        factor, scores, n = factors[p], margins[p], 0
        for k in range(labels.size):
            scores[k] = own_score(scoring, scores[k]) * factor
        for k in range(labels.size):
            passed[n] = k
            n += 1 if scores[k] >= gates[k] else 0
        for k in passed[:n]:
            insert(lists, labels[k], ids[p], scores[k])
            if lists.counts[labels[k]] == room:
                gates[k] = lists.scores[labels[k], room - 1]


@kernel()
def by_falling(factors: Floats) -> Int64s:
    """The order of numbers in 0 … 1, roughly falling: by eighths of octaves, read off their bits."""
    bits = factors.view(np.int32)
    ends, order = np.zeros(_RUNS, np.int64), np.empty(factors.size, np.int64)
    for v in range(factors.size):
        ends[_run(bits[v])] += 1
    at = 0
    for run in range(_RUNS):
        at, ends[run] = at + ends[run], at
    for v in range(factors.size):
        run = _run(bits[v])
        order[ends[run]] = v
        ends[run] += 1
    return order


@kernel(inline=True)
def _run(bits: int) -> int:
    return min(max((_ONE - bits) >> 20, 0), _RUNS - 1)


@kernel()
def insert(best: Best, label: int, i: int, score: np.float32) -> None:
    """Put (i, score) into a label's list: falling score, then rising id; a full list drops its last."""
    ids, scores, at = best.points, best.scores, best.counts[label]
    if at == ids.shape[1]:
        at -= 1
        if score < scores[label, at] or (score == scores[label, at] and i > ids[label, at]):
            return
    else:
        best.counts[label] += 1
    while at > 0 and (scores[label, at - 1] < score or (scores[label, at - 1] == score and ids[label, at - 1] > i)):
        ids[label, at], scores[label, at] = ids[label, at - 1], scores[label, at - 1]
        at -= 1
    ids[label, at], scores[label, at] = i, score


@kernel()
def merge_best(more: Best, into: Best) -> None:
    """The best of two, label by label."""
    for label in range(into.counts.size):
        for c in range(more.counts[label]):
            point, score = more.points[label, c], more.scores[label, c]
            insert(into, label, point, score)


@kernel()
def collect(
    g: Groups,
    leaf_node: Int64s,
    scoring: Scoring,
    points: Csr,
    best_leaf: Floats,
    visits: Visits,
    wanted: Floats,
    spread: Spread,
) -> tuple[Int32s, Int32s, Floats]:
    """All (label, point, score) of one tree that reach wanted[label], for labels without any bound on their number."""
    n, labels = 0, np.empty(1024, np.int32)
    ids, scores = np.empty(1024, np.int32), np.empty(1024, np.float32)
    for leaf in range(leaf_node.size):
        node = leaf_node[leaf]
        edges = g.edge_target[g.edge_ptr[node] : g.edge_ptr[node + 1]]
        least = wanted[edges].min()
        if least == np.inf:
            continue
        spread_rows(g, node, spread)
        for v in range(visits.ptr[leaf], visits.ptr[leaf + 1]):
            i = visits.point[v]
            factor = path_factor(scoring, np.float64(visits.score[v]), np.float64(best_leaf[i]))
            if factor < least:
                continue
            some_margins(g, node, points, visits.point[v : v + 1], spread)
            for k in range(edges.size):
                score = np.float32(own_score(scoring, spread.margins[0, k]) * factor)
                if score >= wanted[edges[k]]:
                    if n == ids.size:
                        ids, scores = grown(ids, scores, n + 1)
                        longer = np.empty(ids.size, np.int32)
                        longer[:n] = labels
                        labels = longer
                    labels[n], ids[n], scores[n] = edges[k], i, score
                    n += 1
        gather_rows(g, node, spread)
    return labels[:n], ids[:n], scores[:n]
