"""A data set of clicks, opened: what `xreg ingest` wrote, checked against its manifest. docs/ingest.md says what the
files and columns mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.errors import DataError, ModelError
from core.format import MANIFEST, check_files, checksum
from core.sparse import Floats, Int32s
from core.text import Vocabulary, open_vocabulary

FORMAT, VERSION = "xreg-clicks", 1
PAIRS = pa.schema(
    [
        ("query", pa.int32()),
        ("ad", pa.int32()),
        ("impressions", pa.float32()),
        ("clicks", pa.float32()),
        ("relevance", pa.float32()),
    ]
)


class Pairs(NamedTuple):
    """What happened between queries and ads, sorted by (query, ad); impressions are corrected for position."""

    query: Int32s
    ad: Int32s
    impressions: Floats
    clicks: Floats
    relevance: Floats


class Clicks(NamedTuple):
    """A data set: row numbers of `ads` and `queries` are the ids; the first `known` queries occur in training."""

    path: Path
    ads: pa.Table
    queries: list[str]
    known: int
    train: Pairs
    test: Pairs
    query_text: Vocabulary
    ad_text: Vocabulary
    stats: dict[str, Any]


def open_clicks(path: Path, verify: bool = True) -> Clicks:
    """Open a data set. Sizes of files always agree with the manifest; checksums too where `verify`."""
    path = Path(path)
    check_clicks(path, verify)
    manifest = read_clicks_manifest(path)
    try:
        ads = pq.read_table(path / "catalogue.parquet")
        queries = pq.read_table(path / "queries.parquet", columns=["query"]).column("query").to_pylist()
        train, test = _read_pairs(path / "train.parquet"), _read_pairs(path / "test.parquet")
        stats = json.loads((path / "stats.json").read_text(encoding="utf-8"))
        known = int(manifest["sizes"]["known"])
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError) as error:
        raise DataError(f"{path}: not a complete data set of clicks ({error}); ingest it again") from error
    for name, pairs, most in (("train", train, known), ("test", test, len(queries))):
        _check_pairs(path / f"{name}.parquet", pairs, most, ads.num_rows)
    query_text, ad_text = (open_vocabulary(path / "text" / name, verify) for name in ("queries", "ads"))
    return Clicks(path, ads, queries, known, train, test, query_text, ad_text, stats)


def check_clicks(path: Path, verify: bool = True) -> str:
    """Refuse a data set whose files are not those of its manifest; returns what tells it from others."""
    try:
        check_files(path, read_clicks_manifest(path).get("files"), verify)
    except ModelError as error:
        raise DataError(f"{error}; ingest again") from error
    return checksum(path / MANIFEST)


def read_clicks_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    if not file.is_file():
        raise DataError(f"{path}: no {MANIFEST}; this is not a data set of clicks: `xreg ingest` makes one")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file}: not JSON ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{file}: not the manifest of a data set of clicks ({FORMAT})")
    if manifest.get("version") != VERSION:
        raise DataError(f"{file}: version {manifest.get('version')}; this xreg reads {VERSION}: ingest again")
    return manifest


def _read_pairs(path: Path) -> Pairs:
    table = pq.read_table(path, schema=PAIRS)
    return Pairs(*(table.column(name).to_numpy() for name in PAIRS.names))


def _check_pairs(path: Path, pairs: Pairs, n_queries: int, n_ads: int) -> None:
    for name, ids, most in (("query", pairs.query, n_queries), ("ad", pairs.ad, n_ads)):
        if len(ids) and not (ids.min() >= 0 and ids.max() < most):
            raise DataError(f"{path}: a number of a {name} is outside 0 … {most - 1}")
    if len(pairs.relevance) and not (np.min(pairs.relevance) >= 0 and np.max(pairs.relevance) <= 1):
        raise DataError(f"{path}: relevances must lie between 0 and 1")
