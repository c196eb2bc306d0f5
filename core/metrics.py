"""The figures of merit: ranking, regression, and both at once.

Truth y and scores ŷ are sparse rows over the same points and labels, both in 0 … 1 after scaling; ŷ is 0 where nothing
was returned. S(v, k) are the ids of the k largest entries of v, ties by lower id. Ranking figures are in percent.
docs/metrics.md has the formulas.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s

Doubles = npt.NDArray[np.float64]
CUTS = (1, 3, 5)
_SAME = 1e-6  # scores and relevances closer than this are ties for Tau
_DEEPEST = 10
_SUMS = ("gain", "ideal", "discounted", "ideal_discounted", "hits", "inversions", "absolute", "squared")


def evaluate(truth: Csr, scores: Csr, threshold: float) -> dict[str, float]:
    """All figures of one set of answers. `threshold` is the score from which an answer counts for coverage."""
    if (truth.n_rows, truth.n_cols) != (scores.n_rows, scores.n_cols):
        raise DataError(
            f"the truth is {truth.n_rows} × {truth.n_cols}, the scores are {scores.n_rows} × {scores.n_cols}"
        )
    n = max(truth.n_rows, 1)
    sums = np.zeros((len(_SUMS), _DEEPEST), np.float64)
    total = _sum_rows(*truth[:3], *scores[:3], sums)
    gain, ideal, discounted, ideal_discounted, hits, inversions, absolute, squared = sums
    figures: dict[str, float] = {}
    for k in CUTS:
        figures[f"WP@{k}"] = _percent(gain[k - 1], ideal[k - 1])
    for k in CUTS:
        figures[f"nDCG@{k}"] = _percent(discounted[k - 1], ideal_discounted[k - 1])
    for k in CUTS:
        figures[f"P@{k}"] = _percent(hits[k - 1], n * k)
    for k in CUTS:
        figures[f"Tau@{k}"] = 100.0 - _percent(inversions[k - 1], k * truth.nnz)
    for k in (*CUTS, 10):
        figures[f"XMAD@{k}"] = float(absolute[k - 1]) / n
    for k in CUTS:
        figures[f"XRMSE@{k}"] = float(squared[k - 1]) / n
    for k in CUTS:
        figures[f"regret@{k}"] = float(ideal[k - 1] - gain[k - 1]) / (n * k)
    figures["MAD"] = total / n
    figures["AUPRC"] = auprc(truth, scores)
    figures["coverage"] = coverage(scores, threshold)
    return figures


def _percent(part: float, whole: float) -> float:
    return 100.0 * float(part) / float(whole) if whole > 0 else 0.0


@kernel()
def _sum_rows(
    true_ptr: Int64s,
    true_ids: Int32s,
    true_values: Floats,
    ptr: Int64s,
    ids: Int32s,
    values: Floats,
    sums: Doubles,
) -> float:
    """Add every point's share to sums [_SUMS, k − 1] for all k; returns the sum of all absolute errors."""
    total = 0.0
    for i in range(ptr.size - 1):
        y_ids, y = true_ids[true_ptr[i] : true_ptr[i + 1]], true_values[true_ptr[i] : true_ptr[i + 1]]
        s_ids, s = ids[ptr[i] : ptr[i + 1]], values[ptr[i] : ptr[i + 1]]
        score_of_true, true_of_score, errors = _meet(y_ids, y, s_ids, s)
        answer = np.argsort(-s, kind="mergesort")
        _add_ranking(np.sort(y)[::-1], true_of_score[answer], sums)
        _add_inversions(y, score_of_true, true_of_score[answer], s[answer], sums[5])
        _add_errors(np.sort(errors)[::-1], sums[6], sums[7])
        total += errors.sum()
    return total


@kernel()
def _meet(y_ids: Int32s, y: Floats, s_ids: Int32s, s: Floats) -> tuple[Doubles, Doubles, Doubles]:
    """Both rows by id: the score of every true label, the truth of every answer, |ŷ − y| over their union."""
    score_of_true, true_of_score = np.zeros(y.size, np.float64), np.zeros(s.size, np.float64)
    errors = np.empty(y.size + s.size, np.float64)
    a, b, n = 0, 0, 0
    while a < y.size or b < s.size:
        if b == s.size or (a < y.size and y_ids[a] < s_ids[b]):
            errors[n] = y[a]
            a += 1
        elif a == y.size or s_ids[b] < y_ids[a]:
            errors[n] = s[b]
            b += 1
        else:
            score_of_true[a], true_of_score[b] = s[b], y[a]
            errors[n] = abs(np.float64(s[b]) - np.float64(y[a]))
            a += 1
            b += 1
        n += 1
    return score_of_true, true_of_score, errors[:n]


@kernel()
def _add_ranking(ideal: Floats, gains: Doubles, sums: Doubles) -> None:
    got, best, discounted, ideal_discounted, hits = 0.0, 0.0, 0.0, 0.0, 0
    for k in range(sums.shape[1]):
        discount = 1.0 / np.log2(k + 2.0)
        if k < gains.size:
            got += gains[k]
            discounted += gains[k] * discount
            hits += 1 if gains[k] > 0.0 else 0
        if k < ideal.size:
            best += ideal[k]
            ideal_discounted += ideal[k] * discount
        sums[0, k] += got
        sums[1, k] += best
        sums[2, k] += discounted
        sums[3, k] += ideal_discounted
        sums[4, k] += hits


@kernel()
def _add_inversions(y: Floats, score_of_true: Doubles, gains: Doubles, scores: Floats, sums: Doubles) -> None:
    """Pairs (answer among the first k, true label) that the scores put the wrong way round."""
    inversions = 0
    for k in range(sums.size):
        if k < gains.size:
            for t in range(y.size):
                if gains[k] < y[t] - _SAME and scores[k] > score_of_true[t] + _SAME:
                    inversions += 1
        sums[k] += inversions


@kernel()
def _add_errors(errors: Doubles, absolute: Doubles, squared: Doubles) -> None:
    linear, square = 0.0, 0.0
    for k in range(absolute.size):
        if k < errors.size:
            linear += errors[k]
            square += errors[k] * errors[k]
        absolute[k] += linear / (k + 1)
        squared[k] += np.sqrt(square / (k + 1))


def auprc(truth: Csr, scores: Csr) -> float:
    """Area under precision (mean relevance of the pairs kept) over recall (share of the relevant pairs kept), one
    threshold for all points; pairs of equal score enter together."""
    if not scores.nnz or not truth.nnz:
        return 0.0
    relevance = relevance_of(truth, scores)
    order = np.argsort(-scores.values, kind="stable")
    falling = scores.values[order]
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
    precision = np.cumsum(relevance[order])[last] / (last + 1)
    recall = np.cumsum(relevance[order] > 0)[last] / truth.nnz
    return float(np.sum(precision * np.diff(recall, prepend=0.0)))


def relevance_of(truth: Csr, scores: Csr) -> Doubles:
    """The truth of every returned pair."""
    if not truth.nnz:
        return np.zeros(scores.nnz, np.float64)
    row = np.repeat(np.arange(truth.n_rows, dtype=np.int64), np.diff(truth.indptr))
    known = row * truth.n_cols + truth.indices
    row = np.repeat(np.arange(scores.n_rows, dtype=np.int64), np.diff(scores.indptr))
    asked = row * scores.n_cols + scores.indices
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[at] == asked, truth.values[at], 0.0)


def coverage(scores: Csr, threshold: float) -> float:
    """Share of the labels that appear in at least one answer with at least this score, in percent."""
    shown = np.unique(scores.indices[scores.values >= threshold])
    return _percent(len(shown), scores.n_cols)
