"""The loops written as vectors, against the plain loops they stand for."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jit import kernel
from core.kernels.vectors import LANES, add_rows_of_one_vector, add_vectors, bound_of_largest
from core.trie import VECTOR


@kernel()
def _rows(entry: Any, starts: Any, stops: Any, xs: Any, first: int, last: int, value: Any, at: int) -> None:
    add_rows_of_one_vector(entry, starts, stops, xs, first, last, value, at)  # type: ignore[call-arg]  # one is Numba's


@kernel()
def _vectors(vectors: Any, rows: Any, xs: Any, n: int, value: Any) -> None:
    add_vectors(vectors, rows, xs, n, value)  # type: ignore[call-arg]


@kernel()
def _bound(scores: Any, n: int, most: int) -> Any:
    return bound_of_largest(scores, n, most)  # type: ignore[call-arg]


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_all_kinds_are_added_up(seed: int) -> None:
    """Dense rows, rows of one entry and empty ones, in any order, the last of them at the end of the array."""
    rng = np.random.default_rng(seed)
    lengths = np.append(rng.choice([0, 1, VECTOR // 2], 12), [VECTOR // 2, 1, 0][seed % 3])
    lengths[0] = VECTOR // 2
    stops = np.array(list(accumulate(lengths)))
    starts, xs = stops - lengths, rng.random(len(lengths), np.float32)
    entry, expected = np.zeros(stops[-1], np.uint16), np.zeros(VECTOR)
    for start, stop, x in zip(starts[2:], stops[2:], xs[2:], strict=True):
        weights = rng.integers(-127, 128, VECTOR).astype(np.int8)
        if stop - start == 1:
            edge = rng.integers(VECTOR)
            entry[start] = edge << 8 | int(weights[edge]) & 255
            weights[np.arange(VECTOR) != edge] = 0
        elif stop > start:
            entry[start:stop] = weights.view(np.uint16)
        expected += x * weights * (stop > start)
    value = np.full(VECTOR + 5, np.float32(7.0))
    _rows(entry, starts, stops, xs, 2, len(starts), value, 3)
    np.testing.assert_allclose(value[3 : 3 + VECTOR], expected, rtol=1e-5, atol=1e-4)
    assert (value[[0, 1, 2, -2, -1]] == 7.0).all()


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_vectors_are_added_up_in_order(n: int) -> None:
    rng = np.random.default_rng(n)
    vectors = rng.integers(-127, 128, (9, VECTOR)).astype(np.int8)
    rows, xs = rng.integers(1, 10, n).astype(np.uint32), rng.random(n, np.float32)
    value, expected = np.ones(VECTOR, np.float32), np.zeros(VECTOR, np.float32)
    for row, x in zip(rows, xs, strict=True):
        expected += x * vectors[row - 1].astype(np.float32)
    _vectors(vectors.ravel(), rows, xs, n, value)
    np.testing.assert_array_equal(value, expected)


@given(st.lists(st.floats(0.0, 1.0, width=32), min_size=1, max_size=200), st.integers(1, LANES))
def test_enough_scores_reach_the_bound(scores: list[float], most: int) -> None:
    """As many as asked for, where there are as many; the bound is the most-th largest maximum of 32 parts."""
    padded = np.zeros(-(-len(scores) // LANES) * LANES, np.float32)
    padded[: len(scores)] = scores
    bound = _bound(padded, len(scores), most)
    assert bound == np.sort(padded.reshape(-1, LANES).max(axis=0))[-most]
    assert (padded >= bound).sum() >= most
