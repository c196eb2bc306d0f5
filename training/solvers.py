"""The regressions of one node, all edges at once: batched dual coordinate descent.

All edges of a node share their points, so the outer loop runs over points and the inner ones over edges: W is a
dense block [features of the node][edges] and every feature of a point is read once for all edges. For each edge

    logistic   min ½‖w‖² + Σ_i c_i { z_i·log(1 + e^(−w·x_i)) + (1 − z_i)·log(1 + e^(w·x_i)) }
    ridge      min ½‖w‖² + Σ_i c_i ½ (z_i − w·x_i)²

where x_i ends with the constant 1 whose weight is the bias. The dual variables are one per (point, edge); W is kept
equal to what they imply, so a pass is exact coordinate minimisation. A weight of exactly 0 after pruning stays 0 in
the *masked* passes: those minimise the same objective over the surviving weights (refit).
"""

from __future__ import annotations

import numpy as np

from core.jit import kernel
from core.sparse import Floats, Int32s, Int64s

LOGISTIC, RIDGE = 0, 1
_LOG_STEP = np.float32(np.log(2.0) / 2**23)
_LOG_OFFSET = np.float32(126.94269504 * np.log(2.0))


@kernel(fastmath=True, inline=True)
def _sigmoid(m: np.float32) -> np.float32:
    """1 / (1 + e^−m) to 4e-6, in arithmetic that vectorises: a polynomial for e^(−m/64), squared six times."""
    t = -min(max(m, np.float32(-20.0)), np.float32(20.0)) * np.float32(1.0 / 64.0)
    e = np.float32(1.0 / 720.0)
    e = e * t + np.float32(1.0 / 120.0)
    e = e * t + np.float32(1.0 / 24.0)
    e = e * t + np.float32(1.0 / 6.0)
    e = e * t + np.float32(0.5)
    e = e * t + np.float32(1.0)
    e = e * t + np.float32(1.0)
    e = e * e
    e = e * e
    e = e * e
    e = e * e
    e = e * e
    e = e * e
    return np.float32(1.0) / (np.float32(1.0) + e)


@kernel(fastmath=True)
def _margins(indices: Int32s, values: Floats, start: int, stop: int, weights: Floats, margins: Floats) -> None:
    """margins[:] = bias + Σ_f x_f·W[f,:], four rows at a time; the bias is the last row of W."""
    width = margins.size
    bias = weights[weights.shape[0] - 1]
    for e in range(width):
        margins[e] = bias[e]
    j = start
    while j + 4 <= stop:
        w0, w1, w2, w3 = weights[indices[j]], weights[indices[j + 1]], weights[indices[j + 2]], weights[indices[j + 3]]
        x0, x1, x2, x3 = values[j], values[j + 1], values[j + 2], values[j + 3]
        for e in range(width):
            margins[e] += x0 * w0[e] + x1 * w1[e] + x2 * w2[e] + x3 * w3[e]
        j += 4
    while j < stop:
        w0, x0 = weights[indices[j]], values[j]
        for e in range(width):
            margins[e] += x0 * w0[e]
        j += 1


@kernel(fastmath=True)
def _move(indices: Int32s, values: Floats, start: int, stop: int, steps: Floats, weights: Floats) -> None:
    """W[f,:] += x_f·steps, the bias included."""
    width = steps.size
    for j in range(start, stop):
        w, x = weights[indices[j]], values[j]
        for e in range(width):
            w[e] += x * steps[e]
    w = weights[weights.shape[0] - 1]
    for e in range(width):
        w[e] += steps[e]


@kernel()
def _two_margins(indices: Int32s, values: Floats, start: int, stop: int, weights: Floats, margins: Floats) -> None:
    """`_margins` of a binary node: two scalar sums in order, since vectors over features would have to gather."""
    bias = weights.shape[0] - 1
    left, right = weights[bias, 0], weights[bias, 1]
    for j in range(start, stop):
        f, x = indices[j], values[j]
        left += x * weights[f, 0]
        right += x * weights[f, 1]
    margins[0], margins[1] = left, right


@kernel()
def _two_move(indices: Int32s, values: Floats, start: int, stop: int, steps: Floats, weights: Floats) -> None:
    """`_move` of a binary node."""
    left, right = steps[0], steps[1]
    for j in range(start, stop):
        f, x = indices[j], values[j]
        a, b = weights[f, 0], weights[f, 1]
        weights[f, 0] = a + x * left
        weights[f, 1] = b + x * right
    bias = weights.shape[0] - 1
    weights[bias, 0] += left
    weights[bias, 1] += right


@kernel(fastmath=True)
def _masked_move(indices: Int32s, values: Floats, start: int, stop: int, steps: Floats, weights: Floats) -> None:
    """W[f,:] += x_f·steps where W[f,:] is not 0; the bias always."""
    for j in range(start, stop):
        w, x = weights[indices[j]], values[j]
        for e in range(steps.size):
            before = w[e]
            after = before + x * steps[e]
            w[e] = after if before != np.float32(0.0) else before
    w = weights[weights.shape[0] - 1]
    for e in range(steps.size):
        w[e] += steps[e]


@kernel(fastmath=True)
def _logistic_steps(margins: Floats, norms: Floats, cost: np.float32, duals: Floats, steps: Floats) -> None:
    """Solve m' + S·σ(m') = m + S·a with S = c·q; then a' = σ(m'), step = c·(a − a').

    The root's sign is known (positive iff the right-hand side exceeds S/2), so the equation is mirrored to
    n + S·σ(n) = r with n ≤ 0. There n is below r, and below ln((r − n)/S) ≈ ln(r + ln S) − ln S: from the smaller of
    the two, three Newton steps reach what float32 holds: margins to 0.01 up to S of 10⁴, to 0.3 at 3·10⁵ (a node of one
    point). From the old margin they do not: where S is large each step only moves n by 1, and descent oscillates.
    """
    zero, one, half = np.float32(0.0), np.float32(1.0), np.float32(0.5)
    bits = steps.view(np.int32)
    log_scale = _fast_log(max(cost * norms[0], one), steps, bits)
    for e in range(margins.size):
        scale = cost * norms[e]
        right = margins[e] + scale * duals[e]
        steps[e] = max(min(right, scale - right) + log_scale, half)
    for e in range(margins.size):
        scale = cost * norms[e]
        right = margins[e] + scale * duals[e]
        positive = right > scale * half
        r = scale - right if positive else right
        guess = (np.float32(bits[e]) * _LOG_STEP - _LOG_OFFSET) - log_scale
        n = min(min(r, guess), zero)
        for _ in range(3):
            p = _sigmoid(n)
            n = min(n - (n + scale * p - r) / (one + scale * p * (one - p)), zero)
        p = _sigmoid(-n if positive else n)
        steps[e] = cost * (duals[e] - p)
        duals[e] = p


@kernel(fastmath=True, inline=True)
def _fast_log(x: np.float32, buffer: Floats, bits: Int32s) -> np.float32:
    """ln x to 0.05, from the exponent and fraction of a float32; `bits` is `buffer` seen as integers."""
    buffer[0] = x
    return np.float32(bits[0]) * _LOG_STEP - _LOG_OFFSET


@kernel(fastmath=True)
def _ridge_steps(
    margins: Floats, norms: Floats, cost: np.float32, targets: Floats, duals: Floats, steps: Floats
) -> None:
    """step = (z − m − α/c) / (q + 1/c); α += step."""
    inverse = np.float32(1.0) / cost
    for e in range(margins.size):
        step = (targets[e] - margins[e] - duals[e] * inverse) / (norms[e] + inverse)
        steps[e] = step
        duals[e] += step


@kernel()
def _shuffle(order: Int64s, state: np.uint64) -> np.uint64:
    """Fisher–Yates with a xorshift of its own: the same on every platform and in every thread."""
    for i in range(order.size - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@kernel(fastmath=True)
def descend(
    indptr: Int64s,
    indices: Int32s,
    values: Floats,
    costs: Floats,
    targets: Floats,
    loss: int,
    passes: int,
    masked: bool,
    seed: int,
    weights: Floats,
    duals: Floats,
) -> None:
    """`passes` rounds over the points of a node, in a new random order each.

    indptr, indices, values: the points' features, numbered inside the node; costs [n]; targets z [n, edges];
    weights [features + 1, edges], the bias last; duals [n, edges]. Both are read and written: a fresh logistic
    solve starts from weights 0 and duals = targets, which may be the same array, a fresh ridge solve from 0 and 0.
    """
    n, width = targets.shape
    margins, steps = np.empty(width, np.float32), np.empty(width, np.float32)
    squares = np.empty(0, np.float32) if masked else _norms(indptr, values)
    kept_squares = _masked_norms(indptr, indices, values, weights) if masked else np.empty((0, width), np.float32)
    same = np.empty(width, np.float32)
    order = np.arange(n)
    state = np.uint64(seed) | np.uint64(1)
    for _ in range(passes):
        state = _shuffle(order, state)
        for i in order:
            start, stop = indptr[i], indptr[i + 1]
            if not masked:
                same[:] = squares[i]
            norms = kept_squares[i] if masked else same
            if width == 2:
                _two_margins(indices, values, start, stop, weights, margins)
            else:
                _margins(indices, values, start, stop, weights, margins)
            if loss == LOGISTIC:
                _logistic_steps(margins, norms, costs[i], duals[i], steps)
            else:
                _ridge_steps(margins, norms, costs[i], targets[i], duals[i], steps)
            if masked:
                _masked_move(indices, values, start, stop, steps, weights)
            elif width == 2:
                _two_move(indices, values, start, stop, steps, weights)
            else:
                _move(indices, values, start, stop, steps, weights)


@kernel(fastmath=True)
def _norms(indptr: Int64s, values: Floats) -> Floats:
    """‖x_i‖², the constant feature included: [n]."""
    n = indptr.size - 1
    norms = np.empty(n, np.float32)
    for i in range(n):
        total = np.float32(1.0)
        for j in range(indptr[i], indptr[i + 1]):
            total += values[j] * values[j]
        norms[i] = total
    return norms


@kernel(fastmath=True)
def _masked_norms(indptr: Int64s, indices: Int32s, values: Floats, weights: Floats) -> Floats:
    """1 + Σ x_f² over the features that an edge kept: [n, edges]."""
    n, width = indptr.size - 1, weights.shape[1]
    norms = np.ones((n, width), np.float32)
    for i in range(n):
        for j in range(indptr[i], indptr[i + 1]):
            w, square = weights[indices[j]], values[j] * values[j]
            for e in range(width):
                norms[i, e] += square if w[e] != np.float32(0.0) else np.float32(0.0)
    return norms
