"""Pointwise answers from an opened model: sparse points in, the best labels of each out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from core.errors import DataError, UsageError
from core.jit import kernel
from core.kernels.beam import TREE_TOP, predict_rows
from core.model import Model, open_model
from core.sparse import Csr, Floats, Int32s, Int64s, transformed

MOST_LABELS = 10_000
_ROWS_PER_TASK = 256


class Engine:
    """Answers for points, from a model that is mapped and never changed."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    def open(cls, path: Path, verify: bool = True) -> Engine:
        return cls(open_model(path, verify))

    def predict(
        self, points: Csr, k: int = 10, beam: int | None = None, alpha: float | None = None, threads: int = 1
    ) -> Csr:
        """The k best labels of every point, scores in 0 … 1; times `scale` they are in the caller's units.

        beam: nodes kept per level; alpha: tail re-ranking, 1 is off. Both default to what the model was trained with.
        """
        recipe = self.model.manifest["params"]["recipe"]
        beam = recipe["beam"] if beam is None else beam
        alpha = self.model.manifest["params"]["alpha"] if alpha is None else alpha
        if not 1 <= k <= MOST_LABELS:
            raise UsageError(f"k must be between 1 and {MOST_LABELS}, got {k}")
        if beam < 1:
            raise UsageError(f"beam must be at least 1, got {beam}")
        beam = min(beam, len(self.model.ensemble.node_leaf))  # as wide as the whole ensemble is as wide as can be
        if not 0.0 <= alpha <= 1.0:
            raise UsageError(f"alpha must be between 0 and 1, got {alpha}")
        if alpha < 1.0 and self.model.tail is None:
            raise UsageError("this model was trained without --tail, so alpha must be 1")
        if points.n_cols != self.model.n_features:
            raise DataError(
                f"the points have {points.n_cols} features, the model was trained on {self.model.n_features}"
            )
        points = transformed(points, recipe["value_power"], self.model.feature_weight)
        # Re-ranking can lift a label from anywhere among those the trees returned.
        wide = k if alpha == 1.0 else MOST_LABELS
        answers = self._search(points, wide, beam, threads)
        if alpha < 1.0 and self.model.tail is not None:
            answers = _keep_best(_rerank(answers, points, self.model.tail, alpha), k)
        if self.model.calibration is not None:
            answers = answers._replace(values=self.model.calibration.apply(answers.values))
        return answers

    def _search(self, points: Csr, k: int, beam: int, threads: int) -> Csr:
        n, e = points.n_rows, self.model.ensemble
        k = min(k, TREE_TOP * e.n_trees, self.model.n_labels)
        labels, scores, counts = np.empty((n, k), np.int32), np.empty((n, k), np.float32), np.zeros(n, np.int64)

        def run(start: int) -> None:
            rows = slice(start, start + _ROWS_PER_TASK)
            indptr = points.indptr[start : start + _ROWS_PER_TASK + 1]
            out = labels[rows], scores[rows], counts[rows]
            predict_rows(
                e, self.model.scoring, beam, k, self.model.label_points, indptr, points.indices, points.values, *out
            )

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(0, n, _ROWS_PER_TASK)))
        return _rows(labels, scores, counts, self.model.n_labels)


def _rows(labels: Int32s, scores: Floats, counts: Int64s, n_labels: int) -> Csr:
    """The filled part of [rows, k] answers as CSR, label ids rising."""
    indptr = np.concatenate([[0], np.cumsum(counts)])
    filled = np.arange(labels.shape[1]) < counts[:, None]
    order = np.argsort(np.where(filled, labels, n_labels), axis=1, kind="stable")
    labels, scores = np.take_along_axis(labels, order, 1), np.take_along_axis(scores, order, 1)
    return Csr(indptr, labels[filled], scores[filled], n_labels)


def _rerank(answers: Csr, points: Csr, tail: Csr, alpha: float) -> Csr:
    """score^α · max(0, cos(x, μ_l))^(1−α) for the labels that the trees returned."""
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


def _keep_best(answers: Csr, k: int) -> Csr:
    """Each row's k best by score, ties by lower label id."""
    row = np.repeat(np.arange(answers.n_rows), np.diff(answers.indptr))
    order = np.lexsort((answers.indices, -answers.values, row))
    rank = np.arange(len(order)) - answers.indptr[row[order]]
    kept = np.sort(order[rank < k])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=answers.n_rows))])
    return Csr(indptr, answers.indices[kept], answers.values[kept], answers.n_cols)
