"""Click rates from counts: corrected for the position an ad was shown at, and shrunk where there is little to see.

    clicks of (query, ad) at position p ~ Poisson(rate(query, ad) · impressions · examination(p)),  examination(1) = 1
    rate ~ Gamma(a, b)    so that    E[rate | clicks] = (clicks + a) / (Σ impressions · examination + b)

Examination comes from pairs that were shown at several positions: whether they are good ads cancels out. Given a pair's
clicks, their spread over positions is multinomial with weights impressions · examination; its likelihood is concave in
the logarithms and is climbed by Newton's method, one pass over the buckets a step. a and b maximise the likelihood of
the training pairs' clicks (negative binomial).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from core.sparse import Int32s
from training.ingest.buckets import Rows
from training.ingest.events import Doubles

_SMOOTH = 1.0  # weight of (log e(p) − log e(p−1))² / 2: one click's worth of holding neighbours together
_PASSES, _TOLERANCE, _LONGEST_STEP = 50, 1e-7, 2.0
_STRONGEST = 1e4  # impressions that a prior may be worth: where all rates are equal, the likelihood asks for ∞
_BINS_PER_E = 1000  # exposures are gathered in bins of a thousandth


class Pairs(NamedTuple):
    """Rows of a bucket added up over positions, by (query, ad): `shown` is the plain number of impressions."""

    query: Int32s
    ad: Int32s
    shown: Doubles
    impressions: Doubles
    clicks: Doubles


def pairs_of(rows: Rows, examination: Doubles) -> Pairs:
    """A position's impressions count by its examination probability (position 0, an unknown one, fully)."""
    first = _first_of_pairs(rows)
    seen = rows.impressions * examination[rows.position]
    sums = [np.add.reduceat(v, first) if len(first) else np.zeros(0) for v in (rows.impressions, seen, rows.clicks)]
    return Pairs(rows.query[first], rows.ad[first], *sums)


def _first_of_pairs(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where pairs begin in rows that are sorted by (query, ad, position)."""
    new = np.ones(len(rows.query), bool)
    new[1:] = (rows.query[1:] != rows.query[:-1]) | (rows.ad[1:] != rows.ad[:-1])
    return np.flatnonzero(new)


def fit_examination(buckets: Callable[[], Iterable[Rows]], positions: int) -> Doubles:
    """Examination probabilities e[0 … positions+1] relative to position 1; e[0] = e[1] = 1, the last one is that of all
    positions beyond. A position that the log says little of leans on its neighbour."""
    n = positions + 1
    theta, smooth = np.zeros(n), _smoothness(n)
    for _ in range(_PASSES):
        gradient, curvature = -smooth @ theta, smooth.copy()
        for rows in buckets():
            slope, bend = _conditional(rows, np.concatenate([[1.0], np.exp(theta)]))
            gradient += slope
            curvature += bend
        step = np.zeros(n)
        step[1:] = np.linalg.solve(curvature[1:, 1:], gradient[1:])
        longest = float(np.abs(step).max(initial=0.0))
        theta += step * min(1.0, _LONGEST_STEP / longest) if longest else step
        if longest < _TOLERANCE:
            break
    return np.round(np.concatenate([[1.0], np.exp(theta)]), 6)


def _smoothness(n: int) -> Doubles:
    difference = np.diff(np.eye(n), axis=0)
    return _SMOOTH * difference.T @ difference


def _conditional(rows: Rows, examination: Doubles) -> tuple[Doubles, Doubles]:
    """Slope and negative curvature, in log examination (1 … n), of the likelihood of where pairs got their clicks."""
    n, first = len(examination) - 1, _first_of_pairs(rows)
    if not len(first):
        return np.zeros(n), np.zeros((n, n))
    lengths = np.diff(first, append=len(rows.query))
    clicks = np.add.reduceat(rows.clicks, first)
    telling = (lengths > 1) & (clicks > 0)  # one position, or no click, tells nothing
    pair = np.repeat(np.arange(telling.sum()), lengths[telling])
    kept = np.repeat(telling, lengths)
    at, got, clicks = rows.position[kept].astype(np.int64) - 1, rows.clicks[kept], clicks[telling]
    weight = rows.impressions[kept] * examination[at + 1]
    weight /= added_by(pair, weight, len(clicks))[pair]
    expected = clicks[pair] * weight
    slope = added_by(at, got - expected, n)
    root = sparse.csr_matrix((np.sqrt(clicks)[pair] * weight, (pair, at)), shape=(len(clicks), n))
    bend = np.diag(added_by(at, expected, n)) - (root.T @ root).toarray()
    return slope, bend


def added_by(index: npt.NDArray[np.integer[Any]], values: Doubles, n: int) -> Doubles:
    """Sums of the values by index 0 … n−1."""
    return np.bincount(index, values, n).astype(np.float64, copy=False)


class Prior(NamedTuple):
    """Gamma(a, b) of click rates: mean a / b, worth b impressions."""

    a: float
    b: float


class Exposure:
    """What the prior's likelihood needs of all pairs, in little room: how many have k clicks; and, by exposure in bins
    of a thousandth, how many pairs, impressions and clicks there are."""

    def __init__(self) -> None:
        self.clicks: dict[int, int] = {}
        self.bins: dict[int, Doubles] = {}

    def add(self, pairs: Pairs) -> None:
        seen = pairs.impressions > 0
        impressions, clicks = pairs.impressions[seen], pairs.clicks[seen]
        for k, n in zip(*np.unique(np.rint(clicks).astype(np.int64), return_counts=True), strict=True):
            self.clicks[int(k)] = self.clicks.get(int(k), 0) + int(n)
        bins, which = np.unique(np.rint(np.log(impressions) * _BINS_PER_E).astype(np.int64), return_inverse=True)
        sums = np.stack([np.bincount(which, w, len(bins)) for w in (np.ones(len(clicks)), impressions, clicks)], axis=1)
        for i, row in zip(bins.tolist(), sums, strict=True):
            self.bins[i] = self.bins[i] + row if i in self.bins else row


def fit_prior(exposure: Exposure) -> Prior | None:
    """The prior under which the pairs' clicks are likeliest, to six digits; None where there is no click.

    log L = Σ [lnΓ(a + k) − lnΓ(a)] + Σ [a ln b − (a + k) ln(b + e)]   over pairs with k clicks in e impressions
    """
    k, n_k = (np.array(x, float) for x in (list(exposure.clicks), list(exposure.clicks.values())))
    if not (k * n_k).sum() > 0:
        return None
    n, e, c = np.array([exposure.bins[i] for i in sorted(exposure.bins)]).T
    e_sum, e = e.sum(), e / n

    def loss(theta: Doubles) -> tuple[float, Doubles]:
        a, b = math.exp(theta[0] + theta[1]), math.exp(theta[1])  # log of the mean, log of the strength
        log_l = (n_k * (gammaln(a + k) - gammaln(a))).sum() + (n * a * math.log(b) - (n * a + c) * np.log(b + e)).sum()
        by_a = (n_k * (digamma(a + k) - digamma(a))).sum() + (n * (math.log(b) - np.log(b + e))).sum()
        by_b = (n * a / b - (n * a + c) / (b + e)).sum()
        return -log_l / n.sum(), -np.array([a * by_a, a * by_a + b * by_b]) / n.sum()

    mean = math.log(c.sum() / e_sum)
    bounds = [(mean - 5.0, mean + 5.0), (math.log(1e-2), math.log(_STRONGEST))]
    starts = [np.array([mean, math.log(b)]) for b in (1.0, 30.0, 1000.0)]
    found = [
        minimize(loss, s, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10})
        for s in starts
    ]
    u, v = min(found, key=lambda f: float(f.fun)).x
    return Prior(float(f"{math.exp(u + v):.6g}"), float(f"{math.exp(v):.6g}"))
