"""The k best labels of a point, from the leaves that a search reached.

A label's score is the mean of its scores in all trees. Leaves are opened by falling probability; the k best scores in
one tree bound the k-th best total from below, so leaves and labels that cannot reach it are passed over: the answer is
that of looking at all of them. A label that is not in a tree's beam counts 0 there; with `complete` the best by that
rule then get their exact scores, along their paths in every tree, and are ranked by those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.jit import kernel
from core.kernels.arrays import ranking, request, search, trie
from core.kernels.memory import Table
from core.kernels.numbers import NOTHING, UInt64s, key, key_number, key_score, largest, nth_largest, pop, push
from core.kernels.search import Scoring, evaluate, reach
from core.kernels.vectors import LANES, bound_of_largest
from core.sparse import Floats, Int32s

COMPLETED = 16  # labels that are completed at least, so that few answers are the first of more
_FEW = 20  # answers up to which the maxima of LANES parts bound the last one well
_SLACK = np.float32(1.000002)  # bounds and scores are rounded differently


class Wishes(NamedTuple):
    """What an answer is to be.

    k             labels at most
    beam          nodes kept per level
    complete      the best are scored in every tree; otherwise a tree whose beam does not hold a label counts 0
    threshold     least score of an answer
    """

    k: int
    beam: int
    complete: bool
    threshold: float


@kernel()
def set_factors(a: Table, scoring: Scoring, tree: int) -> None:
    """Without conditional targets the path only blends in: (P / P of the best leaf)^blend, for the beam's leaves."""
    s, f = search(a), ranking(a)
    best = np.float32(0.0)
    for i in range(s.leaves[tree], s.leaves[tree + 1]):
        best = max(best, s.slot_path[s.leaf[i]])
    f.best[tree] = best
    for i in range(s.leaves[tree], s.leaves[tree + 1]):
        s.slot_path[s.leaf[i]] = blended(s.slot_path[s.leaf[i]], best, scoring)


@kernel(inline=True)
def blended(path: float, best: float, scoring: Scoring) -> float:
    return min(path / best, np.float32(1.0)) ** np.float32(scoring.blend) if best > 0.0 else np.float32(1.0)


@kernel()
def keep_best(heap: UInt64s, size: int, most: int, k: np.uint64) -> int:
    """Add a key to the `most` best; returns how many there are."""
    if size == most:
        if ~k >= heap[0]:
            return size
        pop(heap, size)
        size -= 1
    push(heap, size, ~k)
    return size + 1


@kernel()
def allowed(exclude: Int32s, label: int) -> bool:
    """Whether a label is not among the excluded ones."""
    low, high = 0, exclude.size
    while low < high:
        middle = (low + high) >> 1
        if exclude[middle] < label:
            low = middle + 1
        else:
            high = middle
    return low == exclude.size or exclude[low] != label


@kernel()
def label_score(a: Table, scoring: Scoring, complete: bool, label: int) -> float:
    """The mean over trees of a label's score; -1 without room."""
    t, s = trie(a), search(a)
    n_trees = t.tree_ptr.size - 1
    total = 0.0
    for tree in range(n_trees):
        leaf = t.label_leaf[label * n_trees + tree]
        slot = np.int64(s.node_slot[leaf])
        if slot < 0:
            if not complete:
                continue
            slot = reach(a, scoring, leaf)
            if slot < 0:
                return -1.0
            if not scoring.conditional:
                s.slot_path[slot] = blended(s.slot_path[slot], ranking(a).best[tree], scoring)
        if s.slot_value[slot] < 0 and not evaluate(a, slot, scoring):
            return -1.0
        total += np.float64(s.value[s.slot_value[slot] + t.label_position[label * n_trees + tree]])
    return np.float32(total) / np.float32(n_trees)  # rounded as `rank` rounds


@kernel(inline=True)
def lanes_of(k: int) -> int:
    """Parts that a tree's labels are cut into to bound the k-th best: more than k, since two of the best may share."""
    return LANES if k <= _FEW else (2 * k + LANES - 1) // LANES * LANES


@kernel()
def _open_leaves(a: Table, scoring: Scoring, k: int) -> float:
    """Evaluate the leaves of the beams by falling path, as long as a label in them could reach the k best. Returns what
    the k-th best total is at least (a total is the sum over trees · weight), or -1 without room."""
    t, s, f, r = trie(a), search(a), ranking(a), request(a)
    n_trees, n_leaves = t.tree_ptr.size - 1, s.leaves[t.tree_ptr.size - 1]
    for i in range(n_leaves):
        push(f.leaf_heap, i, key(s.slot_path[s.leaf[i]], i))
        f.leaf_most[i] = -1.0
    weighted, least = r.node_weight.size > 0, np.float32(0.0)
    f.lane[: n_trees * lanes_of(k)] = 0.0
    f.tree_least[:] = 0.0
    while n_leaves:
        i = key_number(f.leaf_heap[0])
        pop(f.leaf_heap, n_leaves)
        n_leaves -= 1
        slot, tree = s.leaf[i], 0
        while i >= s.leaves[tree + 1]:
            tree += 1
        # Whatever is still closed has no higher path, so no label that is only in closed leaves has a higher total.
        most = s.slot_path[slot] * np.float32(n_trees) * _SLACK
        if most * (r.node_weight[s.slot_node[slot]] if weighted else np.float32(1.0)) < least:
            if weighted:
                continue
            break
        if s.slot_value[slot] < 0 and not evaluate(a, slot, scoring):
            return -1.0
        f.leaf_most[i] = _most(a, slot)
        if f.leaf_most[i] > f.tree_least[tree]:
            f.tree_least[tree] = _raise_lanes(a, i, tree, k)
            least = max(least, f.tree_least[tree])
    return least


@kernel(fastmath=True)
def _most(a: Table, slot: int) -> np.float32:
    """The largest score · weight of a leaf's labels."""
    t, s, r = trie(a), search(a), request(a)
    leaf, first = s.slot_node[slot], s.slot_value[slot]
    edges = slice(t.edge_ptr[leaf], t.edge_ptr[leaf + 1])
    scores = s.value[first : first + edges.stop - edges.start]
    if not r.edge_weight.size:
        return largest(scores)
    most, weight = np.float32(0.0), r.edge_weight[edges]
    for e in range(scores.size):
        most = max(most, scores[e] * weight[e])
    return most


@kernel()
def _raise_lanes(a: Table, i: int, tree: int, k: int) -> np.float32:
    """Offer the scores of a leaf's labels to the maxima of its tree's lanes; returns the k-th largest of those, which k
    labels at least reach: a heap of the k best would be exact, and take ten times as long."""
    t, s, f, r = trie(a), search(a), ranking(a), request(a)
    leaf, first, n_lanes = s.slot_node[s.leaf[i]], s.slot_value[s.leaf[i]], lanes_of(k)
    n_edges, lane = t.edge_ptr[leaf + 1] - t.edge_ptr[leaf], f.lane[tree * n_lanes : (tree + 1) * n_lanes]
    at = LANES * i * ((n_edges + LANES - 1) // LANES) % n_lanes  # leaves take different lanes, where there are more
    for begin in range(0, n_edges, LANES):
        here, scores = lane[at : at + LANES], s.value[first + begin : first + min(begin + LANES, n_edges)]
        if not r.edge_weight.size and not r.exclude.size:
            for j in range(scores.size):
                here[j] = max(here[j], scores[j])
        else:
            for j in range(scores.size):
                e = t.edge_ptr[leaf] + begin + j
                score = scores[j] * (r.edge_weight[e] if r.edge_weight.size else np.float32(1.0))
                if score > here[j] and allowed(r.exclude, t.edge_target[e]):
                    here[j] = score
        at = (at + LANES) % n_lanes
    if n_lanes == LANES:
        return bound_of_largest(lane, n_lanes, k)
    for j in range(n_lanes):
        f.lane_key[j] = key(lane[j], j)
    return key_score(nth_largest(f.lane_key, n_lanes, k, f.lane_work))


@kernel()
def _gather(a: Table, scoring: Scoring, most: int, least: float, share: float) -> int:
    """The `most` best labels by the total of the trees whose beam holds them, as a heap; returns how many, or -1
    without room. Only labels are looked at that have `share` in one tree, and taken whose total reaches `least`."""
    t, s, f, r = trie(a), search(a), ranking(a), request(a)
    size = 0
    for tree in range(t.tree_ptr.size - 1):
        for i in range(s.leaves[tree], s.leaves[tree + 1]):
            if f.leaf_most[i] < share:  # or it was not opened
                continue
            leaf, first = s.slot_node[s.leaf[i]], s.slot_value[s.leaf[i]]
            for e in range(t.edge_ptr[leaf], t.edge_ptr[leaf + 1]):
                score = s.value[first + e - t.edge_ptr[leaf]]
                weight = r.edge_weight[e] if r.edge_weight.size else np.float32(1.0)
                if not (score > NOTHING and score * weight >= share):
                    continue
                label = t.edge_target[e]
                total = _total(a, scoring, tree, label, weight, share)
                if total == -1.0:
                    return -1
                if total > 0.0 and total * weight * _SLACK >= least and allowed(r.exclude, label):
                    size = keep_best(f.heap, size, most, key(total * weight, label))
    return size


@kernel()
def _total(a: Table, scoring: Scoring, tree: int, label: int, weight: float, share: float) -> float:
    """Sum of a label's scores over the beams that hold it; 0 if an earlier tree has brought it up, -1 without room."""
    t, s = trie(a), search(a)
    n_trees, total = t.tree_ptr.size - 1, 0.0
    for other in range(n_trees):
        slot = s.node_slot[t.label_leaf[label * n_trees + other]]
        if slot < 0:
            continue
        if s.slot_value[slot] < 0 and not evaluate(a, slot, scoring):
            return -1.0
        score = s.value[s.slot_value[slot] + t.label_position[label * n_trees + other]]
        if other < tree and score > NOTHING and score * weight >= share:
            return 0.0
        total += np.float64(score)
    return total


@kernel()
def _best_totals(a: Table, scoring: Scoring, most: int, least: float) -> int:
    """The `most` best labels by total, as a heap; returns how many, or -1 without room.

    A total that reaches `least` has a tree's share of it in one tree. Those that one tree alone lifts that far are
    looked at first: where trees agree, their totals raise `least` so much that few others have a share of it.
    """
    n_trees, alone = trie(a).tree_ptr.size - 1, least
    size = _gather(a, scoring, most, least, alone)
    if size == most:
        least = max(least, key_score(~ranking(a).heap[0]))
    share = least / (np.float32(n_trees) * _SLACK)
    return size if size < 0 or share >= alone else _gather(a, scoring, most, least, share)


@kernel()
def rank(a: Table, scoring: Scoring, w: Wishes) -> int:
    """The k best labels into the heap of the kept; returns how many, or -1 without room."""
    f, n_kept = ranking(a), 0
    most = max(w.k, COMPLETED) if w.complete else w.k
    least = _open_leaves(a, scoring, most)
    if least < 0.0:
        return -1
    size = _best_totals(a, scoring, most, least)
    if size < 0:
        return -1
    n_trees = np.float32(trie(a).tree_ptr.size - 1)
    for i in range(size):
        label, score = key_number(~f.heap[i]), key_score(~f.heap[i]) / n_trees
        if w.complete or request(a).edge_weight.size:
            score = np.float32(label_score(a, scoring, w.complete, label))
            if score < np.float32(0.0):
                return -1
        if score > NOTHING and score >= w.threshold:
            n_kept = keep_best(f.kept, n_kept, w.k, key(score * label_weight(a, label), label))
    return n_kept


@kernel()
def label_weight(a: Table, label: int) -> float:
    """What a label is worth, 1 where nothing was said."""
    t, r = trie(a), request(a)
    if not r.edge_weight.size:
        return np.float32(1.0)
    first = label * (t.tree_ptr.size - 1)
    return r.edge_weight[t.edge_ptr[t.label_leaf[first]] + t.label_position[first]]


@kernel()
def sort_heap(heap: UInt64s, size: int) -> None:
    """A heap with its largest first becomes ascending."""
    for n in range(size, 1, -1):
        largest = heap[0]
        pop(heap, n)
        heap[n - 1] = largest


@kernel()
def take_out(kept: UInt64s, n_kept: int, labels: Int32s, scores: Floats) -> None:
    """The kept labels, best first, and what they were kept for."""
    sort_heap(kept, n_kept)
    for i in range(n_kept):
        labels[i], scores[i] = key_number(~kept[i]), key_score(~kept[i])
