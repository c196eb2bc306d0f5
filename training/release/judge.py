"""How good are the answers of a release on the held-out part of a click log, and by which rule should they be merged?

The held-out queries are cut in two by a hash of their text: the rule (core/merge.py) is chosen on one half, the figures
come from the other. A probability is judged where held-out data can judge it: on answered pairs that were shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from xxhash import xxh3_64_intdigest

from core.calibration import Calibration, fit_isotonic
from core.merge import Map, Merger, MergeRule
from core.metrics import evaluate, relevance_of
from core.served import Served
from core.sparse import Csr, Int64s, best_of_rows, from_scipy, take_entries, take_rows, to_scipy
from training.clicks import Clicks, Pairs

Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
WEIGHTS = (0.5, 0.25, 0.75, 0.0, 1.0)  # of those that are about as good, the first
CUTS = (1, 3, 5, 10)
K = 10  # ads per query that are judged
THRESHOLD = 0.01
_BINS = 10
_AS_GOOD = 0.5  # points of WP@5 that are noise
_LEAST_SHOWN = 200  # pairs that a map is fitted on at the least


class Bin(NamedTuple):
    """Pairs with about the same predicted probability: means, weighted by impressions."""

    predicted: float
    observed: float
    weight: float


class Task(NamedTuple):
    """Held-out queries and what happened to them, ads in the numbers of the data set."""

    queries: list[str]
    ids: Int64s
    truth: Csr
    shown: Csr  # impressions
    clicked: Csr  # clicks, the same entries as `shown`


class Answers(NamedTuple):
    """What the sources say about the queries of a task: rows over the ads of the data set."""

    model: Csr
    table: Csr


def held_out(clicks: Clicks, whole: bool = False) -> tuple[Task, Task]:
    """The queries of the held-out part, or of the whole log where nothing was trained on it, in two halves: (to choose
    the rule on, to judge on)."""
    pairs = _together(clicks.train, clicks.test) if whole else clicks.test
    ids = np.unique(pairs.query).astype(np.int64)
    half = np.array([xxh3_64_intdigest(clicks.queries[i].encode()) & 1 for i in ids], bool)
    return task(clicks, pairs, ids[~half]), task(clicks, pairs, ids[half])


def _together(train: Pairs, test: Pairs) -> Pairs:
    """Both parts of a log: impressions and clicks added up, relevances averaged by impressions."""
    query, ad, shown, clicked, relevance = (np.concatenate(columns) for columns in zip(train, test, strict=True))
    order = np.lexsort((ad, query))
    first = np.append(True, (np.diff(query[order]) != 0) | (np.diff(ad[order]) != 0))[: len(order)]
    at = np.flatnonzero(first)
    sums = [np.add.reduceat(x[order], at) if len(at) else x for x in (shown, clicked, relevance * shown)]
    mean = np.asarray(sums[2] / sums[0], np.float32)
    return Pairs(query[order][at], ad[order][at], sums[0], sums[1], mean)


def task(clicks: Clicks, pairs: Pairs, ids: Int64s) -> Task:
    n_queries, n_ads = len(clicks.queries), clicks.ads.num_rows
    indptr = np.searchsorted(pairs.query, np.arange(n_queries + 1)).astype(np.int64)

    def rows(values: npt.NDArray[np.float32]) -> Csr:
        return take_rows(Csr(indptr, pairs.ad, values, n_ads), ids)

    truth = rows(pairs.relevance)
    truth = take_entries(truth, np.flatnonzero(truth.values > 0))
    return Task([clicks.queries[i] for i in ids], ids, truth, rows(pairs.impressions), rows(pairs.clicks))


def ask(served: Served, clicks: Clicks, queries: Sequence[str], threads: int) -> Answers:
    """Answers of a release, of these data or of others: ads that the data do not know are left out."""
    place = {ad: number for number, ad in enumerate(clicks.ads["ad_id"].to_pylist())}
    number = np.array([place.get(ad, -1) for ad in served.catalogue.ids.all()], np.int32)
    return Answers(*(_renumbered(rows, number, clicks.ads.num_rows) for rows in served.rows(queries, K, threads)))


def _renumbered(rows: Csr, number: npt.NDArray[np.int32], n_ads: int) -> Csr:
    kept = take_entries(rows, np.flatnonzero(number[rows.indices] >= 0))
    row, ads = np.repeat(np.arange(kept.n_rows), np.diff(kept.indptr)), number[kept.indices]
    order = np.lexsort((ads, row))
    return Csr(kept.indptr, ads[order], kept.values[order], n_ads)


def merged(answers: Answers, rule: MergeRule, k: int = K) -> Csr:
    return Merger(rule).merge_rows(*answers, k)


def choose_rule(answers: Answers, asked: Task) -> MergeRule:
    """A weight with maps, where they bring probabilities nearer to what was seen and cost no ranking, else without.

    Maps are judged on queries that they were not fitted on: each of two folds by the maps of the other.
    """
    best = {}
    for mapped in (True, False):
        tried = {}
        for weight in WEIGHTS:
            rows = _crossed(answers, asked, weight, mapped)
            error = calibration_error(reliability(rows, asked, K))
            tried[weight] = evaluate(asked.truth, rows, THRESHOLD)["WP@5"], error
        top = max(merit for merit, _ in tried.values())
        weight = next(weight for weight in WEIGHTS if tried[weight][0] >= top - _AS_GOOD)
        best[mapped] = weight, *tried[weight]
    (weight, merit, error), (plain_weight, plain_merit, plain_error) = best[True], best[False]
    helps = error < plain_error and merit >= plain_merit - _AS_GOOD
    everybody = np.ones(len(asked.queries), bool)
    return _fitted(answers, asked, weight if helps else plain_weight, everybody, helps)


def _crossed(answers: Answers, asked: Task, weight: float, mapped: bool) -> Csr:
    """Every query's answer by maps that were fitted without it."""
    fold = np.arange(len(asked.queries)) % 2 == 0
    rows = [merged(answers, _fitted(answers, asked, weight, ~part, mapped)) for part in (fold, ~fold)]
    first, second = (sparse.diags(part.astype(np.float32)) for part in (fold, ~fold))
    return from_scipy((first @ to_scipy(rows[0]) + second @ to_scipy(rows[1])).tocsr())


def _row_of(rows: Csr) -> Int64s:
    return np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))


def _fitted(answers: Answers, asked: Task, weight: float, chosen: Bools, mapped: bool) -> MergeRule:
    """A rule of this weight, with maps that are fitted on the chosen queries: first those of the sources, then, on what
    they give together, those of queries in the table and of others."""
    maps: dict[Map, Calibration] = {}
    if mapped:
        _fit_map(maps, "model", answers.model, asked, chosen)
        _fit_map(maps, "table", answers.table, asked, chosen)
        rows = merged(answers, MergeRule(weight, maps), k=answers.model.n_cols)
        tabled = np.diff(answers.table.indptr) > 0
        last = dict(maps)
        _fit_map(last, "tabled", rows, asked, chosen & tabled)
        _fit_map(last, "other", rows, asked, chosen & ~tabled)
        maps = last
    return MergeRule(weight, maps)


def _fit_map(maps: dict[Map, Calibration], name: Map, rows: Csr, asked: Task, chosen: Bools) -> None:
    """Add the map from these scores to click rates, where enough pairs of the chosen queries were shown."""
    shown, rate = _seen(rows, asked)
    at = np.flatnonzero((shown > 0) & chosen[_row_of(rows)])
    if len(at) >= _LEAST_SHOWN:
        fitted = fit_isotonic(rows.values[at], rate[at], shown[at])
        if len(fitted.scores):
            maps[name] = fitted


def _seen(rows: Csr, asked: Task) -> tuple[Doubles, Doubles]:
    """Impressions and click rate of every answered pair; 0 impressions where it was not shown."""
    shown, clicked = relevance_of(asked.shown, rows), relevance_of(asked.clicked, rows)
    return shown, np.divide(clicked, shown, out=np.zeros_like(clicked), where=shown > 0)


def reliability(scores: Csr, asked: Task, k: int) -> list[Bin]:
    """The k best answers that were shown, in bins of about equal impressions by falling probability."""
    top = take_entries(scores, best_of_rows(scores, scores.values, k))
    shown, rate = _seen(top, asked)
    order = np.argsort(-top.values, kind="stable")
    order = order[shown[order] > 0]
    weight = shown[order]
    if not len(order):
        return []
    number = np.minimum((np.cumsum(weight) - weight / 2) / weight.sum() * _BINS, _BINS - 1).astype(np.int64)
    total = np.bincount(number, weight)
    predicted, observed = (np.bincount(number, weight * x[order]) for x in (top.values, rate))
    return [
        Bin(float(p / w), float(o / w), float(w)) for p, o, w in zip(predicted, observed, total, strict=True) if w > 0
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Mean |predicted − observed|, weighted by impressions."""
    total = sum(b.weight for b in bins)
    return sum(b.weight * abs(b.predicted - b.observed) for b in bins) / total if total else 0.0


def figures_of(scores: Csr, asked: Task) -> dict[str, float]:
    """Ranking and regression figures, calibration errors, and the share of queries with an ad above the threshold.

    Errors are those of pairs that were shown: what nobody was shown has no click rate, and would count as 0.
    """
    figures = evaluate(asked.truth, scores, THRESHOLD)
    shown = evaluate(asked.truth, take_entries(scores, np.flatnonzero(_seen(scores, asked)[0] > 0)), THRESHOLD)
    figures |= {name: value for name, value in shown.items() if name.startswith(("XMAD", "XRMSE", "MAD"))}
    del figures["coverage"]  # of ads; here it is of queries
    for k in CUTS:
        figures[f"ECE@{k}"] = calibration_error(reliability(scores, asked, k))
    figures["query coverage"] = 100.0 * float(covered(scores, THRESHOLD).mean()) if scores.n_rows else 0.0
    return figures


def covered(scores: Csr, threshold: float) -> npt.NDArray[np.bool_]:
    """Which queries have an ad with at least this probability."""
    has = np.zeros(scores.n_rows, bool)
    has[_row_of(scores)[scores.values >= threshold]] = True
    return has


def precision_recall(scores: Csr, asked: Task, points: int = 40) -> list[dict[str, float]]:
    """Precision (mean relevance kept) and recall (share of relevant pairs kept) at global thresholds."""
    if not scores.nnz or not asked.truth.nnz:
        return []
    order = np.argsort(-scores.values, kind="stable")
    relevance = relevance_of(asked.truth, scores)[order]
    kept = np.unique(np.geomspace(1, len(order), points).astype(np.int64))
    precision, recall = np.cumsum(relevance)[kept - 1] / kept, np.cumsum(relevance > 0)[kept - 1] / asked.truth.nnz
    return [
        {"threshold": float(scores.values[order[n - 1]]), "precision": float(p), "recall": float(r)}
        for n, p, r in zip(kept, precision, recall, strict=True)
    ]
