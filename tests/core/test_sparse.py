"""CSR helpers equal scipy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from core.sparse import Csr, take_rows, to_scipy, transformed, transpose
from tests.strategies import matrices


@given(matrices(7, 9))
def test_transpose_equals_scipy(rows: Csr) -> None:
    turned = transpose(rows)
    assert np.array_equal(to_scipy(turned).toarray(), to_scipy(rows).toarray().T)
    assert all((np.diff(turned.indices[a:b]) > 0).all() for a, b in zip(turned.indptr, turned.indptr[1:], strict=False))


@given(matrices(7, 9), st.lists(st.integers(0, 6), max_size=9))
def test_take_rows_equals_indexing(rows: Csr, chosen: list[int]) -> None:
    ids = np.array(chosen, np.int64)
    assert np.array_equal(to_scipy(take_rows(rows, ids)).toarray(), to_scipy(rows).toarray()[ids])


@given(matrices(7, 9), st.sampled_from([1.0, 0.5, 0.6]))
def test_transformed_rows_are_unit_vectors_of_powers(rows: Csr, power: float) -> None:
    weight = np.linspace(0.5, 2, 9).astype(np.float32)
    dense = to_scipy(rows).toarray().astype(float) ** power * weight
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    expected = np.divide(dense, norms, out=np.zeros_like(dense), where=norms > 0)
    assert np.allclose(to_scipy(transformed(rows, power, weight)).toarray(), expected, atol=1e-6)


def test_a_zero_row_stays_zero() -> None:
    rows = Csr(np.array([0, 0, 1]), np.array([1], np.int32), np.array([2.0], np.float32), 2)
    unit = transformed(rows, 1.0, np.ones(2, np.float32))
    assert np.array_equal(to_scipy(unit).toarray(), sparse.csr_matrix([[0, 0], [0, 1]]).toarray())
