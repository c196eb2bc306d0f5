"""Events counted in little memory: spread over buckets by the hash of the query, then added up bucket by bucket.

    unit      one file of the log → events.arrow: after every batch that was read, one record batch per slot
    bucket    all units' record batches of some adjacent slots → rows.arrow, queries.arrow

A slot is the hash modulo 64; a short log needs but one bucket, a long one has a bucket per slot. A bucket holds all
events of its queries, so what follows (rates, relevances) goes bucket by bucket too. Memory is that of a batch, or of
the distinct (query, ad, part, position) of a bucket, however long the log is. The hash is xxh3_64 of the normalised
query: no seed, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from core.sparse import Int32s, Int64s
from training.ingest.events import Doubles, Events

N_SLOTS = 64
ROWS_PER_BUCKET = 1 << 18
_POSITIONS = 256
_AT_ONCE = 1 << 19  # rows of a bucket that wait to be added up
_EVENTS = pa.schema(
    [
        ("query", pa.string()),
        ("ad", pa.int32()),
        ("part", pa.uint8()),
        ("position", pa.uint8()),
        ("impressions", pa.float64()),
        ("clicks", pa.float64()),
    ]
)
_ROWS = pa.schema([pa.field("query", pa.int32()), *(_EVENTS.field(i) for i in range(1, 6))])


class Rows(NamedTuple):
    """Events of one part of a bucket, added up, by (query, ad, position); `query` numbers the bucket's queries."""

    query: Int32s
    ad: Int32s
    position: npt.NDArray[np.uint8]
    impressions: Doubles
    clicks: Doubles


class Split(NamedTuple):
    """What is held out: events from a time on, or the queries whose hash falls below a share."""

    since: int | None
    share: float


def write_events(path: Path, batches: Iterable[Events], split: Split, n_ads: int) -> None:
    """Spread events over the slots of one file."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with path.open("wb") as file, pa.ipc.new_file(file, _EVENTS, options=options) as writer:
        for events in batches:
            for batch in _spread(events, split, n_ads):
                writer.write_batch(batch)


def _spread(events: Events, split: Split, n_ads: int) -> Iterator[pa.RecordBatch]:
    hashes = np.array([xxhash.xxh3_64_intdigest(text.encode()) for text in events.texts], np.uint64)
    order = np.argsort(hashes % N_SLOTS, kind="stable")  # queries are numbered anew, slot by slot
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    if split.since is not None and events.time is not None:
        part = (events.time >= split.since).astype(np.int64)
    else:
        part = ((hashes >> np.uint64(11)) * 2.0**-53 < split.share).astype(np.int64)[events.query]
    key = ((rank[events.query] * n_ads + events.ad) * 2 + part) * _POSITIONS + events.position
    key, impressions, clicks = _added_up(key, events.impressions, events.clicks)
    query = key // (n_ads * 2 * _POSITIONS)
    columns = [
        pa.array(events.texts, pa.string()).take(pa.array(order[query])),
        pa.array(key // (2 * _POSITIONS) % n_ads, pa.int32()),
        pa.array(key // _POSITIONS % 2, pa.uint8()),
        pa.array(key % _POSITIONS, pa.uint8()),
        pa.array(impressions),
        pa.array(clicks),
    ]
    batch = pa.record_batch(columns, schema=_EVENTS)
    ends = np.searchsorted((hashes % N_SLOTS)[order][query], np.arange(N_SLOTS + 1))
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        yield batch.slice(start, end - start)


def _added_up(key: Int64s, *values: Doubles) -> tuple[npt.NDArray[Any], ...]:
    """Distinct keys, ascending, and the sums of the values of each."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    return key[first], *(np.add.reduceat(v[order], first) if len(first) else v[:0] for v in values)


def n_buckets(n_rows: int) -> int:
    """As many as a log of this length needs: a power of two, so that slots fall into them evenly."""
    return min(N_SLOTS, 1 << max(n_rows // ROWS_PER_BUCKET, 0).bit_length())


def merge_bucket(units: Iterable[Path], slots: range, n_ads: int, directory: Path) -> None:
    """Add up the events of some slots of all units, and write rows and queries (sorted) into the directory."""
    waiting, n_waiting, n_before = list[pa.RecordBatch](), 0, 0
    for path in units:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            for i in range(reader.num_record_batches):
                if i % N_SLOTS not in slots:
                    continue
                waiting.append(reader.get_batch(i))
                n_waiting += waiting[-1].num_rows
                if n_waiting > _AT_ONCE + 2 * n_before:
                    waiting = _merged(waiting, n_ads).to_batches()
                    n_waiting = n_before = sum(batch.num_rows for batch in waiting)
    merged = _merged(waiting, n_ads)
    merged = merged.filter(pc.greater(merged.column("impressions"), 0))
    # By (part, query, ad, position): `_merged` leaves (query, ad, part, position).
    merged = merged.take(np.argsort(merged.column("part").to_numpy(), kind="stable"))
    encoded, names = _encoded(merged.column("query"))
    rows = merged.set_column(0, "query", pa.array(encoded, pa.int32())).cast(_ROWS)
    write_arrow(directory / "rows.arrow", rows)
    write_arrow(directory / "queries.arrow", pa.table({"query": names}))


def _encoded(column: pa.ChunkedArray) -> tuple[Int64s, pa.Array]:
    """Every text's number, and the distinct texts in the order of their bytes."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    order = pc.sort_indices(encoded.dictionary.cast(pa.binary())).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], encoded.dictionary.take(pa.array(order))


def _merged(batches: list[pa.RecordBatch], n_ads: int) -> pa.Table:
    table = pa.Table.from_batches(batches, _EVENTS)
    query, names = _encoded(table.column("query"))
    ad, part, position = (table.column(name).to_numpy().astype(np.int64) for name in ("ad", "part", "position"))
    key = ((query * n_ads + ad) * 2 + part) * _POSITIONS + position
    key, *sums = _added_up(key, table.column("impressions").to_numpy(), table.column("clicks").to_numpy())
    columns = [
        names.take(pa.array(key // (n_ads * 2 * _POSITIONS))),
        pa.array(key // (2 * _POSITIONS) % n_ads, pa.int32()),
        pa.array(key // _POSITIONS % 2, pa.uint8()),
        pa.array(key % _POSITIONS, pa.uint8()),
        *(pa.array(s) for s in sums),
    ]
    return pa.table(columns, schema=_EVENTS)


def open_rows(directory: Path) -> tuple[Rows, Rows]:
    """The bucket's training and held-out rows, mapped."""
    table = open_arrow(directory / "rows.arrow")
    end = int(np.searchsorted(column(table, "part"), 1))
    arrays = [column(table, name) for name in Rows._fields]
    return Rows(*(a[:end] for a in arrays)), Rows(*(a[end:] for a in arrays))


def open_queries(directory: Path) -> pa.Array:
    return open_arrow(directory / "queries.arrow").column("query").combine_chunks()


def column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    return np.asarray(table.column(name).combine_chunks())


def write_arrow(path: Path, table: pa.Table) -> None:
    """One record batch, uncompressed so that it can be mapped."""
    with path.open("wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def open_arrow(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()
