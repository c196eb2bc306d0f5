"""Made-up data look like the real thing, and the seed decides everything."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import UsageError
from training.synth import make_points, make_world


def test_the_seed_decides_everything() -> None:
    world = make_world(200, 300, seed=4)
    one, two, other = (make_points(world, 100, 12, seed=s).fingerprint() for s in (1, 1, 2))
    assert one == two != other


def test_words_are_zipfian_labels_follow_a_power_law_relevance_is_graded() -> None:
    data = make_points(make_world(2000, 3000, seed=0), 8000, 30, seed=0)
    words = np.sort(np.bincount(data.features.indices, minlength=3000))[::-1]
    assert words[:30].sum() > 10 * words[300:330].sum() * 0.5
    labels = np.sort(np.bincount(data.relevance.indices, minlength=2000))[::-1]
    assert labels[0] > 5 * np.median(labels) > 0
    assert 0 < data.relevance.values.min() < 0.2
    assert 0.9 < data.relevance.values.max() <= 1.0
    assert 1.5 < data.relevance.nnz / 8000 < 6


def test_a_million_labels_are_no_trouble() -> None:
    data = make_points(make_world(1_000_000, 100_000, seed=0), 1000, 8, seed=0)
    assert data.n_labels == 1_000_000
    assert data.relevance.indices.max() > 500_000


def test_impossible_worlds_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 label and 100 features"):
        make_world(0, 500, 0)
