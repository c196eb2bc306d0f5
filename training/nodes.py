"""Fit the regressors of one node: its points' features renumbered, solved, pruned, refitted, packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s
from training.params import Recipe, Regression
from training.pruning import Block, clip_thresholds, drop, energy_thresholds, pack, side_by_side
from training.solvers import LOGISTIC, RIDGE, descend

_COLUMNS = 64  # edges solved together: their weights for a few thousand features fit the second-level cache


class Problem(NamedTuple):
    """The targets of a node's edges, computed for some of them at a time: all of a wide root's would be large."""

    n_edges: int
    targets: Callable[[int, int, Floats], None]  # first edge, last edge, z [points, edges or more], all 0 → z


def fit_node(
    features: Csr, points: Int64s, problem: Problem, costs: Floats, how: Regression, recipe: Recipe, seed: int
) -> Block:
    """All edges of a node, some columns at a time; each run of columns is packed before the next is solved."""
    local, kept = gather(features, points)
    blocks = []
    for first in range(0, problem.n_edges, _COLUMNS):
        last = min(first + _COLUMNS, problem.n_edges)
        z = np.zeros((len(points), _padded(last - first)), np.float32)
        problem.targets(first, last, z)
        blocks.append(pack(_fit_columns(local, z, costs, how, recipe, seed + first), last - first))
    return side_by_side(kept, blocks)


def _padded(width: int) -> int:
    """Columns up to a whole number of vectors, with targets of 0: a loop's scalar rest costs more than they do."""
    vector = 8 if width <= 8 else 16
    return width if width <= 2 else width + -width % vector


def _fit_columns(local: Csr, z: Floats, costs: Floats, how: Regression, recipe: Recipe, seed: int) -> Floats:
    """W [features + 1, columns of z]; z may be overwritten."""
    weights = np.zeros((local.n_cols + 1, z.shape[1]), np.float32)
    loss = LOGISTIC if how.loss == "logistic" else RIDGE
    duals = z if loss == LOGISTIC else np.zeros_like(z)  # only a ridge step looks at its target again
    rows = (local.indptr, local.indices, local.values)
    descend(*rows, costs, z, loss, how.passes, False, seed, weights, duals)
    thresholds = np.empty(z.shape[1], np.float32)
    prune = clip_thresholds if recipe.prune == "clip" else energy_thresholds
    prune(weights, recipe.amount, thresholds)
    drop(weights, thresholds)
    if how.refit:
        descend(*rows, costs, z, loss, how.refit, True, seed + 1, weights, duals)
    return weights


def gather(features: Csr, points: Int64s) -> tuple[Csr, Int32s]:
    """The rows of some points with features renumbered 0 … n−1, and the features' own ids, ascending."""
    if len(points) == features.n_rows:
        return features, np.arange(features.n_cols, dtype=np.int32)
    lengths = features.indptr[points + 1] - features.indptr[points]
    indptr = np.zeros(len(points) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    number = np.zeros(features.n_cols, np.int32)
    n = _gather(*features[:3], points, number, indptr, indices, values)
    kept = np.flatnonzero(number).astype(np.int32)
    return Csr(indptr, indices, values, n), kept


@kernel()
def _gather(
    indptr: Int64s,
    indices: Int32s,
    values: Floats,
    points: Int64s,
    number: Int32s,
    out_indptr: Int64s,
    out_indices: Int32s,
    out_values: Floats,
) -> int:
    for point in points:
        for j in range(indptr[point], indptr[point + 1]):
            number[indices[j]] = 1
    n = 0
    for f in range(number.size):
        if number[f]:
            n += 1
            number[f] = n  # one more than its number: 0 says absent
    for k in range(points.size):
        at = out_indptr[k]
        for j in range(indptr[points[k]], indptr[points[k] + 1]):
            out_indices[at] = number[indices[j]] - 1
            out_values[at] = values[j]
            at += 1
    return n
