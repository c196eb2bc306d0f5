"""Pointwise inference, whole: a point's features in, its k best labels out.

`answer` and `answer_rows` are what the engine calls. They never allocate; where a buffer is too small they say so, and
the engine makes it larger.
"""

from __future__ import annotations

import numpy as np

from core.jit import kernel
from core.kernels.arrays import facts, ranking, request, search, trie
from core.kernels.memory import Table
from core.kernels.numbers import NOTHING, key
from core.kernels.rank import Wishes, allowed, keep_best, label_score, label_weight, rank, set_factors, take_out
from core.kernels.search import POOL, Scoring, descend, evaluate, fetch, forget, new_slot
from core.sparse import Floats, Int32s, Int64s

NO_ROOM, OUT_OF_RANGE, NOT_A_VALUE = -1, -2, -3  # instead of a number of answers


@kernel()
def answer(
    a: Table,
    scoring: Scoring,
    w: Wishes,
    power: float,
    features: Int32s,
    values: Floats,
    labels: Int32s,
    scores: Floats,
) -> int:
    """The k best labels of one point, best first: how many there are, or what is wrong."""
    n = take_point(a, features, values, power)
    if n >= 0:
        n = _answer(a, scoring, w, n, labels, scores)
    forget(a)
    return n


@kernel()
def answer_rows(
    a: Table, scoring: Scoring, w: Wishes, power: float, start: int,
    indptr: Int64s, features: Int32s, values: Floats, labels: Int32s, scores: Floats, counts: Int64s,
) -> int:  # fmt: skip
    """Rows from `start` on, as `answer` does; labels, scores [rows, k], counts [rows]. Returns the rows that are done;
    where not all are, the count of the next says what is wrong."""
    for i in range(start, indptr.size - 1):
        row = slice(indptr[i], indptr[i + 1])
        counts[i] = answer(a, scoring, w, power, features[row], values[row], labels[i], scores[i])
        if counts[i] < 0:
            return i
    return indptr.size - 1


@kernel()
def take_point(a: Table, features: Int32s, values: Floats, power: float) -> int:
    """Put a point into the pool: ascending, duplicates summed, x^power · weight, unit length.

    Returns how many features, or what is wrong.
    """
    s, weight = search(a), facts(a).feature_weight
    if features.size > s.pool_row.size:
        return NO_ROOM
    n = 0
    for j in range(features.size):
        feature, x = features[j], values[j]
        if feature < 0 or feature >= weight.size:
            return OUT_OF_RANGE
        if not (x >= np.float32(0.0) and x < np.float32(np.inf)):
            return NOT_A_VALUE
        at = n
        while at > 0 and s.pool_row[at - 1] > feature:
            at -= 1
        if at > 0 and s.pool_row[at - 1] == feature:
            s.pool_x[at - 1] += x
            continue
        for i in range(n, at, -1):
            s.pool_row[i], s.pool_x[i] = s.pool_row[i - 1], s.pool_x[i - 1]
        s.pool_row[at], s.pool_x[at] = feature, x
        n += 1
    square = 0.0
    for j in range(n):
        x = s.pool_x[j] if power == 1.0 else s.pool_x[j] ** np.float32(power)
        s.pool_x[j] = x * weight[s.pool_row[j]]
        square += np.float64(s.pool_x[j]) * np.float64(s.pool_x[j])
    if square > 0.0:
        scale = 1.0 / np.sqrt(square)
        for j in range(n):
            s.pool_x[j] = s.pool_x[j] * scale
    return n


@kernel()
def start(a: Table, scoring: Scoring, n: int, first: int, n_trees: int) -> bool:
    """Slots for the roots of some trees, all with the point's own list: at a root the row of feature f is row f."""
    t, s = trie(a), search(a)
    s.used[POOL] = n
    for tree in range(first, first + n_trees):
        slot = new_slot(a, t.tree_ptr[tree], 1.0, 0)
        if slot < 0:
            return False
        s.slot_at[slot], s.slot_len[slot] = 0, n
        fetch(a, slot)
        if not evaluate(a, slot, scoring):
            return False
    return True


@kernel()
def _answer(a: Table, scoring: Scoring, w: Wishes, n: int, labels: Int32s, scores: Floats) -> int:
    n_trees = trie(a).tree_ptr.size - 1
    if not start(a, scoring, n, 0, n_trees) or not descend(a, scoring, n_trees, w.beam):
        return NO_ROOM
    if not scoring.conditional:
        for tree in range(n_trees):
            set_factors(a, scoring, tree)
    n_kept = _score_candidates(a, scoring, w) if request(a).candidates.size else rank(a, scoring, w)
    if n_kept < 0:
        return NO_ROOM
    take_out(ranking(a).kept, n_kept, labels, scores)
    if request(a).edge_weight.size:  # kept for score · weight
        complete = w.complete or request(a).candidates.size > 0
        for i in range(n_kept):
            scores[i] = label_score(a, scoring, complete, labels[i])
    return n_kept


@kernel()
def _score_candidates(a: Table, scoring: Scoring, w: Wishes) -> int:
    """The best of the candidates, each scored exactly in every tree, as a heap of the kept; -1 without room."""
    r, n_kept = request(a), 0
    for label in r.candidates:
        score = np.float32(label_score(a, scoring, True, label))
        if score < np.float32(0.0):
            return -1
        if score > NOTHING and score >= w.threshold and allowed(r.exclude, label):
            n_kept = keep_best(ranking(a).kept, n_kept, w.k, key(score * label_weight(a, label), label))
    return n_kept
