"""A monotone map from score to relevance, fitted on points that training did not see.

Isotonic regression on runs of neighbouring scores; each level of it becomes one knot at its mean score, and scores
between knots are interpolated, so the map rises strictly and never changes a ranking.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

Doubles = npt.NDArray[np.float64]
BEYOND = 1e-3  # slope above the last knot: rankings stay
_FIRST_RUN, _GROWTH = 50, 1.2  # pairs in the run of the highest scores; each run below is longer


class Calibration(NamedTuple):
    """Knots of the map: both arrays rise."""

    scores: npt.NDArray[np.float32]
    relevances: npt.NDArray[np.float32]

    def apply(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Interpolated; below the first knot the line to (0, 0), above the last its value and a trace of the score."""
        x, y = np.append(0.0, self.scores), np.append(0.0, self.relevances)
        beyond = np.maximum(scores - x[-1], 0.0) * BEYOND
        return np.asarray(np.interp(scores, x, y) + beyond, np.float32)


def fit_isotonic(
    scores: npt.NDArray[np.float32], relevances: Doubles, weights: npt.NDArray[Any] | None = None
) -> Calibration:
    """The map that is nearest to the relevances in (weighted) squares, over runs of scores."""
    order = np.argsort(scores, kind="stable")[::-1]
    weight = np.ones(len(order)) if weights is None else weights[order].astype(np.float64)
    falling = scores[order]
    edges = [0]
    length = float(_FIRST_RUN)
    while edges[-1] < len(order):  # equal scores stay in one run
        last = falling[min(edges[-1] + int(length), len(order)) - 1]
        edges.append(int(np.searchsorted(-falling, -last, side="right")))
        length *= _GROWTH
    starts = np.array(edges[:-1], np.int64)
    total = np.add.reduceat(weight, starts)[::-1]  # from the lowest scores up, as isotonic regression wants them
    mean_score = np.add.reduceat(scores[order] * weight, starts)[::-1] / total
    mean_relevance = np.add.reduceat(relevances[order] * weight, starts)[::-1] / total
    levels = isotonic_regression(mean_relevance, weights=total)
    blocks = levels.blocks[:-1]
    knot = np.add.reduceat(mean_score * total, blocks) / np.add.reduceat(total, blocks)
    value = levels.x[blocks]
    x, y = knot.astype(np.float32), value.astype(np.float32)
    rises = (np.diff(x, prepend=np.float32(0)) > 0) & (np.diff(y, prepend=np.float32(0)) > 0)  # two doubles, one float
    return Calibration(x[rises], y[rises])
