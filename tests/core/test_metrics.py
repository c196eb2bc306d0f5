"""Every figure equals the plain reference; known inequalities hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse

from core.errors import DataError
from core.metrics import auprc, coverage, evaluate
from core.sparse import Csr, from_scipy, to_scipy
from tests import oracle
from tests.strategies import matrices


@settings(max_examples=40)
@given(truth=matrices(12, 15), scores=matrices(12, 15, 0.5))
def test_figures_equal_the_reference(truth: Csr, scores: Csr) -> None:
    y, s = to_scipy(truth).toarray().astype(float), to_scipy(scores).toarray().astype(float)
    if not y.any():
        return
    figures = evaluate(truth, scores, threshold=0.5)
    for k in (1, 3, 5):
        for name, value in oracle.metrics(y, s, k).items():
            assert figures[name] == pytest.approx(value, abs=1e-5), name
    assert figures["AUPRC"] == pytest.approx(oracle.auprc(y, s), abs=1e-6)
    assert figures["coverage"] == pytest.approx(100 * (s >= 0.5).any(axis=0).mean())


@given(truth=matrices(10, 15), scores=matrices(10, 15, 0.5))
def test_regret_is_bounded_by_twice_xmad_at_2k(truth: Csr, scores: Csr) -> None:
    figures = evaluate(truth, scores, threshold=0.5)
    assert figures["regret@5"] <= 2 * figures["XMAD@10"] + 1e-6


def test_perfect_scores_are_perfect() -> None:
    truth = from_scipy(sparse.csr_matrix(np.array([[0.9, 0.5, 0, 0.1], [0, 1.0, 0.2, 0]])))
    figures = evaluate(truth, truth, threshold=0.01)
    assert [figures[name] for name in ("WP@1", "nDCG@5", "Tau@5")] == [100.0, 100.0, 100.0]
    assert [figures[name] for name in ("XMAD@1", "XRMSE@5", "regret@3", "MAD")] == [0.0, 0.0, 0.0, 0.0]


def test_no_answers_give_zeros_not_errors() -> None:
    truth = from_scipy(sparse.csr_matrix(np.eye(3)))
    nothing = from_scipy(sparse.csr_matrix((3, 3)))
    figures = evaluate(truth, nothing, threshold=0.01)
    assert figures["WP@5"] == figures["AUPRC"] == figures["coverage"] == 0.0
    assert figures["XMAD@1"] == 1.0
    assert auprc(nothing, truth) == 0.0
    assert coverage(nothing, 0.0) == 0.0


def test_shapes_must_agree() -> None:
    with pytest.raises(DataError, match="the truth is 3 × 3, the scores are 2 × 3"):
        evaluate(from_scipy(sparse.csr_matrix((3, 3))), from_scipy(sparse.csr_matrix((2, 3))), 0.1)
