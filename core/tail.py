"""Re-ranking by label centroids (XReg-t): what rare labels gain from looking like their few training points."""

from __future__ import annotations

import numpy as np

from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s


def rerank(answers: Csr, points: Csr, tail: Csr, alpha: float) -> Csr:
    """score^α · max(0, cos(x, μ_l))^(1−α) for the labels that the trees returned; points are unit rows."""
    values = np.empty_like(answers.values)
    _tail_scores(*answers[:3], *points[:3], *tail[:3], np.zeros(points.n_cols, np.float32), alpha, values)
    return answers._replace(values=values)


@kernel()
def _tail_scores(
    indptr: Int64s,
    labels: Int32s,
    scores: Floats,
    point_ptr: Int64s,
    point_features: Int32s,
    point_values: Floats,
    tail_ptr: Int64s,
    tail_features: Int32s,
    tail_values: Floats,
    dense: Floats,
    alpha: float,
    out: Floats,
) -> None:
    for i in range(indptr.size - 1):
        for j in range(point_ptr[i], point_ptr[i + 1]):
            dense[point_features[j]] = point_values[j]
        for a in range(indptr[i], indptr[i + 1]):
            cosine = 0.0
            for j in range(tail_ptr[labels[a]], tail_ptr[labels[a] + 1]):
                cosine += np.float64(dense[tail_features[j]]) * tail_values[j]
            out[a] = np.float64(scores[a]) ** alpha * max(cosine, 0.0) ** (1.0 - alpha)
        for j in range(point_ptr[i], point_ptr[i + 1]):
            dense[point_features[j]] = 0.0
