"""CSR rows as plain arrays: check, transpose, cut, normalise.

One NamedTuple travels everywhere (files, Numba, tests); scipy is used at the borders only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from core.jit import kernel

Int = int | np.integer[Any]
Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class Csr(NamedTuple):
    """Rows of (index, value) pairs: row i is indices[indptr[i]:indptr[i+1]], ascending and distinct."""

    indptr: Int64s
    indices: Int32s
    values: Floats
    n_cols: int

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.indices)


def from_scipy(matrix: sparse.csr_matrix | sparse.csr_array) -> Csr:
    """Rows sorted, duplicates summed."""
    matrix = sparse.csr_matrix(matrix)
    matrix.sum_duplicates()
    return Csr(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float32),
        matrix.shape[1],
    )


def to_scipy(rows: Csr) -> sparse.csr_matrix:
    return sparse.csr_matrix((rows.values, rows.indices, rows.indptr), shape=(rows.n_rows, rows.n_cols))


def transpose(rows: Csr) -> Csr:
    """Columns become rows; inside a row the indices ascend."""
    indptr = np.zeros(rows.n_cols + 1, np.int64)
    indices = np.empty(rows.nnz, np.int32)
    values = np.empty(rows.nnz, np.float32)
    _transpose(rows.indptr, rows.indices, rows.values, indptr, indices, values)
    return Csr(indptr, indices, values, rows.n_rows)


@kernel()
def _transpose(
    indptr: Int64s, indices: Int32s, values: Floats, out_indptr: Int64s, out_indices: Int32s, out_values: Floats
) -> None:
    n_cols = out_indptr.size - 1
    for j in range(indices.size):
        out_indptr[indices[j] + 1] += 1
    for c in range(n_cols):
        out_indptr[c + 1] += out_indptr[c]
    cursor = out_indptr[:n_cols].copy()
    for i in range(indptr.size - 1):
        for j in range(indptr[i], indptr[i + 1]):
            at = cursor[indices[j]]
            out_indices[at] = i
            out_values[at] = values[j]
            cursor[indices[j]] = at + 1


def take_rows(rows: Csr, chosen: Int64s | Int32s) -> Csr:
    """The chosen rows, in the order given."""
    indptr = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(rows.indptr[1:][chosen] - rows.indptr[:-1][chosen], out=indptr[1:])
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    _take_rows(*rows[:3], chosen, indptr, indices, values)
    return Csr(indptr, indices, values, rows.n_cols)


@kernel()
def _take_rows(
    indptr: Int64s,
    indices: Int32s,
    values: Floats,
    chosen: Int64s | Int32s,
    out_indptr: Int64s,
    out_indices: Int32s,
    out_values: Floats,
) -> None:
    for k in range(chosen.size):
        start, stop, at = indptr[chosen[k]], indptr[chosen[k] + 1], out_indptr[k]
        for j in range(stop - start):
            out_indices[at + j] = indices[start + j]
            out_values[at + j] = values[start + j]


def column_counts(rows: Csr) -> Int64s:
    """Entries of every column; unlike numpy's own count, without a 64-bit copy of all indices."""
    counts = np.zeros(rows.n_cols, np.int64)
    _count(rows.indices, counts)
    return counts


@kernel()
def _count(indices: Int32s, counts: Int64s) -> None:
    for index in indices:
        counts[index] += 1


def best_of_rows(rows: Csr, worth: Floats, k: int) -> Int64s:
    """Where the k entries of each row lie that are worth most, ascending; ties by lower index, negative ones never."""
    row = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
    order = np.lexsort((rows.indices, -worth, row))
    rank = np.arange(len(order)) - rows.indptr[row[order]]
    return np.sort(order[(rank < k) & (worth[order] >= 0)])


def take_entries(rows: Csr, kept: Int64s) -> Csr:
    """The entries at these places, ascending; the others are left out."""
    indptr = np.searchsorted(kept, rows.indptr)
    return Csr(indptr, rows.indices[kept], rows.values[kept], rows.n_cols)


@kernel()
def unit_rows(indptr: Int64s, values: Floats) -> None:
    """Divide each row by its Euclidean norm, in place; a zero row stays zero."""
    for i in range(indptr.size - 1):
        total = 0.0
        for j in range(indptr[i], indptr[i + 1]):
            total += np.float64(values[j]) * np.float64(values[j])
        if total > 0.0:
            scale = 1.0 / np.sqrt(total)
            for j in range(indptr[i], indptr[i + 1]):
                values[j] = values[j] * scale


def transformed(points: Csr, value_power: float, feature_weight: Floats) -> Csr:
    """Points as the regressors know them: x^value_power · weight of the feature, then unit rows."""
    values = np.copy(points.values) if value_power == 1.0 else points.values ** np.float32(value_power)
    _weigh(points.indices, values, feature_weight)
    unit_rows(points.indptr, values)
    return points._replace(values=values)


@kernel()
def _weigh(indices: Int32s, values: Floats, weight: Floats) -> None:
    """Multiply each value by its column's weight, in place."""
    for j in range(indices.size):
        values[j] *= weight[indices[j]]
