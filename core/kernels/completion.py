"""From the lists of single trees to the mean over all: candidates pooled, completed in every tree, the best kept.

A pair (point, label) that one tree lists may be missing in another: the point was turned away there, or the label had
better ones. Its exact score there is computed all the same, unless the pair cannot be among the best any more: what is
not known of a pair is bounded (`limit`), and the sum of what is known and the bounds must reach the N-th best sum of
what is known. Missing scores of a tree are computed in bulk: one walk down the tree takes every point only to leaves
where a pair of it waits, and drops it where its score falls below what all pairs waiting there need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.jit import kernel
from core.kernels.labelwise import Best, child_scores, grown, insert, own_score, path_factor
from core.kernels.nodes import Doubles, Spread, Walk, gather_rows, point_margins, spread_rows
from core.model import Ensemble, Scoring
from core.sparse import Csr, Floats, Int32s, Int64s

_OUT = -1.0  # slack of a pair that cannot be among the best
_SAFE = 1.0 - 1e-6  # needs are lowered by this, so that rounding never drops a pair


class Pool(NamedTuple):
    """Candidates of every label: pairs that some tree lists.

    ptr [labels + 1]  candidates of a label
    point [n]         their points
    score [T, n]      score in each tree, NaN: not known yet
    slack [n]         how far what is known and the limits exceed what the pair needs; below 0: the pair is out
    """

    ptr: Int64s
    point: Int32s
    score: Floats
    slack: Doubles


class Lists(NamedTuple):
    """The lists of all trees: that of label l in tree t is points, scores[start[t, l]:start[t, l] + length[t, l]]."""

    points: Int32s
    scores: Floats
    start: Int64s
    length: Int32s


@kernel()
def pool_lists(lists: Lists, limit: Floats, top: int, complete: bool, n_points: int) -> Pool:
    """The union of all trees' lists without hopeless pairs.

    limit [T, labels] bounds the score of a pair that the tree does not list. Without `complete` it counts 0.
    """
    n_trees, n_labels = lists.length.shape
    seen, slot = np.full(n_points, -1, np.int32), np.empty(n_points, np.int64)
    most = lists.length.sum()
    ptr, point = np.zeros(n_labels + 1, np.int64), np.empty(most, np.int32)
    score, slack = np.full((n_trees, most), np.float32(np.nan)), np.zeros(most, np.float64)
    n = 0
    for label in range(n_labels):
        start = n
        for t in range(n_trees):
            for c in range(lists.start[t, label], lists.start[t, label] + lists.length[t, label]):
                i = lists.points[c]
                if seen[i] != label:
                    seen[i], slot[i] = label, n
                    point[n] = i
                    n += 1
                score[t, slot[i]] = lists.scores[c]
        if complete:
            n = _drop_hopeless(point, score, slack, start, n, limit[:, label], top)
        ptr[label + 1] = n
    return Pool(ptr, point[:n].copy(), score[:, :n].copy(), slack[:n].copy())


@kernel()
def _drop_hopeless(point: Int32s, score: Floats, slack: Doubles, start: int, stop: int, limit: Floats, top: int) -> int:
    """Keep the candidates whose bound reaches the `top`-th best known sum; returns where they end now."""
    n = stop - start
    sums = np.empty(n, np.float64)
    for c in range(n):
        sums[c] = 0.0
        for t in range(limit.size):
            if not np.isnan(score[t, start + c]):
                sums[c] += np.float64(score[t, start + c])
    wanted = 0.0 if n < top else np.partition(sums[:n], n - top)[n - top]
    at = start
    for c in range(start, stop):
        bound = 0.0
        for t in range(limit.size):
            bound += np.float64(limit[t] if np.isnan(score[t, c]) else score[t, c])
        if bound >= wanted * _SAFE:
            point[at], slack[at] = point[c], bound - wanted * _SAFE
            for t in range(limit.size):
                score[t, at] = score[t, c]
            at += 1
    for c in range(at, stop):
        score[:, c] = np.nan
    return at


@kernel()
def waiting(pool: Pool, tree: int, walk: Walk, n_points: int) -> tuple[Int64s, Int32s, Int64s]:
    """Candidates without a score in this tree, by leaf, then point: (their numbers, their labels, ptr [leaves + 1])."""
    n_labels, n_leaves = pool.ptr.size - 1, walk.leaf_node.size
    by_point, ptr = np.zeros(n_points + 1, np.int64), np.zeros(n_leaves + 1, np.int64)
    for label in range(n_labels):
        for c in range(pool.ptr[label], pool.ptr[label + 1]):
            if np.isnan(pool.score[tree, c]) and pool.slack[c] >= 0.0:
                by_point[pool.point[c] + 1] += 1
                ptr[walk.label_leaf[label] + 1] += 1
    for i in range(n_points):
        by_point[i + 1] += by_point[i]
    for leaf in range(n_leaves):
        ptr[leaf + 1] += ptr[leaf]
    first, label_of = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.int32)
    for label in range(n_labels):
        for c in range(pool.ptr[label], pool.ptr[label + 1]):
            if np.isnan(pool.score[tree, c]) and pool.slack[c] >= 0.0:
                at = by_point[pool.point[c]]
                first[at], label_of[at] = c, label
                by_point[pool.point[c]] += 1
    chosen, labels, cursor = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.int32), ptr[:-1].copy()
    for r in range(first.size):
        leaf = walk.label_leaf[label_of[r]]
        chosen[cursor[leaf]], labels[cursor[leaf]] = first[r], label_of[r]
        cursor[leaf] += 1
    return chosen, labels, ptr


@kernel()
def complete_tree(
    e: Ensemble,
    tree: int,
    walk: Walk,
    scoring: Scoring,
    points: Csr,
    best_leaf: Floats,
    limit: Floats,
    pool: Pool,
    spread: Spread,
) -> None:
    """Fill in the scores of one tree that candidates wait for, or put the pair out of the pool."""
    n_points = points.indptr.size - 1
    chosen, labels, ptr = waiting(pool, tree, walk, n_points)
    root, n_nodes = e.tree_ptr[tree], e.tree_ptr[tree + 1] - e.tree_ptr[tree]
    mark, need = np.full(n_points, -1, np.int32), np.zeros(n_points, np.float64)
    ids, scores = np.empty(4 * n_points + 16, np.int32), np.empty(4 * n_points + 16, np.float32)
    stack, begin, end = np.empty(n_nodes, np.int64), np.empty(n_nodes, np.int64), np.empty(n_nodes, np.int64)
    for c in chosen:
        mark[pool.point[c]] = root
    n = 0
    for i in range(n_points):
        if mark[i] == root:
            ids[n], scores[n] = i, 1.0
            n += 1
    stack[0], begin[0], end[0], height = root, 0, n, 1
    while height > 0:
        height -= 1
        node, start, stop = stack[height], begin[height], end[height]
        n = stop - start
        if e.node_leaf[node]:
            leaf = walk.first_leaf[node - root]
            here = slice(ptr[leaf], ptr[leaf + 1])
            _complete_leaf(
                e, tree, node, walk, scoring, points, best_leaf, limit, pool, spread,
                chosen[here], labels[here], ids[start:stop], scores[start:stop],
            )  # fmt: skip
            continue
        below = np.empty((e.edge_ptr[node + 1] - e.edge_ptr[node], n), np.float32)
        child_scores(e, node, points, ids[start:stop], scores[start:stop], scoring.conditional, spread, below)
        ids, scores = grown(ids, scores, stop + below.size)
        at = stop
        for k in range(below.shape[0] - 1, -1, -1):
            child = e.edge_target[e.edge_ptr[node] + k]
            first, last = ptr[walk.first_leaf[child - root]], ptr[walk.last_leaf[child - root]]
            _mark_needs(pool, limit, chosen[first:last], labels[first:last], child, mark, need)
            begin[height] = at
            for p in range(n):
                i = ids[start + p]
                if mark[i] == child and (below[k, p] >= need[i] or not scoring.conditional):
                    ids[at], scores[at] = i, below[k, p]
                    at += 1
            stack[height], end[height] = child, at
            height += 1


@kernel()
def _mark_needs(
    pool: Pool, limit: Floats, chosen: Int64s, labels: Int32s, child: int, mark: Int32s, need: Doubles
) -> None:
    """mark[i] = child for the points with a pair below the child, need[i] = the least score that serves one."""
    for r in range(chosen.size):
        c = chosen[r]
        i = pool.point[c]
        least = np.float64(limit[labels[r]]) - pool.slack[c]
        need[i] = least if mark[i] != child else min(need[i], least)
        mark[i] = child


@kernel()
def _complete_leaf(
    e: Ensemble,
    tree: int,
    node: int,
    walk: Walk,
    scoring: Scoring,
    points: Csr,
    best_leaf: Floats,
    limit: Floats,
    pool: Pool,
    spread: Spread,
    chosen: Int64s,
    labels: Int32s,
    ids: Int32s,
    scores: Floats,
) -> None:
    """Scores of the pairs that wait at a leaf; both they and the points that came (ids) rise by point."""
    spread_rows(e, node, spread)
    r = 0
    for p in range(ids.size + 1):
        i = ids[p] if p < ids.size else points.indptr.size
        while r < chosen.size and pool.point[chosen[r]] < i:  # dropped on the way
            pool.slack[chosen[r]] = _OUT
            r += 1
        if r == chosen.size:
            break
        point_margins(e, node, points, i, spread)
        factor = path_factor(scoring, np.float64(scores[p]), np.float64(best_leaf[i]))
        while r < chosen.size and pool.point[chosen[r]] == i:
            c, label = chosen[r], labels[r]
            score = np.float32(own_score(scoring, spread.sums[walk.label_edge[label]]) * factor)
            pool.score[tree, c] = score
            pool.slack[c] -= np.float64(limit[label]) - np.float64(score)
            r += 1
    gather_rows(e, node, spread)


@kernel()
def best_of_pool(pool: Pool, complete: bool, best: Best) -> None:
    """Each label's best candidates by mean score, ties by lower id.

    A score that is still not known counts 0 without `complete`; with it the pair is out.
    """
    n_trees = pool.score.shape[0]
    for label in range(best.counts.size):
        for c in range(pool.ptr[label], pool.ptr[label + 1]):
            total, known = 0.0, pool.slack[c] >= 0.0
            for t in range(n_trees):
                if np.isnan(pool.score[t, c]):
                    known = known and not complete
                else:
                    total += np.float64(pool.score[t, c])
            score = np.float32(total / n_trees)
            if known and score > 0.0:
                insert(best.points[label], best.scores[label], best.counts, label, pool.point[c], score)
