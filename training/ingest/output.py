"""The files of a data set of clicks, from buckets of events: rates, pairs, words, matrices, statistics, manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from core import __version__
from core.errors import DataError
from core.format import MANIFEST, describe_files
from core.sparse import Csr, Int64s, take_rows, to_scipy, transpose
from core.text import Vocabulary, build_vocabulary, write_vocabulary
from training.catalogue import documents
from training.clicks import FORMAT, VERSION
from training.ingest.buckets import open_rows
from training.ingest.events import Doubles
from training.ingest.logs import Form
from training.ingest.options import IngestOptions
from training.ingest.pairs import PARTS, Queries, Rates, Totals, number_queries, write_pairs, write_part
from training.ingest.rates import Exposure, Prior, fit_examination, fit_prior, pairs_of

_STEPS = 6


class Log(NamedTuple):
    """What was read: its form, whether it has positions, its rows, those rejected by reason, when the held-out part
    begins (None: it is not held out by time)."""

    form: Form
    positions: bool
    rows: int
    rejected: dict[str, int]
    since: str | None


def write_clicks(
    directory: Path,
    ads: pa.Table,
    buckets: list[Path],
    log: Log,
    options: IngestOptions,
    on_progress: Callable[[str, int, int], None],
) -> None:
    """Fill a directory with the data set; the manifest comes last."""
    on_progress("writing", 0, _STEPS)
    queries = number_queries(buckets)
    if queries.known == 0:
        raise DataError("every event is held out, none is left to train on; set `since` later or `hold_out` smaller")
    rates = _fit_rates(buckets, log, options)
    on_progress("writing", 1, _STEPS)
    totals = write_pairs(buckets, queries, ads.num_rows, rates)
    on_progress("writing", 2, _STEPS)
    train, test = (
        write_part(directory / f"{part}.parquet", buckets, part, total, ads.num_rows)
        for part, total in zip(PARTS, totals, strict=True)
    )
    if not train.nnz:
        raise DataError("no pair of the training part has a relevance above 0: no click, or too few (min_clicks)")
    _write_names(directory, ads, queries, totals[0])
    on_progress("writing", 3, _STEPS)
    texts = queries.texts.to_pylist()
    query_words = _write_online(directory, texts, queries.known, train, test, options)
    on_progress("writing", 4, _STEPS)
    shown = np.flatnonzero(totals[0].shown)
    ad_words = _write_labelwise(directory, documents(ads), shown, queries.known, train, test, options)
    on_progress("writing", 5, _STEPS)
    stats = {**_stats_of_log(log, rates), **_stats_of_parts(log.form, queries, totals, (train, test))}
    stats["vocabulary"] = {"queries": query_words.n_features, "ads": ad_words.n_features}
    stats["test_queries_without_known_word"] = _unknown_share(query_words, texts, totals[1])
    stats["query_frequency"] = _histogram(totals[0].impressions)
    _write_json(directory / "stats.json", stats)
    sizes = {"ads": ads.num_rows, "queries": len(texts), "known": queries.known}
    _write_manifest(directory, {"sizes": sizes, "options": options.as_json()})
    on_progress("writing", _STEPS, _STEPS)


def _fit_rates(buckets: list[Path], log: Log, options: IngestOptions) -> Rates:
    """Examination and prior from the training part; the prior only where it is not given and the log has rates."""
    examination, furthest = np.ones(options.positions + 2), 0
    if log.positions:
        furthest = max(int(rows.position.max(initial=0)) for bucket in buckets for rows in open_rows(bucket))
        examination = fit_examination(lambda: (open_rows(bucket)[0] for bucket in buckets), options.positions)
    prior = None if options.prior is None else Prior(*map(float, options.prior))
    if log.form in ("clicks", "judgements"):
        prior = None
    elif prior is None:
        exposure = Exposure()
        for bucket in buckets:
            exposure.add(pairs_of(open_rows(bucket)[0], examination))
        prior = fit_prior(exposure)
        if prior is None:
            raise DataError("the training part of the log has no clicks; there is nothing to learn from it")
    return Rates(log.form, examination, furthest, prior, options)


def _write_names(directory: Path, ads: pa.Table, queries: Queries, train: Totals) -> None:
    pq.write_table(ads, directory / "catalogue.parquet", compression="zstd")
    columns = {"query": queries.texts, "impressions": train.impressions, "clicks": train.clicks}
    pq.write_table(pa.table(columns), directory / "queries.parquet", compression="zstd")


def _write_online(
    directory: Path, texts: list[str], known: int, train: Csr, test: Csr, options: IngestOptions
) -> Vocabulary:
    """Points are queries, labels are ads; the words are those of the known queries."""
    words = build_vocabulary(texts[:known], options.words)
    write_vocabulary(directory / "text" / "queries", words)
    trained, asked = np.arange(known), np.flatnonzero(np.diff(test.indptr))
    features, online = words.rows(texts), directory / "online"
    online.mkdir()
    _write_matrices(online, "trn", take_rows(features, trained), take_rows(train, trained))
    _write_matrices(online, "tst", take_rows(features, asked), take_rows(test, asked))
    np.save(online / "tst_query.npy", asked.astype(np.int32))
    return words


def _write_labelwise(
    directory: Path, texts: list[str], shown: Int64s, known: int, train: Csr, test: Csr, options: IngestOptions
) -> Vocabulary:
    """Points are ads, labels are known queries; the words are those of the ads that were shown."""
    words = build_vocabulary((texts[i] for i in shown), options.words)
    write_vocabulary(directory / "text" / "ads", words)
    trained = np.arange(known)
    by_ad, by_ad_later = (transpose(take_rows(part, trained)) for part in (train, test))
    features, labelwise = words.rows(texts), directory / "labelwise"
    labelwise.mkdir()
    _write_matrices(labelwise, "trn", take_rows(features, shown), take_rows(by_ad, shown))
    _write_matrices(labelwise, "tst", features, by_ad_later)
    np.save(labelwise / "trn_ad.npy", shown.astype(np.int32))
    return words


def _write_matrices(directory: Path, prefix: str, features: Csr, relevance: Csr) -> None:
    for name, rows in (("X", features), ("Y", relevance)):
        sparse.save_npz(directory / f"{prefix}_{name}.npz", to_scipy(rows), compressed=False)


def _stats_of_log(log: Log, rates: Rates) -> dict[str, Any]:
    n_rejected = sum(log.rejected.values())
    says = {
        "clicks": "the log has clicks only: no impressions, so relevance is an ad's share of its query's clicks",
        "judgements": "relevance is the mean of a pair's judgements",
    }
    by = "time" if log.since is not None else "hash" if rates.options.hold_out > 0 else "none"
    prior, hold_out = rates.prior, None if rates.options.since is not None else rates.options.hold_out
    return {
        "form": log.form,
        "note": says.get(log.form),
        "rows": log.rows,
        "rejected": dict(sorted(log.rejected.items(), key=lambda item: (-item[1], item[0]))),
        "rejected_share": n_rejected / log.rows,
        "split": {"by": by, "since": log.since, "hold_out": hold_out},
        "prior": prior and {"a": prior.a, "b": prior.b, "mean": prior.a / prior.b, "fitted": not rates.options.prior},
        "examination": rates.examination[1 : rates.furthest + 1].tolist() if log.positions else None,
    }


def _stats_of_parts(
    form: Form, queries: Queries, totals: tuple[Totals, Totals], relevances: tuple[Csr, Csr]
) -> dict[str, Any]:
    stats: dict[str, Any] = {
        "queries": {"all": len(queries.texts), "known": queries.known},
        "ads": {"all": relevances[0].n_cols, "shown": int(totals[0].shown.sum())},
    }
    for part, total, relevance in zip(PARTS, totals, relevances, strict=True):
        shown, clicks, has_rates = float(total.impressions.sum()), float(total.clicks.sum()), form != "clicks"
        stats[part] = {
            "queries": int((total.pairs > 0).sum()),
            "pairs": int(total.pairs.sum()),
            "relevant_pairs": relevance.nnz,
            "impressions": shown if has_rates else None,
            "corrected_impressions": round(total.corrected, 3) if has_rates else None,
            "clicks": clicks,
            "click_rate": clicks / shown if shown and has_rates else None,
        }
    return stats


def _unknown_share(vocabulary: Vocabulary, texts: list[str], test: Totals) -> float | None:
    """Share of the queries asked in the held-out part that hold no known word."""
    asked = np.flatnonzero(test.pairs)
    return sum(not len(vocabulary.features(texts[i])[0]) for i in asked) / len(asked) if len(asked) else None


def _histogram(impressions: Doubles) -> list[dict[str, int]]:
    """Queries by training impressions, in powers of two; 0: held-out queries only."""
    level = np.zeros(len(impressions), np.int64)
    level[impressions > 0] = np.floor(np.log2(np.maximum(impressions[impressions > 0], 1.0))).astype(np.int64) + 1
    counts = np.bincount(level).tolist()
    return [{"from": int(2 ** (i - 1)) if i else 0, "queries": n} for i, n in enumerate(counts)]


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _write_manifest(directory: Path, fields: dict[str, Any]) -> None:
    """Every file with its size and SHA-256."""
    about = {"format": FORMAT, "version": VERSION, "xreg": __version__, **fields}
    _write_json(directory / MANIFEST, {**about, "files": describe_files(directory)})
