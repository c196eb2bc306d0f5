"""Points, targets and weights of a node equal the definition."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.sparse import Csr, to_scipy, transpose
from tests import oracle
from tests.strategies import matrices
from training.targets import Scratch, edge_mass, node_mass


@given(matrices(15, 12, 0.15), st.lists(st.integers(1, 11), min_size=1, max_size=3, unique=True), st.randoms())
def test_node_and_edge_mass_equal_the_definition(y: Csr, cuts: list[int], random: object) -> None:
    labels = np.random.default_rng(sum(cuts)).permutation(12).astype(np.int32)
    bounds = np.array([0, *sorted(cuts), 12], np.int64)
    groups = [labels[a:b].tolist() for a, b in itertools.pairwise(bounds)]
    dense = to_scipy(y).toarray().astype(float)
    scratch = Scratch(15)
    points, mass = node_mass(transpose(y), labels, scratch)
    expected_points, z, s = oracle.node_targets(dense, groups, root=False)
    assert points.tolist() == expected_points
    assert np.allclose(mass, s)
    edges = np.zeros((len(points), len(groups)), np.float32)
    edge_mass(transpose(y), labels, bounds, points, scratch, edges)
    assert np.allclose(edges / mass[:, None] if len(mass) else edges, z)
    assert not scratch.mass.any()
    assert (scratch.position == -1).all()


@given(matrices(15, 12, 0.15))
def test_points_that_miss_the_edges_have_target_0(y: Csr) -> None:
    everyone = np.arange(15)
    edges = np.zeros((15, 16), np.float32)  # wider than the edges, as the solver likes it
    edge_mass(transpose(y), np.arange(12, dtype=np.int32), np.arange(13), everyone, Scratch(15), edges)
    assert np.allclose(edges[:, :12], to_scipy(y).toarray())
    assert not edges[:, 12:].any()
