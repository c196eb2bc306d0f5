"""From the lists of single trees to the mean over all: pairs pooled, completed in every tree, put in order.

The paper's rule chooses: the best pairs (point, label) by the mean of what the trees list, a missing score counting 0.
Completion then finds what is missing, because a point that a tree turned away does score there, if little:

    weigh_tree     the label's own score of every missing pair; the whole score where the point did reach the leaf
    complete_tree  the way to the leaf of the others: one walk down the tree takes every point only to leaves where a
                   pair of it waits
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.groups import Groups
from core.jit import kernel
from core.kernels.groups import Doubles, Spread, Walk, edge_columns, edge_scores
from core.kernels.labelwise import Best, Visits, grown, insert, new_stack, own_score, path_factor, push
from core.kernels.search import Scoring
from core.sparse import Csr, Floats, Int32s, Int64s

_FEW = 32  # up to here selection is faster than sorting


class Lists(NamedTuple):
    """The lists of all trees: that of label l in tree t is points, scores[start[t, l]:start[t, l] + length[t, l]]."""

    points: Int32s
    scores: Floats
    start: Int64s
    length: Int32s


class Pool(NamedTuple):
    """The chosen pairs of every label.

    ptr [labels + 1]  pairs of a label
    point [n]         their points
    score [T, n]      score in each tree, NaN: not known
    own [T, n]        where the score is not known: the label's own score, the way to its leaf left aside
    """

    ptr: Int64s
    point: Int32s
    score: Floats
    own: Doubles


@kernel()
def pool_lists(lists: Lists, most: int, n_points: int) -> Pool:
    """Of the union of all trees' lists, a label's `most` best pairs by the sum of listed scores, ties by lower id."""
    n_trees, n_labels = lists.length.shape
    slot = np.full(n_points, -1, np.int64)
    room = lists.length.sum()
    ptr, point = np.zeros(n_labels + 1, np.int64), np.empty(room, np.int32)
    score, sums = np.full((n_trees, room), np.float32(np.nan)), np.zeros(room, np.float64)
    n = 0
    for label in range(n_labels):
        start = n
        for t in range(n_trees):
            for c in range(lists.start[t, label], lists.start[t, label] + lists.length[t, label]):
                i = lists.points[c]
                if slot[i] < start or slot[i] >= n or point[slot[i]] != i:
                    slot[i], point[n], sums[n] = n, i, 0.0
                    for other in range(n_trees):
                        score[other, n] = np.nan
                    n += 1
                score[t, slot[i]] = lists.scores[c]
                sums[slot[i]] += np.float64(lists.scores[c])
        if n - start > most:
            _best_first(point, score, sums, start, n, most)
            n = start + most
        ptr[label + 1] = n
    return Pool(ptr, point[:n].copy(), score[:, :n].copy(), np.zeros((n_trees, n), np.float64))


@kernel()
def _best_first(point: Int32s, score: Floats, sums: Doubles, start: int, stop: int, most: int) -> None:
    """Move the `most` best of start:stop to the front, by sum, then lower id: few by selection, many by sorting."""
    if most > _FEW:
        order = start + np.argsort(point[start:stop])
        order = order[np.argsort(-sums[order], kind="mergesort")][:most]
        point[start : start + most], score[:, start : start + most] = point[order], score[:, order]
        return
    for at in range(start, start + most):
        best = at
        for c in range(at + 1, stop):
            if sums[c] > sums[best] or (sums[c] == sums[best] and point[c] < point[best]):
                best = c
        point[at], point[best] = point[best], point[at]
        sums[at], sums[best] = sums[best], sums[at]
        for t in range(score.shape[0]):
            score[t, at], score[t, best] = score[t, best], score[t, at]


@kernel()
def weigh_tree(
    g: Groups,
    tree: int,
    walk: Walk,
    scoring: Scoring,
    points: Csr,
    best_leaf: Floats,
    visits: Visits,
    pool: Pool,
) -> None:
    """Own scores of the pairs that lack one tree; the whole score where the point did reach the label's leaf.

    Few labels of a leaf are asked for at each point, so that here a label's weights are spread, not a leaf's rows.
    """
    n_points = points.indptr.size - 1
    weight_of, reached = np.zeros(points.n_cols, np.float32), np.full(n_points, -1, np.int32)
    factors = np.empty(n_points, np.float64)
    for leaf in range(walk.leaf_node.size):
        node = walk.leaf_node[leaf]
        for v in range(visits.ptr[leaf], visits.ptr[leaf + 1]):
            i = visits.point[v]
            reached[i] = leaf
            factors[i] = path_factor(scoring, np.float64(visits.score[v]), np.float64(best_leaf[i]))
        ptr, features, weights = edge_columns(g, node)
        for edge in range(g.edge_ptr[node], g.edge_ptr[node + 1]):
            label, k = g.edge_target[edge], edge - g.edge_ptr[node]
            if pool.ptr[label] == pool.ptr[label + 1]:
                continue
            for j in range(ptr[k], ptr[k + 1]):
                weight_of[features[j]] = weights[j]
            for c in range(pool.ptr[label], pool.ptr[label + 1]):
                if np.isnan(pool.score[tree, c]):
                    i, total = pool.point[c], np.float32(0.0)
                    for j in range(points.indptr[i], points.indptr[i + 1]):
                        total += points.values[j] * weight_of[np.uint32(points.indices[j])]
                    own = own_score(scoring, g.edge_bias[edge] + g.edge_step[edge] * total)
                    pool.own[tree, c] = own
                    if own == 0.0:
                        pool.score[tree, c] = 0.0
                    elif reached[i] == leaf:
                        pool.score[tree, c] = own * factors[i]
            for j in range(ptr[k], ptr[k + 1]):
                weight_of[features[j]] = 0.0


@kernel()
def waiting(pool: Pool, tree: int, walk: Walk, n_points: int) -> tuple[Int64s, Int64s]:
    """Pairs without a score in this tree, by leaf, then point: (their numbers, ptr [leaves + 1])."""
    n_labels, n_leaves = pool.ptr.size - 1, walk.leaf_node.size
    by_point, ptr = np.zeros(n_points + 1, np.int64), np.zeros(n_leaves + 1, np.int64)
    for label in range(n_labels):
        for c in range(pool.ptr[label], pool.ptr[label + 1]):
            if np.isnan(pool.score[tree, c]):
                by_point[pool.point[c] + 1] += 1
                ptr[walk.label_leaf[label] + 1] += 1
    for i in range(n_points):
        by_point[i + 1] += by_point[i]
    for leaf in range(n_leaves):
        ptr[leaf + 1] += ptr[leaf]
    pairs, leaf_of = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.int32)
    for label in range(n_labels):
        for c in range(pool.ptr[label], pool.ptr[label + 1]):
            if np.isnan(pool.score[tree, c]):
                at = by_point[pool.point[c]]
                pairs[at], leaf_of[at] = c, walk.label_leaf[label]
                by_point[pool.point[c]] += 1
    chosen, cursor = np.empty(ptr[-1], np.int64), ptr[:-1].copy()
    for r in range(pairs.size):
        chosen[cursor[leaf_of[r]]] = pairs[r]
        cursor[leaf_of[r]] += 1
    return chosen, ptr


@kernel()
def complete_tree(
    g: Groups, tree: int, walk: Walk, scoring: Scoring, points: Csr, best_leaf: Floats, pool: Pool, spread: Spread
) -> None:
    """Fill in the scores of one tree that pairs wait for, after `weigh_tree`; edges are conditional on their nodes."""
    n_points, root = points.indptr.size - 1, g.tree_ptr[tree]
    chosen, ptr = waiting(pool, tree, walk, n_points)
    mark = np.full(n_points, -1, np.int32)
    ids, scores = np.empty(4 * n_points + 16, np.int32), np.empty(4 * n_points + 16, np.float32)
    ids[:n_points] = np.arange(n_points)
    scores[:n_points] = 1.0
    stack = new_stack(g, tree)
    height = push(stack, 0, root, 0, n_points) if chosen.size else 0
    while height > 0:
        height -= 1
        head, start, at = stack[height]
        here = ids[start:at]
        if g.node_leaf[head]:
            leaf = walk.first_leaf[head - root]
            _arrive(tree, scoring, best_leaf, pool, chosen[ptr[leaf] : ptr[leaf + 1]], here, scores[start:at])
            continue
        edges, first = edge_scores(g, head, points, here, spread), g.edge_ptr[head]
        for e in range(first, first + g.n_edges[head]):
            child = g.edge_target[e]
            some = chosen[ptr[walk.first_leaf[child - root]] : ptr[walk.last_leaf[child - root]]]
            if g.node_head[child] and some.size > 0:
                for c in some:
                    mark[pool.point[c]] = child
                ids, scores = grown(ids, scores, at + here.size)
                n = _take_along(g, head, child, edges, mark, here, scores[start:], ids[at:], scores[at:])
                height = push(stack, height, child, at, at + n)
                at += n


@kernel()
def _take_along(
    g: Groups,
    head: int,
    child: int,
    edges: Floats,
    mark: Int32s,
    ids: Int32s,
    scores: Floats,
    out_ids: Int32s,
    out_scores: Floats,
) -> int:
    """Of a group's points, those marked for a group below, with the product of the edges on the way from the top."""
    n = 0
    for p in range(ids.size):
        if mark[ids[p]] == child:
            out_ids[n], out_scores[n] = p, scores[p]
            n += 1
    depth, way = 0, np.empty(edges.shape[0], np.int64)
    node = child
    while node != head:
        way[depth] = g.parent_edge[node] - g.edge_ptr[head]
        node, depth = g.parent[node], depth + 1
    for d in range(depth - 1, -1, -1):
        edge = edges[way[d]]
        for i in range(n):
            out_scores[i] *= edge[out_ids[i]]
    for i in range(n):
        out_ids[i] = ids[out_ids[i]]
    return n


@kernel()
def _arrive(
    tree: int, scoring: Scoring, best_leaf: Floats, pool: Pool, chosen: Int64s, ids: Int32s, scores: Floats
) -> None:
    """Scores of the pairs that wait at a leaf; they and the points that came (ids) both rise by point."""
    p = 0
    for c in chosen:
        i = pool.point[c]
        while ids[p] < i:
            p += 1
        factor = path_factor(scoring, np.float64(scores[p]), np.float64(best_leaf[i]))
        pool.score[tree, c] = pool.own[tree, c] * factor


@kernel()
def best_of_pool(pool: Pool, best: Best) -> None:
    """Each label's best pairs by mean score, ties by lower id; a score that is not known counts 0."""
    n_trees = pool.score.shape[0]
    for label in range(best.counts.size):
        for c in range(pool.ptr[label], pool.ptr[label + 1]):
            total = 0.0
            for t in range(n_trees):
                total += 0.0 if np.isnan(pool.score[t, c]) else np.float64(pool.score[t, c])
            score = np.float32(total / n_trees)
            if score > 0.0:
                insert(best, label, pool.point[c], score)
