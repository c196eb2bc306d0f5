"""Beam search down the tries of an ensemble.

A *slot* is a group that a search has reached in some tree: the rows of the point's features that its subtree knows, the
probability of getting there, and, once evaluated, the scores of its edges. Slots are made on the way down by the beam,
or later for a single label's path; a group has one slot at most per search, so nothing is computed twice. All buffers
are the caller's; where they are too small the search says so and is started again with larger ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.jit import kernel
from core.kernels.arrays import ENTRY, facts, places, request, search, trie
from core.kernels.memory import Table, prefetch, view_as
from core.kernels.numbers import key, least_of_largest, popcount, sigmoid
from core.kernels.vectors import LANES, add_rows_of_one_vector, bound_of_largest
from core.sparse import Floats
from core.trie import VECTOR, padded, row_stride

SLOTS, POOL, VALUES = 0, 1, 2  # what of each kind of buffer is taken, in Search.used
# Places are unsigned where it counts: Numba looks at the sign of every other index, in half of a loop's instructions.
_ONE, _FOUR, _BYTE = np.uint64(1), np.uint64(4), np.uint64(8)


class Scoring(NamedTuple):
    """How a recipe's regressors become scores.

    conditional   an edge's probability is conditional on its node: scores multiply along the path;
                  otherwise every node estimates its own probability and the path blends into the label's score
    ridge_leaves  a label's score is clip(margin, 0, 1), otherwise σ(margin)
    blend         exponent of (probability of the leaf / that of the best leaf), without `conditional`
    """

    conditional: bool
    ridge_leaves: bool
    blend: float


@kernel()
def new_slot(a: Table, node: int, path: float, n_features: int) -> int:
    """An empty slot with room for a list of n_features; -1 where there is none left."""
    s = search(a)
    slot = s.used[SLOTS]
    if slot == s.slot_node.size or s.used[POOL] + n_features > s.pool_row.size:
        return -1
    s.slot_node[slot], s.slot_path[slot] = node, path
    s.slot_at[slot], s.slot_len[slot], s.slot_value[slot] = s.used[POOL], 0, -1
    s.node_slot[node] = slot
    s.used[SLOTS] = slot + 1
    return slot


@kernel()
def forget(a: Table) -> None:
    """Undo a search: no head has a slot."""
    s = search(a)
    for slot in range(s.used[SLOTS]):
        s.node_slot[s.slot_node[slot]] = -1
    s.used[:] = 0


@kernel()
def step_down(a: Table, above: int, node: int, path: float) -> int:
    """The slot of a group below the slot `above`: of its features, those that the subtree knows; -1 without room."""
    t, p, s = trie(a), places(a), search(a)
    slot = new_slot(a, node, path, s.slot_len[above])
    if slot < 0:
        return -1
    layer, way = p.layer[s.slot_node[above]], p.way[node]
    stride = np.uint64(row_stride(t.layer_words[layer]))
    first = np.uint64(t.layer_row[layer] + 1 + 2 * (way >> 5))  # of the words about this way
    bit = np.uint64(way & 31)
    lower = (_ONE << bit) - _ONE
    source, start = np.uint64(s.slot_at[above]), np.uint64(s.slot_at[slot])
    n = start
    for j in range(source, source + np.uint64(s.slot_len[above])):
        at = first + s.pool_row[j] * stride
        mask = np.uint64(t.row[at + _ONE])
        s.pool_row[n], s.pool_x[n] = t.row[at] + np.uint64(popcount(mask & lower)), s.pool_x[j]
        n += (mask >> bit) & _ONE
    s.slot_len[slot] = n - start
    s.used[POOL] = n
    below = p.layer[node]
    first, stride = np.uint64(t.layer_row[below]), np.uint64(row_stride(t.layer_words[below]))
    for j in range(start, n):
        prefetch(t.row, first + s.pool_row[j] * stride)
    return slot


@kernel()
def fetch(a: Table, slot: int) -> None:
    """Look the rows of a slot's list up, and ask for their entries and for what else the group's edges need."""
    t, p, s = trie(a), places(a), search(a)
    head = s.slot_node[slot]
    layer = p.layer[head]
    for e in range(t.edge_ptr[head], t.edge_ptr[head] + p.n_edges[head], VECTOR):
        prefetch(t.edge_bias, e)
        prefetch(t.edge_step, e)
    first, stride = np.uint64(t.layer_row[layer]), np.uint64(row_stride(t.layer_words[layer]))
    entry, scale = np.uint64(t.layer_entry[layer]), np.uint64(facts(a).numbers[0] // 2)
    source = np.uint64(s.slot_at[slot])
    for j in range(source, source + np.uint64(s.slot_len[slot])):
        at = first + s.pool_row[j] * stride
        begin = entry + t.row[at]
        s.pool_start[j], s.pool_stop[j] = begin, entry + t.row[at + stride]
        prefetch(t.entry, begin * scale)


@kernel()
def evaluate(a: Table, slot: int, scoring: Scoring) -> bool:
    """Scores of all edges of a fetched slot's group: σ(bias + step · Σ weight · x), or the clipped margin at ridge
    leaves. At a leaf they are multiplied with its path and so are the tree's scores of its labels. False without room.
    """
    t, p, s = trie(a), places(a), search(a)
    head = s.slot_node[slot]
    n_edges, start = np.int64(p.n_edges[head]), s.used[VALUES]
    room = padded(n_edges)
    if start + room > s.value.size:
        return False
    value = s.value[start : start + room]
    if room == VECTOR and facts(a).numbers[0] == 2 and t.entry.size >= VECTOR:
        first = s.slot_at[slot]
        last = first + s.slot_len[slot]
        add_rows_of_one_vector(t.entry, s.pool_start, s.pool_stop, s.pool_x, first, last, s.value, start)
    else:
        for e in range(room):
            value[e] = np.float32(0.0)
        _add_rows(a, slot, value)
    edges = slice(t.edge_ptr[head], t.edge_ptr[head] + n_edges)  # loops over slices become vectors
    bias, step = t.edge_bias[edges], t.edge_step[edges]
    for e in range(n_edges):
        value[e] = bias[e] + step[e] * value[e]
    if scoring.ridge_leaves and t.node_leaf[head]:
        for e in range(room):
            value[e] = min(max(value[e], np.float32(0.0)), np.float32(1.0))
    else:
        sigmoid(value)
    if t.node_leaf[head]:
        path = s.slot_path[slot]
        for e in range(room):
            value[e] *= path
    s.slot_value[slot] = start
    s.used[VALUES] = start + room
    return True


@kernel(fastmath=True)
def _add_rows(a: Table, slot: int, value: Floats) -> None:
    """value[e] += weight · x over the rows of a slot. A row as long as a dense one is dense: a weight for each edge."""
    t, s = trie(a), search(a)
    weights = view_as(a, ENTRY, 2 * t.entry.size, np.int8)
    wide_entry = view_as(a, ENTRY, t.entry.size // 2, np.uint32)
    size, n = np.uint64(facts(a).numbers[0]), value.size
    dense = np.uint64(n) // size
    source = np.uint64(s.slot_at[slot])
    for j in range(source, source + np.uint64(s.slot_len[slot])):
        start, stop, x = np.uint64(s.pool_start[j]), np.uint64(s.pool_stop[j]), s.pool_x[j]
        if stop - start == dense:
            for e in range(n):
                value[e] += x * np.float32(weights[start * size + np.uint64(e)])
        elif size == _FOUR:
            for i in range(start, stop):
                value[wide_entry[i] >> _BYTE] += x * np.float32(np.int8(wide_entry[i]))
        else:
            for i in range(start, stop):
                value[t.entry[i] >> _BYTE] += x * np.float32(np.int8(t.entry[i]))


@kernel()
def _expand(a: Table, scoring: Scoring, first: int, n: int) -> int:
    """The children of a beam's nodes into next_*; a leaf stays as it is. Returns how many; 0 if all are leaves."""
    t, s = trie(a), search(a)
    found, grew = 0, False
    for b in range(first, first + n):
        node, path, slot = s.beam_node[b], s.beam_path[b], s.beam_slot[b]
        if t.node_leaf[node]:
            s.next_node[found], s.next_path[found], s.next_slot[found] = node, path, slot
            found += 1
            continue
        grew = True
        n_edges, first_edge = t.edge_ptr[node + 1] - t.edge_ptr[node], t.edge_ptr[s.slot_node[slot]]
        value = s.value[s.slot_value[slot] + t.edge_ptr[node] - first_edge :]
        target, after = t.edge_target[t.edge_ptr[node] :], slice(found, found + n_edges)
        next_node, next_path, next_slot = s.next_node[after], s.next_path[after], s.next_slot[after]
        given = path if scoring.conditional else np.float32(1.0)
        for e in range(n_edges):
            next_node[e], next_path[e], next_slot[e] = target[e], given * value[e], slot
        found += n_edges
    return found if grew else 0


@kernel()
def _keep(a: Table, found: int, beam: int, first: int) -> int:
    """The best of next_* into beam_*, in the order they have; returns how many."""
    s, weights, n = search(a), request(a).node_weight, 0
    worth = s.next_worth if weights.size else s.next_path
    for i in range(found if weights.size else 0):
        worth[i] = s.next_path[i] * weights[s.next_node[i]]
    worth[found : found + LANES] = 0.0
    bound = bound_of_largest(worth, found, beam) if found > LANES and beam <= LANES // 2 else np.float32(0.0)
    for i in range(found):
        s.chosen[n] = i
        n += np.int64(worth[i] >= bound)
    if n > beam:
        n = _best_of_chosen(a, worth, n, beam)
    for i in range(n):
        j = s.chosen[i]
        s.beam_node[first + i], s.beam_path[first + i] = s.next_node[j], s.next_path[j]
        s.beam_slot[first + i] = s.next_slot[j]
    return n


@kernel()
def _best_of_chosen(a: Table, worth: Floats, n: int, most: int) -> int:
    """Of n chosen places, more than there may be, the best; ties by lower node. Returns how many."""
    s, kept = search(a), 0
    for i in range(n):
        s.keys[i] = key(worth[s.chosen[i]], s.next_node[s.chosen[i]])
    least = least_of_largest(s.keys, n, most, s.work)
    for i in range(n):
        s.chosen[kept] = s.chosen[i]
        kept += np.int64(s.keys[i] >= least)
    return kept


@kernel()
def descend(a: Table, scoring: Scoring, n_trees: int, beam: int) -> bool:
    """The `beam` best leaves of every tree t as slots s.leaf[s.leaves[t]:s.leaves[t + 1]]. False without room.

    Level by level; a leaf that is reached early waits in the beam and competes with what lies deeper. Nodes compete by
    path · weight of the node, ties by lower node. The trees go down in lockstep, and what a level needs is asked for
    before any of it is used: their cache misses overlap. Roots have the slots 0 … n_trees − 1.
    """
    t, s = trie(a), search(a)
    for tree in range(n_trees):
        at = tree * beam
        s.beam_node[at], s.beam_path[at], s.beam_slot[at] = s.slot_node[tree], np.float32(1.0), tree
        s.beam_size[tree] = 1
    growing = True
    while growing:
        growing = False
        first_new = s.used[SLOTS]
        for tree in range(n_trees):
            found = _expand(a, scoring, tree * beam, s.beam_size[tree])
            if found:
                growing = True
                s.beam_size[tree] = _keep(a, found, beam, tree * beam)
                if not _enter(a, tree * beam, s.beam_size[tree]):
                    return False
        for slot in range(first_new, s.used[SLOTS]):
            fetch(a, slot)
        for slot in range(first_new, s.used[SLOTS]):
            if not t.node_leaf[s.slot_node[slot]] and not evaluate(a, slot, scoring):
                return False
    s.leaves[0] = 0
    for tree in range(n_trees):
        n = s.leaves[tree]
        for b in range(tree * beam, tree * beam + s.beam_size[tree]):
            s.leaf[n] = s.beam_slot[b]
            n += 1
        s.leaves[tree + 1] = n
    return True


@kernel()
def _enter(a: Table, first: int, n: int) -> bool:
    """Slots for the groups that a beam has just reached."""
    t, s = trie(a), search(a)
    for b in range(first, first + n):
        node = s.beam_node[b]
        if t.node_head[node] and s.node_slot[node] < 0:
            slot = step_down(a, s.beam_slot[b], node, s.beam_path[b])
            if slot < 0:
                return False
            s.beam_slot[b] = slot
    return True


@kernel()
def reach(a: Table, scoring: Scoring, node: int) -> int:
    """The slot of a head, made along the path from the nearest group above that has one; -1 without room.

    slot_path is the product of the edges on the way (conditional) or the last edge's own score: the same numbers, in
    the same order, as the beam computes.
    """
    p, s = places(a), search(a)
    while s.node_slot[node] < 0:
        below = node  # the highest head of the path that has no slot yet
        while s.node_slot[p.head[p.parent[below]]] < 0:
            below = p.head[p.parent[below]]
        above = s.node_slot[p.head[p.parent[below]]]
        if s.slot_value[above] < 0 and not evaluate(a, above, scoring):
            return -1
        path = _path_inside(a, scoring, above, below)
        slot = step_down(a, above, below, path)
        if slot < 0:
            return -1
        fetch(a, slot)
    return int(s.node_slot[node])


@kernel()
def _path_inside(a: Table, scoring: Scoring, above: int, node: int) -> float:
    """Probability of a head below the slot `above`."""
    t, p, s = trie(a), places(a), search(a)
    head = s.slot_node[above]
    first = s.slot_value[above] - t.edge_ptr[head]
    if not scoring.conditional:
        return s.value[first + p.parent_edge[node]]
    length, at = 0, node
    while at != head:
        at = p.parent[at]
        length += 1
    path = s.slot_path[above]
    for i in range(length - 1, -1, -1):  # from the head down, as the beam multiplies
        at = node
        for _ in range(i):
            at = p.parent[at]
        path *= s.value[first + p.parent_edge[at]]
    return path
