"""How good are the answers of a release on the held-out part of a click log, and by which rule should they be merged?

The held-out queries are cut in two by a hash of their text: the rule (core/merge.py) is chosen on one half, the figures
come from the other. A probability is judged where held-out data can judge it: on answered pairs that were shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from core.calibration import Calibration, fit_isotonic
from core.merge import SOURCES, Merger, MergeRule, Source
from core.metrics import evaluate, relevance_of
from core.served import Served
from core.sparse import Csr, Floats, Int64s, best_of_rows, take_entries, take_rows
from training.clicks import Clicks, Pairs

Doubles = npt.NDArray[np.float64]
WEIGHTS = (0.5, 0.25, 0.75, 0.0, 1.0)  # of two as good, the first
CUTS = (1, 3, 5, 10)
K = 10  # ads per query that are judged
THRESHOLD = 0.01
_BINS = 10
_LEAST_SHOWN = 200  # pairs that a map is fitted on at the least
_WORTH = 0.5  # points of WP@5 that better probabilities may cost


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


def held_out(clicks: Clicks) -> tuple[Task, Task]:
    """The queries of the held-out part, in two halves: (to choose the rule on, to judge on)."""
    ids = np.unique(clicks.test.query).astype(np.int64)
    half = np.array([xxh3_64_intdigest(clicks.queries[i].encode()) & 1 for i in ids], bool)
    return task(clicks, clicks.test, ids[~half]), task(clicks, clicks.test, ids[half])


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
    return Merger(rule).merge_rows(*answers, k)[0]


def choose_rule(answers: Answers, asked: Task) -> MergeRule:
    """The weight with the best ranking, with maps where they bring probabilities nearer to what was seen.

    Maps are judged on queries that they were not fitted on: each of two folds by the maps of the other.
    """
    fold = np.arange(len(asked.queries)) % 2 == 0
    best: dict[bool, tuple[float, float, MergeRule]] = {}
    for mapped in (True, False):
        for weight in WEIGHTS:
            rules = [
                MergeRule(weight, fit_maps(answers, asked, weight, part) if mapped else {}) for part in (~fold, fold)
            ]
            scores = _stitched(answers, rules, fold)
            merit = evaluate(asked.truth, scores, THRESHOLD)["WP@5"]
            if mapped not in best or merit > best[mapped][0]:
                final = MergeRule(weight, fit_maps(answers, asked, weight, fold | True) if mapped else {})
                best[mapped] = merit, calibration_error(reliability(scores, asked, K)), final
    with_maps, without = best[True], best[False]
    helps = with_maps[1] < without[1] and with_maps[0] >= without[0] - _WORTH
    return with_maps[2] if helps and with_maps[2].maps else without[2]


def _stitched(answers: Answers, rules: Sequence[MergeRule], fold: npt.NDArray[np.bool_]) -> Csr:
    """Merged rows, those of the fold by the first rule, the others by the second."""
    parts = [merged(answers, rule) for rule in rules]
    lengths = np.where(fold, np.diff(parts[0].indptr), np.diff(parts[1].indptr))
    row = [np.repeat(fold if i == 0 else ~fold, np.diff(part.indptr)) for i, part in enumerate(parts)]
    order = np.argsort(np.concatenate([_row_of(part)[row[i]] for i, part in enumerate(parts)]), kind="stable")
    indices = np.concatenate([part.indices[row[i]] for i, part in enumerate(parts)])[order]
    values = np.concatenate([part.values[row[i]] for i, part in enumerate(parts)])[order]
    return Csr(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), indices, values, parts[0].n_cols)


def _row_of(rows: Csr) -> Int64s:
    return np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))


def fit_maps(
    answers: Answers, asked: Task, weight: float, chosen: npt.NDArray[np.bool_]
) -> Mapping[Source, Calibration]:
    """From score to click rate for each source, on the chosen queries."""
    rows, sources = Merger(MergeRule(weight, {})).merge_rows(*answers, k=answers.model.n_cols)
    shown, rate = _seen(rows, asked)
    usable = (shown > 0) & chosen[_row_of(rows)]
    maps: dict[Source, Calibration] = {}
    for number, source in enumerate(SOURCES):
        if fitted := _fit_map(rows.values, rate, shown, usable & (sources == number)):
            maps[source] = fitted
    return maps


def _fit_map(scores: Floats, rate: Doubles, shown: Doubles, usable: npt.NDArray[np.bool_]) -> Calibration | None:
    at = np.flatnonzero(usable)
    if len(at) < _LEAST_SHOWN:
        return None
    fitted = fit_isotonic(scores[at], rate[at], shown[at])
    return fitted if len(fitted.scores) else None


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
    """Ranking and regression figures, calibration errors, and the share of queries with an ad above the threshold."""
    figures = evaluate(asked.truth, scores, THRESHOLD)
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
