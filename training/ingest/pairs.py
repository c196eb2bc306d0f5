"""Pairs of query and ad with their relevances: from buckets of events to train.parquet and test.parquet.

Pairs are written in the order of queries though they lie in buckets: a bucket's pairs are in that order too, so the
pairs of some queries are a slice of every bucket. Memory is that of the queries and of some pairs at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.sparse import Csr, Floats, Int32s, Int64s
from training.clicks import PAIRS
from training.clicks import Pairs as Written
from training.ingest.buckets import column, open_arrow, open_queries, open_rows, write_arrow
from training.ingest.events import Doubles
from training.ingest.logs import Form
from training.ingest.options import IngestOptions
from training.ingest.rates import Pairs, Prior, added_by, pairs_of

Part = Literal["train", "test"]
PARTS: tuple[Part, ...] = ("train", "test")
_AT_ONCE = 1 << 19  # pairs that are put in order at a time


class Queries(NamedTuple):
    """All queries, known ones first, each by text; `ids[b]` are those of bucket b's queries."""

    texts: pa.Array
    known: int
    ids: list[Int32s]


def number_queries(buckets: list[Path]) -> Queries:
    texts, known = list[pa.Array](), list[npt.NDArray[np.bool_]]()
    for bucket in buckets:
        texts.append(open_queries(bucket))
        known.append(np.zeros(len(texts[-1]), bool))
        known[-1][open_rows(bucket)[0].query] = True
    joined, is_known = pa.concat_arrays(texts), np.concatenate(known)
    table = pa.table({"new": ~is_known, "text": joined.cast(pa.binary())})
    order = pc.sort_indices(table, [("new", "ascending"), ("text", "ascending")]).to_numpy()
    ids = np.empty(len(order), np.int32)
    ids[order] = np.arange(len(order))
    ends = np.cumsum([len(t) for t in texts])[:-1]
    return Queries(joined.take(pa.array(order)), int(is_known.sum()), np.split(ids, ends))


class Totals:
    """Of one part: impressions (plain) and clicks of every query, pairs of every query, ads that were shown, and the
    sum of corrected impressions."""

    def __init__(self, n_queries: int, n_ads: int) -> None:
        self.impressions, self.clicks = np.zeros(n_queries), np.zeros(n_queries)
        self.pairs, self.shown, self.corrected = np.zeros(n_queries, np.int64), np.zeros(n_ads, bool), 0.0


class Rates(NamedTuple):
    """What turns counts into relevances: examination by position, the furthest that occurs, the prior of rates."""

    form: Form
    examination: Doubles
    furthest: int
    prior: Prior | None
    options: IngestOptions

    def relevance(self, pairs: Pairs) -> Doubles:
        """Relevances in 0 … 1; in a log of clicks only, `impressions` are the clicks of the query."""
        if self.form == "judgements":
            return pairs.clicks / pairs.shown
        options, enough = self.options, pairs.clicks >= self.options.min_clicks
        if self.form == "clicks":
            return np.where(enough, pairs.clicks / (pairs.impressions + options.share_prior), 0.0)
        a, b = self.prior or (0.0, 0.0)
        enough &= pairs.shown >= options.min_impressions
        shrunk = (pairs.clicks + a) / (pairs.impressions + b)
        return np.where(enough, np.minimum(shrunk, 1.0), 0.0)


def write_pairs(buckets: list[Path], queries: Queries, n_ads: int, rates: Rates) -> tuple[Totals, Totals]:
    """Every bucket's pairs with their relevances, by (query, ad), beside its rows; what each part adds up to."""
    totals = Totals(len(queries.texts), n_ads), Totals(len(queries.texts), n_ads)
    for bucket, ids in zip(buckets, queries.ids, strict=True):
        for part, rows, total in zip(PARTS, open_rows(bucket), totals, strict=True):
            pairs = pairs_of(rows, rates.examination)
            clicks = added_by(pairs.query, pairs.clicks, len(ids))
            if rates.form == "clicks":
                pairs = pairs._replace(impressions=clicks[pairs.query])
            total.impressions[ids] = added_by(pairs.query, pairs.shown, len(ids))
            total.clicks[ids] = clicks
            total.pairs[ids] = np.bincount(pairs.query, minlength=len(ids))
            total.shown[pairs.ad] = True
            total.corrected += float(pairs.impressions.sum())
            query = ids[pairs.query]
            order = np.argsort(query, kind="stable")
            columns = (query, pairs.ad, pairs.impressions, pairs.clicks, rates.relevance(pairs))
            write_arrow(bucket / f"{part}.arrow", _table([values[order] for values in columns]))
    return totals


def _table(columns: Sequence[npt.NDArray[Any]]) -> pa.Table:
    arrays = (pa.array(v.astype(f.type.to_pandas_dtype()), f.type) for v, f in zip(columns, PAIRS, strict=True))
    return pa.table(list(arrays), schema=PAIRS)


def write_part(path: Path, buckets: list[Path], part: Part, total: Totals, n_ads: int) -> Csr:
    """One part's pairs of all buckets, by (query, ad), as Parquet; returns the relevances above 0, queries × ads."""
    counts, ads, values = np.zeros(len(total.pairs), np.int64), list[Int32s](), list[Floats]()
    with pq.ParquetWriter(path, PAIRS, compression="zstd") as writer:
        for pairs in _in_order([open_arrow(bucket / f"{part}.arrow") for bucket in buckets], total.pairs):
            writer.write_table(_table(pairs), row_group_size=_AT_ONCE)
            positive = pairs.relevance > 0
            counts += np.bincount(pairs.query[positive], minlength=len(counts))
            ads.append(pairs.ad[positive])
            values.append(pairs.relevance[positive])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    indices, relevance = (
        np.concatenate([np.empty(0, np.int32), *ads]),
        np.concatenate([np.empty(0, np.float32), *values]),
    )
    return Csr(indptr, indices, relevance, n_ads)


def _in_order(tables: list[pa.Table], pairs_of_query: Int64s) -> Iterator[Written]:
    """The pairs of all buckets by (query, ad), those of some queries at a time."""
    columns = [Written(*(column(table, name) for name in Written._fields)) for table in tables]
    ends = np.cumsum(pairs_of_query)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, before + _AT_ONCE, "right")), start + 1)
        slices = [slice(*np.searchsorted(c.query, (start, stop))) for c in columns]
        some = [np.concatenate([c[i][s] for c, s in zip(columns, slices, strict=True)]) for i in range(len(PAIRS))]
        order = np.argsort(some[0], kind="stable")
        yield Written(*(a[order] for a in some))
        start = stop
