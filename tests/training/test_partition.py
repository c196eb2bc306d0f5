"""Trees are balanced, complete, and depend on nothing but the seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.sparse import Csr, to_scipy, transformed, transpose
from tests.strategies import matrices
from training.dataset import Dataset
from training.partition import Shape, collapse, grow, label_centroids


@given(matrices(20, 8), matrices(20, 6))
def test_centroids_are_unit_sums_of_weighted_points(x: Csr, y: Csr) -> None:
    points = transformed(x, 1.0, np.ones(8, np.float32))
    sums = to_scipy(y).toarray().T.astype(float) @ to_scipy(points).toarray().astype(float)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    expected = np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0)
    assert np.allclose(to_scipy(label_centroids(points, transpose(y), 0)).toarray(), expected, atol=1e-5)


@given(matrices(20, 8), matrices(20, 6))
def test_truncated_centroids_keep_the_largest_entries(x: Csr, y: Csr) -> None:
    points = transformed(x, 1.0, np.ones(8, np.float32))
    whole = to_scipy(label_centroids(points, transpose(y), 0)).toarray()
    cut = to_scipy(label_centroids(points, transpose(y), 3)).toarray()
    for full, few in zip(whole, cut, strict=True):
        assert np.count_nonzero(few) == min(3, np.count_nonzero(full))
        dropped = full[few == 0]
        assert not dropped.size or dropped.max() <= full[few > 0].min() + 1e-6 if few.any() else not full.any()


def check(shape: Shape, n_labels: int, max_leaf: int) -> None:
    assert np.array_equal(np.sort(shape.labels), np.arange(n_labels))
    for n in range(shape.n_nodes):
        size = shape.last[n] - shape.first[n]
        if shape.child[n] < 0:
            assert 1 <= size <= max_leaf
            continue
        below = range(shape.child[n], shape.child[n] + shape.n_children[n])
        assert [shape.first[c] for c in below] == [shape.first[n], *(shape.last[c] for c in below[:-1])]
        assert shape.last[below[-1]] == shape.last[n]
        assert all(shape.depth[c] == shape.depth[n] + 1 for c in below)


@settings(max_examples=30)
@given(matrices(30, 25), st.integers(1, 12), st.integers(0, 3))
def test_trees_hold_every_label_once_in_balanced_halves(y: Csr, max_leaf: int, seed: int) -> None:
    centroids = label_centroids(y, transpose(y), 0)
    shape = grow(centroids, max_leaf, seed, 0)
    check(shape, 25, max_leaf)
    for n in np.flatnonzero(shape.child >= 0):
        left, right = shape.child[n], shape.child[n] + 1
        assert abs((shape.last[left] - shape.first[left]) - (shape.last[right] - shape.first[right])) <= 1
    again = grow(centroids, max_leaf, seed, 0)
    for name, array in shape._asdict().items():
        assert np.array_equal(array, getattr(again, name))


def test_halves_are_a_fixed_point_of_2_means(shop: tuple[Dataset, Dataset]) -> None:
    """After the last iteration, moving to the halves' own centres and splitting again changes hardly anything."""
    data = shop[0]
    points = transformed(data.features, 1.0, np.ones(data.n_features, np.float32))
    centroids = label_centroids(points, transpose(data.relevance), 0)
    shape = grow(centroids, 150, 0, 0)
    v = to_scipy(centroids).toarray()
    left, right = (shape.labels[shape.first[c] : shape.last[c]] for c in (1, 2))
    c_left, c_right = (v[side].sum(axis=0) / np.linalg.norm(v[side].sum(axis=0)) for side in (left, right))
    order = np.argsort(v @ (c_right - c_left), kind="stable")
    overlap = len(np.intersect1d(order[: len(left)], left)) / len(left)
    assert overlap > 0.97
    cosine = (v[left] @ c_left).sum() + (v[right] @ c_right).sum()
    shuffled = np.random.default_rng(0).permutation(len(v))
    random_sums = [v[side].sum(axis=0) for side in np.array_split(shuffled, 2)]
    assert cosine > sum(np.linalg.norm(s) for s in random_sums)


@pytest.mark.parametrize(("widest", "depth"), [(2, 5), (64, 1), (16, 2), (8, 2), (4, 3)])
def test_collapse_keeps_leaves_and_shortens_paths(shop: tuple[Dataset, Dataset], widest: int, depth: int) -> None:
    centroids = label_centroids(shop[0].features, transpose(shop[0].relevance), 0)
    binary = grow(centroids, 10, 0, 0)
    shape = collapse(binary, widest)
    check(shape, 300, 10)
    assert int(shape.depth.max()) == depth
    assert shape.n_children.max() <= max(widest, 16)
    leaves = [sorted(zip(s.first[s.child < 0], s.last[s.child < 0], strict=True)) for s in (binary, shape)]
    assert leaves[0] == leaves[1]
