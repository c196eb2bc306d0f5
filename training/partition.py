"""Label centroids → a balanced tree over all labels.

A label is the unit vector along Σ_i y_il·x_i. A node's labels are halved by balanced spherical 2-means until at most
`max_leaf` are left; wide recipes then collapse groups of binary levels into one level of many children. Labels
without a training point have a zero centroid and go where balance puts them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s

_LEAST_GAIN = 1e-4


class Shape(NamedTuple):
    """A tree without regressors. Nodes are numbered breadth-first, so the children of a node are consecutive.

    labels [L]: all label ids in tree order; a node holds labels[first[n]:last[n]].
    child [n]: its first child node, or -1 for a leaf; n_children [n]: 0 for a leaf.
    depth [n]; key [n]: the node's place in the binary tree (root 1, children 2k and 2k + 1), which seeds it.
    """

    labels: Int32s
    first: Int64s
    last: Int64s
    child: Int64s
    n_children: Int64s
    depth: Int64s
    key: npt.NDArray[np.uint64]

    @property
    def n_nodes(self) -> int:
        return len(self.first)


def label_centroids(features: Csr, by_label: Csr, largest: int) -> Csr:
    """Unit centroids of all labels from unit points; keeps each one's `largest` entries (0: all of them)."""
    n_labels, n_features = by_label.n_rows, features.n_cols
    capacity = n_labels * min(largest, n_features) if largest else _centroid_room(features, by_label)
    indptr = np.zeros(n_labels + 1, np.int64)
    indices, values = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
    _centroids(*features[:3], *by_label[:3], n_features, largest, indptr, indices, values)
    nnz = int(indptr[-1])
    return Csr(indptr, indices[:nnz], values[:nnz], n_features)


def _centroid_room(features: Csr, by_label: Csr) -> int:
    """An upper bound on the entries of all centroids: Σ over labels of min(D, entries of its points)."""
    lengths = np.diff(features.indptr)[by_label.indices]
    sums = np.concatenate([[0], np.cumsum(lengths)])
    return int(np.minimum(sums[by_label.indptr[1:]] - sums[by_label.indptr[:-1]], features.n_cols).sum())


@kernel()
def _centroids(
    indptr: Int64s,
    indices: Int32s,
    values: Floats,
    label_indptr: Int64s,
    points: Int32s,
    relevance: Floats,
    n_features: int,
    largest: int,
    out_indptr: Int64s,
    out_indices: Int32s,
    out_values: Floats,
) -> None:
    total = np.zeros(n_features, np.float64)
    touched = np.empty(n_features, np.int32)
    n = 0
    for label in range(label_indptr.size - 1):
        n_touched = 0
        for k in range(label_indptr[label], label_indptr[label + 1]):
            y = np.float64(relevance[k])
            for j in range(indptr[points[k]], indptr[points[k] + 1]):
                f, share = indices[j], y * values[j]
                if share == 0.0:  # a value that underflowed would be counted as untouched again and again
                    continue
                if total[f] == 0.0:
                    touched[n_touched] = f
                    n_touched += 1
                total[f] += share
        kept = np.sort(touched[:n_touched])
        if 0 < largest < n_touched:
            falling = np.argsort(-total[kept], kind="mergesort")[:largest]
            kept = np.sort(kept[falling])
        norm = 0.0
        for f in kept:
            norm += total[f] * total[f]
        for f in kept:
            out_indices[n] = f
            out_values[n] = total[f] / np.sqrt(norm)
            n += 1
        total[touched[:n_touched]] = 0.0
        out_indptr[label + 1] = n


def skeleton(n_labels: int, max_leaf: int) -> Shape:
    """The binary tree that balanced halving gives: its nodes depend on the number of labels alone."""
    first, last, child, depth, key = [0], [n_labels], [-1], [0], [1]
    for node, start in enumerate(first):  # which grows on the way
        size = last[node] - start
        if size > max_leaf:
            middle = start + size // 2
            child[node] = len(first)
            first += [start, middle]
            last += [middle, last[node]]
            child += [-1, -1]
            depth += [depth[node] + 1] * 2
            key += [2 * key[node], 2 * key[node] + 1]
    children = np.array(child, np.int64)
    return Shape(
        np.arange(n_labels, dtype=np.int32),
        np.array(first, np.int64),
        np.array(last, np.int64),
        children,
        np.where(children >= 0, 2, 0),
        np.array(depth, np.int64),
        np.array(key, np.uint64),
    )


def grow(centroids: Csr, max_leaf: int, seed: int, tree: int) -> Shape:
    """Halve the labels by balanced spherical 2-means, from the root down; a node's randomness is its own."""
    shape = skeleton(centroids.n_rows, max_leaf)
    sums = np.zeros((centroids.n_cols, 2), np.float64)
    for node in np.flatnonzero(shape.child >= 0):
        labels = shape.labels[shape.first[node] : shape.last[node]]
        random = np.random.default_rng([seed, tree, int(shape.key[node])])
        one, two = np.sort(random.choice(len(labels), 2, replace=False))
        _halve(*centroids[:3], labels, one, two, sums)
    return shape


@kernel()
def _halve(
    indptr: Int64s, indices: Int32s, values: Floats, labels: Int32s, one: int, two: int, sums: npt.NDArray[np.float64]
) -> None:
    """Balanced spherical 2-means on one node: reorders `labels`, the lower half first. Ties by lower id.

    `sums` [D, 2] holds both halves' centroid sums S; it is zero on entry and on return. Centres are S/‖S‖, so the
    labels' mean cosine to their centres is (‖S_0‖ + ‖S_1‖) / n and needs no pass of its own.
    """
    n, half = labels.size, labels.size // 2
    by_id = np.sort(labels)
    norms = np.ones(2, np.float64)
    difference = np.empty(n, np.float64)
    _add(indptr, indices, values, by_id[one : one + 1], 0, sums)
    _add(indptr, indices, values, by_id[two : two + 1], 1, sums)
    before = -np.inf
    while True:
        for i in range(n):
            total = 0.0
            for j in range(indptr[by_id[i]], indptr[by_id[i] + 1]):
                f = indices[j]
                total += values[j] * (sums[f, 1] * norms[1] - sums[f, 0] * norms[0])
            difference[i] = total
        order = np.argsort(difference, kind="mergesort")
        for i in range(n):
            labels[i] = by_id[order[i]]
        _clear(indptr, indices, labels, sums)
        lower = np.sqrt(_add(indptr, indices, values, labels[:half], 0, sums))
        upper = np.sqrt(_add(indptr, indices, values, labels[half:], 1, sums))
        mean = (lower + upper) / n
        if not mean - before >= _LEAST_GAIN:
            break
        before = mean
        norms[0] = 1.0 / lower if lower > 0.0 else 0.0
        norms[1] = 1.0 / upper if upper > 0.0 else 0.0
    _clear(indptr, indices, labels, sums)


@kernel()
def _clear(indptr: Int64s, indices: Int32s, labels: Int32s, sums: npt.NDArray[np.float64]) -> None:
    """Set to 0 what the labels' centroids touch: all of it at once where they are many."""
    touched = 0
    for label in labels:
        touched += indptr[label + 1] - indptr[label]
    if touched > sums.shape[0]:
        sums[:] = 0.0
        return
    for label in labels:
        for j in range(indptr[label], indptr[label + 1]):
            sums[indices[j], 0] = 0.0
            sums[indices[j], 1] = 0.0


@kernel()
def _add(
    indptr: Int64s, indices: Int32s, values: Floats, labels: Int32s, side: int, sums: npt.NDArray[np.float64]
) -> float:
    """Add the labels' centroids to one side's sum S; returns ‖S‖², kept up by ‖S + v‖² = ‖S‖² + 2·S·v + ‖v‖²."""
    square = 0.0
    for label in labels:
        for j in range(indptr[label], indptr[label + 1]):
            f, v = indices[j], np.float64(values[j])
            square += v * (2.0 * sums[f, side] + v)
            sums[f, side] += v
    return square


def collapse(shape: Shape, widest: int, bottom: int = 16) -> Shape:
    """Merge groups of binary levels: a root of at most `widest` children, below it levels of at most `bottom`.

    Few leaves hang directly from the root; otherwise the lowest levels are grouped first, so that wide levels are at
    the top, where a feature's weights are read once for many children. widest = 2 leaves the binary tree as it is.
    """
    height = int(shape.depth.max())
    if widest <= 2 or height <= 1:
        return shape
    top, step = int(np.log2(widest)), int(np.log2(min(bottom, widest)))
    cuts = [height]
    while cuts[-1] > top:
        cuts.append(cuts[-1] - step)
    return _keep_depths(shape, {0, *cuts})


def _keep_depths(shape: Shape, depths: set[int]) -> Shape:
    """The nodes at these depths and all leaves; a kept node's children are the next kept nodes below it."""
    kept = [0]
    child, n_children, depth = [], [], [0]
    for at, node in enumerate(kept):
        below = [] if shape.child[node] < 0 else _next_kept(shape, int(node), depths)
        child.append(len(kept) if below else -1)
        n_children.append(len(below))
        kept += below
        depth += [depth[at] + 1] * len(below)
    nodes = np.array(kept, np.int64)
    return Shape(
        shape.labels,
        shape.first[nodes],
        shape.last[nodes],
        np.array(child, np.int64),
        np.array(n_children, np.int64),
        np.array(depth, np.int64),
        shape.key[nodes],
    )


def _next_kept(shape: Shape, node: int, depths: set[int]) -> list[int]:
    found: list[int] = []
    for below in (int(shape.child[node]), int(shape.child[node]) + 1):
        if shape.child[below] < 0 or int(shape.depth[below]) in depths:
            found.append(below)
        else:
            found += _next_kept(shape, below, depths)
    return found
