"""Relevances as the model knows them: weighted, and scaled to 0 … 1.

    graded       y / the largest y of the training part
    binary       1 for every positive
    propensity   1/p_l for every positive, p_l from the training part; divided by the largest 1/p of all labels

The same weighting, with the *training* part's counts and scale, is applied to test data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.errors import UsageError
from core.sparse import Csr

_LARGEST_LOG = 80.0  # beyond it (B + 1)^A leaves the range of a 32-bit float


class Weighting(NamedTuple):
    """What turns a relevance of the caller's into one of the model's."""

    scale: float
    binary: bool
    label_weight: npt.NDArray[np.float64] | None  # 1/p of every label, with propensities

    def apply(self, relevance: Csr) -> Csr:
        if self.label_weight is not None:
            values = self.label_weight[relevance.indices] / self.scale
        elif self.binary:
            values = np.ones(relevance.nnz, np.float64)
        else:
            values = relevance.values.astype(np.float64) / self.scale
        # What is relevant stays so: a quotient too small for a 32-bit float becomes the smallest one.
        values = np.maximum(values, np.finfo(np.float32).tiny)
        return relevance._replace(values=values.astype(np.float32))


def inverse_propensities(
    label_points: npt.NDArray[np.int32], n_points: int, a: float, b: float
) -> npt.NDArray[np.float64]:
    """1/p_l = 1 + C·e^(−A·ln(N_l + B)), C = (ln N − 1)(B + 1)^A (Jain, Prabhu and Varma 2016)."""
    if not (math.isfinite(a) and a > 0 and math.isfinite(b) and b > 0 and a * math.log1p(b) < _LARGEST_LOG):
        raise UsageError(f"propensity must be two moderate numbers above 0, got {a},{b}")
    c = max(np.log(max(n_points, 1)) - 1.0, 0.0) * (b + 1.0) ** a
    return np.asarray(1.0 + c * np.exp(-a * np.log(label_points + b)))


def propensity_weighting(label_points: npt.NDArray[np.int32], n_points: int, a: float, b: float) -> Weighting:
    weight = inverse_propensities(label_points, n_points, a, b)
    return Weighting(float(weight.max()), False, weight)


def graded_weighting(relevance: Csr) -> Weighting:
    return Weighting(float(relevance.values.max()), False, None)


BINARY = Weighting(1.0, True, None)
