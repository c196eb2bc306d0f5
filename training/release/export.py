"""A release's table as Parquet: query, rank, ad_id, score; a block of rows in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.catalogue import open_catalogue
from core.format import sync
from core.tables import MappedTable, Row

_SCHEMA = pa.schema([("query", pa.string()), ("rank", pa.int32()), ("ad_id", pa.string()), ("score", pa.float32())])
_QUERIES = 20_000  # per row group


def export_table(release: Path, out: Path) -> int:
    """Write aside and rename; returns the number of rows."""
    table, ids = MappedTable.open(release / "table"), list(open_catalogue(release / "catalogue").ids.all())
    aside, written = out.with_name(f".{out.name}.writing"), 0
    with pq.ParquetWriter(aside, _SCHEMA) as writer:
        rows = table.rows()
        while block := list(islice(rows, _QUERIES)):
            group = pa.Table.from_pylist(list(_entries(block, ids)), schema=_SCHEMA)
            writer.write_table(group)
            written += group.num_rows
    sync(aside)
    aside.replace(out)
    return written


def _entries(block: list[tuple[str, Row]], ids: list[str]) -> Iterator[dict[str, object]]:
    for query, row in block:
        for rank, (ad, score) in enumerate(zip(row.ads.tolist(), row.scores.tolist(), strict=True)):
            yield {"query": query, "rank": rank + 1, "ad_id": ids[ad], "score": score}
