"""Which weights of a solved node survive, and how they are stored.

    clip     |w| ≤ amount · max|w| of the same edge is dropped (the paper's, the bias included in the maximum)
    energy   the smallest weights that together hold `amount` of the edge's ‖w‖² are dropped

Survivors become 8-bit integers with one step per edge; the bias stays a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.sparse import Floats, Int32s, Int64s

_SHIFT = 19  # keeps a float's exponent and four bits of its fraction
_FIRST_BIN = (127 - 40) << 4  # 2^-40: below it all weights are the same
_BINS = 64 << 4


class Block(NamedTuple):
    """The sparse regressors of one node, by feature: row r is feature features[r], its entries
    edges[row_ptr[r]:row_ptr[r+1]], ascending, with weights · steps[edge]; biases [edges] belong to the constant 1."""

    features: Int32s
    row_ptr: Int64s
    edges: npt.NDArray[np.uint16]
    weights: npt.NDArray[np.int8]
    steps: Floats
    biases: Floats


@kernel(fastmath=True)
def clip_thresholds(weights: Floats, amount: float, thresholds: Floats) -> None:
    """thresholds[e] = amount · max over f of |W[f, e]|, the bias row included."""
    thresholds[:] = 0.0
    for f in range(weights.shape[0]):
        for e in range(weights.shape[1]):
            thresholds[e] = max(thresholds[e], abs(weights[f, e]))
    for e in range(weights.shape[1]):
        thresholds[e] *= np.float32(amount)


@kernel()
def energy_thresholds(weights: Floats, amount: float, thresholds: Floats) -> None:
    """The largest threshold on |w| whose dropped weights hold at most `amount` of the edge's squared norm.

    Taken from a histogram over the leading bits of the floats (16 bins per factor of two) instead of a sort.
    """
    bits = weights.view(np.int32)
    width = weights.shape[1]
    energy = np.zeros((width, _BINS), np.float64)
    for f in range(weights.shape[0] - 1):
        for e in range(width):
            b = ((bits[f, e] & 0x7FFFFFFF) >> _SHIFT) - _FIRST_BIN
            w = np.float64(weights[f, e])
            energy[e, min(max(b, 0), _BINS - 1)] += w * w
    floor = np.empty(1, np.int32)
    for e in range(width):
        budget, dropped, b = amount * energy[e].sum(), 0.0, 0
        while b < _BINS - 1 and dropped + energy[e, b] <= budget:
            dropped += energy[e, b]
            b += 1
        floor[0] = ((b + _FIRST_BIN) << _SHIFT) - 1  # just below the first bin that is kept
        thresholds[e] = floor.view(np.float32)[0] if b > 0 else np.float32(0.0)


@kernel()
def drop(weights: Floats, thresholds: Floats) -> None:
    """Set to 0 what is not above its edge's threshold; the bias row is left alone."""
    for f in range(weights.shape[0] - 1):
        for e in range(weights.shape[1]):
            if abs(weights[f, e]) <= thresholds[e]:
                weights[f, e] = 0.0


def pack(weights: Floats, n_edges: int) -> Block:
    """The non-zeros of the first columns of W [features + 1, n_edges or more], the bias row last."""
    counts = np.zeros(len(weights) - 1, np.int64)
    _count(weights, n_edges, counts)
    rows = np.flatnonzero(counts).astype(np.int32)
    row_ptr = np.concatenate([[0], np.cumsum(counts[rows])])
    edges, packed = np.empty(row_ptr[-1], np.uint16), np.empty(row_ptr[-1], np.int8)
    steps, biases = np.zeros(n_edges, np.float32), np.empty(n_edges, np.float32)
    _quantise(weights, edges, packed, steps, biases)
    return Block(rows, row_ptr, edges, packed, steps, biases)


def side_by_side(features: Int32s, blocks: Sequence[Block]) -> Block:
    """Blocks of columns over the same rows as one block; row r of theirs is feature features[r]."""
    counts = np.zeros(len(features), np.int64)
    for block in blocks:
        counts[block.features] += np.diff(block.row_ptr)
    alive = counts > 0
    row_ptr = np.concatenate([[0], np.cumsum(counts[alive])])
    edges, weights = np.empty(row_ptr[-1], np.uint16), np.empty(row_ptr[-1], np.int8)
    cursor = np.cumsum(counts) - counts
    first = 0
    for block in blocks:
        _append(*block[:4], first, cursor, edges, weights)
        first += len(block.steps)
    steps, biases = np.concatenate([b.steps for b in blocks]), np.concatenate([b.biases for b in blocks])
    return Block(features[alive], row_ptr, edges, weights, steps, biases)


@kernel()
def _append(
    rows: Int32s,
    row_ptr: Int64s,
    edges: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.int8],
    first: int,
    cursor: Int64s,
    out_edges: npt.NDArray[np.uint16],
    out_weights: npt.NDArray[np.int8],
) -> None:
    """Add a block's entries to the rows of the joined one; its edges are numbered from `first` there."""
    for r in range(rows.size):
        at = cursor[rows[r]]
        for j in range(row_ptr[r], row_ptr[r + 1]):
            out_edges[at] = first + edges[j]
            out_weights[at] = weights[j]
            at += 1
        cursor[rows[r]] = at


@kernel()
def _count(weights: Floats, n_edges: int, counts: Int64s) -> None:
    for f in range(counts.size):
        for e in range(n_edges):
            counts[f] += weights[f, e] != 0.0


@kernel()
def _quantise(
    block: Floats,
    edges: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.int8],
    steps: Floats,
    biases: Floats,
) -> None:
    """weight = round(w / step), step = max|w| / 127; a survivor that rounds to 0 keeps its place as 0."""
    n, at = block.shape[0] - 1, 0
    for f in range(n):
        for e in range(steps.size):
            steps[e] = max(steps[e], abs(block[f, e]))
    for e in range(steps.size):
        biases[e] = block[n, e]
        steps[e] /= np.float32(127.0)
    for f in range(n):
        for e in range(steps.size):
            if block[f, e] != 0.0:
                edges[at] = e
                weights[at] = np.int8(np.rint(block[f, e] / steps[e]))
                at += 1
