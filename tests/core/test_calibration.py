"""The map rises, is right on average, and keeps rankings."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.calibration import fit_isotonic


@given(st.integers(0, 1000), st.integers(60, 3000))
def test_the_map_rises_strictly(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.random(n).astype(np.float32)
    fitted = fit_isotonic(scores, random.random(n) * scores)
    assert (np.diff(fitted.scores) > 0).all()
    assert (np.diff(fitted.relevances) > 0).all()
    grid = np.linspace(0, 1.2, 400, dtype=np.float32)
    assert (np.diff(fitted.apply(grid)) > 0).all()


@given(st.integers(0, 1000), st.integers(1, 600), st.integers(1, 5))
def test_the_map_rises_strictly_where_many_scores_are_the_same(seed: int, n: int, distinct: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.choice(random.random(distinct), n).astype(np.float32)
    fitted = fit_isotonic(scores, (random.random(n) < 0.3).astype(float), random.random(n) + 0.1)
    assert (np.diff(fitted.scores, prepend=0) > 0).all()
    assert (np.diff(fitted.relevances, prepend=0) > 0).all()


def test_it_recovers_a_known_distortion() -> None:
    random = np.random.default_rng(0)
    truth = random.random(200_000) ** 3
    scores = np.sqrt(truth).astype(np.float32)
    clicks = (random.random(200_000) < truth).astype(float)
    fitted = fit_isotonic(scores, clicks)
    assert np.abs(fitted.apply(scores) - truth).mean() < 0.01
