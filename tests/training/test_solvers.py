"""Batched dual coordinate descent reaches the minimum that L-BFGS finds on the same objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse
from scipy.optimize import fmin_l_bfgs_b

from core.sparse import Csr, from_scipy, to_scipy, transformed
from tests import oracle
from training.nodes import Problem, fit_node, gather
from training.params import PAPER, ROUTED, Regression
from training.pruning import Block, clip_thresholds, drop, energy_thresholds
from training.solvers import LOGISTIC, RIDGE, descend

Floats = npt.NDArray[np.float32]
N_FEATURES = 300  # more than points, as in text: where the dual method is at home
LOSS = {"logistic": LOGISTIC, "ridge": RIDGE}


def problem(width: int, cost: float, seed: int = 0) -> tuple[Csr, Floats, Floats]:
    random = np.random.default_rng(seed)
    x: Any = sparse.random(120, N_FEATURES, 0.04, "csr", random_state=random, data_rvs=random.random)
    z = random.random((120, width)) * (random.random((120, width)) < 0.3)
    c = cost * (0.1 + random.random(120))
    return (
        transformed(from_scipy(sparse.csr_matrix(x)), 1.0, np.ones(N_FEATURES, np.float32)),
        z.astype(np.float32),
        c.astype(np.float32),
    )


def solve(loss: str, x: Csr, z: Floats, c: Floats, passes: int) -> tuple[Floats, Floats]:
    weights = np.zeros((x.n_cols + 1, z.shape[1]), np.float32)
    duals = z.copy() if loss == "logistic" else np.zeros_like(z)
    descend(x.indptr, x.indices, x.values, c, z, LOSS[loss], passes, False, 7, weights, duals)
    return weights, duals


def minimum(loss: str, x: oracle.Dense, z: oracle.Dense, c: oracle.Dense) -> float:
    """The least value of the objective, by scipy's L-BFGS."""

    def value_and_slope(w: oracle.Dense) -> tuple[float, oracle.Dense]:
        return oracle.objective(loss, x, z, c, w), oracle.gradient(loss, x, z, c, w)

    _, value, _ = fmin_l_bfgs_b(value_and_slope, np.zeros(x.shape[1]), factr=10, pgtol=1e-9, maxiter=5000)
    return float(value)


@pytest.mark.parametrize("loss", LOSS)
@pytest.mark.parametrize("width", [1, 2, 3, 17, 64])
@pytest.mark.parametrize("cost", [0.1, 10.0, 1000.0])
def test_reaches_the_minimum_of_l_bfgs(loss: str, width: int, cost: float) -> None:
    x, z, c = problem(width, cost)
    weights, _ = solve(loss, x, z, c, passes=400)
    dense = np.hstack([to_scipy(x).toarray(), np.ones((120, 1))]).astype(float)
    for e in {0, width - 1}:
        args = (loss, dense, z[:, e].astype(float), c.astype(float))
        best = minimum(*args)
        ours = oracle.objective(*args, weights[:, e].astype(float))
        assert ours == pytest.approx(best, rel=2e-4)
        assert ours <= oracle.objective(*args, np.zeros(N_FEATURES + 1))


@pytest.mark.parametrize("loss", LOSS)
def test_a_few_passes_come_close(loss: str) -> None:
    x, z, c = problem(16, 10.0)
    dense = np.hstack([to_scipy(x).toarray(), np.ones((120, 1))]).astype(float)

    def total(weights: Floats) -> float:
        z_, c_, w = z.astype(float), c.astype(float), weights.astype(float)
        return float(sum(oracle.objective(loss, dense, z_[:, e], c_, w[:, e]) for e in range(16)))

    few, many = total(solve(loss, x, z, c, 8)[0]), total(solve(loss, x, z, c, 500)[0])
    assert few < many * 1.05


def test_hard_targets_and_huge_costs_stay_finite() -> None:
    """Where c·q is large an unclamped Newton step oscillates; targets 0 and 1 have no finite logit."""
    x, z, c = problem(8, 1e6)
    weights, duals = solve("logistic", x, (z > 0).astype(np.float32), c, 30)
    assert np.isfinite(weights).all()
    assert ((duals >= 0) & (duals <= 1)).all()


@pytest.mark.parametrize("loss", LOSS)
def test_refit_minimises_over_the_surviving_weights(loss: str) -> None:
    x, z, c = problem(5, 10.0)
    weights, duals = solve(loss, x, z, c, 50)
    thresholds = np.empty(5, np.float32)
    energy_thresholds(weights, 0.2, thresholds)
    drop(weights, thresholds)
    alive = weights[:-1] != 0
    assert 0 < alive.sum() < alive.size
    descend(x.indptr, x.indices, x.values, c, z, LOSS[loss], 400, True, 9, weights, duals)
    assert ((weights[:-1] != 0) <= alive).all()
    dense = np.hstack([to_scipy(x).toarray(), np.ones((120, 1))]).astype(float)
    for e in range(5):
        free = np.append(alive[:, e], True)
        slope = oracle.gradient(loss, dense, z[:, e].astype(float), c.astype(float), weights[:, e].astype(float))
        assert np.abs(slope[free]).max() < 2e-3 * max(1.0, float(c.max()))


def test_clip_drops_relative_to_the_largest_weight_bias_included() -> None:
    weights = np.array([[0.5, 0.01], [0.049, 1.0], [1.0, -0.06]], np.float32)  # the last row is the bias
    thresholds = np.empty(2, np.float32)
    clip_thresholds(weights, 0.05, thresholds)
    drop(weights, thresholds)
    assert weights[:2].tolist() == [[0.5, 0.0], [0.0, 1.0]]
    assert weights[2].tolist() == [1.0, pytest.approx(-0.06)]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.15, 0.5])
def test_energy_drops_at_most_its_share_and_nearly_that(share: float) -> None:
    weights = np.random.default_rng(0).laplace(size=(4001, 7)).astype(np.float32)
    before = (weights[:-1].astype(float) ** 2).sum(axis=0)
    thresholds = np.empty(7, np.float32)
    energy_thresholds(weights, share, thresholds)
    drop(weights, thresholds)
    kept = (weights[:-1].astype(float) ** 2).sum(axis=0)
    lost = 1 - kept / before
    assert (lost <= share + 1e-9).all()
    assert (lost >= share * 0.8).all()


def dense_block(block: Block, n_features: int) -> npt.NDArray[np.float64]:
    out = np.zeros((n_features, len(block.biases)))
    rows = np.repeat(block.features, np.diff(block.row_ptr))
    out[rows, block.edges] = block.weights * block.steps[block.edges].astype(float)
    return out


@pytest.mark.parametrize("recipe", [PAPER, ROUTED])
@pytest.mark.parametrize("width", [2, 70, 130])
def test_a_packed_node_is_its_weights_to_half_a_step(recipe: object, width: int) -> None:
    x, z, c = problem(width, 2.0)
    points = np.arange(0, 120, 2)

    def targets(first: int, last: int, out: Floats) -> None:
        out[:, : last - first] = z[points, first:last]

    block = fit_node(
        x,
        points,
        Problem(width, targets),
        c[points],
        Regression("ridge", 2.0, 200),
        ROUTED_UNPRUNED,
        seed=3,
    )
    assert (np.diff(block.features) > 0).all()
    got = dense_block(block, N_FEATURES)
    dense = np.hstack([to_scipy(x).toarray()[points], np.ones((60, 1))]).astype(float)
    h = dense.T * c[points].astype(float)
    exact = np.linalg.solve(h @ dense + np.eye(N_FEATURES + 1), h @ z[points])
    assert np.abs(got - exact[:-1]).max() <= block.steps.max() * 0.5 + 2e-3
    assert np.allclose(block.biases, exact[-1], atol=2e-3)


ROUTED_UNPRUNED = ROUTED.__class__(**{**{f: getattr(ROUTED, f) for f in ROUTED.__slots__}, "amount": 0.0})


def test_gather_renumbers_features() -> None:
    x, _, _ = problem(1, 1.0)
    points = np.array([5, 3, 77])
    local, kept = gather(x, points)
    assert (np.diff(kept) > 0).all()
    rebuilt = np.zeros((3, N_FEATURES))
    rebuilt[:, kept] = to_scipy(local).toarray()
    assert np.array_equal(rebuilt, to_scipy(x).toarray()[points])
