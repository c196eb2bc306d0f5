"""How the tests of tables make and read them: rows as plain lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from redis import Redis

from core.redis_fill import Filling, fill_redis
from core.redis_table import RedisTable
from core.tables import MappedTable, Row, Table, write_table
from tests.strategies import TableRows

Make = Callable[[TableRows], Table]
_NUMBER = count()
OLD: TableRows = {f"query {i}": [(i, 0.5)] for i in range(600)}
NEW: TableRows = {f"query {i}": [(i + 1, 0.25)] for i in range(300, 1200)}


def fresh_name() -> str:
    return f"t{next(_NUMBER)}"


def write(directory: Path, rows: TableRows) -> None:
    entries = [entry for row in rows.values() for entry in row]
    indptr = np.cumsum([0, *map(len, rows.values())])
    ads, scores = np.array([ad for ad, _ in entries], np.int64), np.array([score for _, score in entries])
    write_table(directory, list(rows), indptr, ads, scores)


def mapped(directory: Path, rows: TableRows) -> MappedTable:
    path = directory / fresh_name()
    path.mkdir()
    write(path, rows)
    return MappedTable.open(path)


class ListTable:
    """The least that is a table: a source for fills, and the reference."""

    def __init__(self, rows: TableRows) -> None:
        self._rows = {query: row for query, row in rows.items() if row}

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, query: str) -> Row | None:
        entries = self._rows.get(query)
        if entries is None:
            return None
        return Row(np.array([ad for ad, _ in entries], np.int32), np.array([s for _, s in entries], np.float32))

    def get_many(self, queries: Sequence[str]) -> list[Row | None]:
        return [self.get(query) for query in queries]

    def rows(self) -> Iterator[tuple[str, Row]]:
        for query in self._rows:
            row = self.get(query)
            assert row is not None
            yield query, row

    def close(self) -> None:
        pass


def shared(url: str, rows: TableRows, name: str | None = None, version: str = "v1") -> RedisTable:
    name = name or fresh_name()
    fill_redis(url, name, version, ListTable(rows), Filling(batch=7))
    return RedisTable.open(url, name)


def plain(row: Row | None) -> list[tuple[int, float]] | None:
    return None if row is None else list(zip(row.ads.tolist(), row.scores.tolist(), strict=True))


def contents(table: Table) -> TableRows:
    found = {query: plain(row) or [] for query, row in table.rows()}
    assert len(found) == len(table)
    return found


def raw(url: str) -> Redis:
    return Redis.from_url(url)


def lives(url: str, name: str, version: str) -> list[int]:
    """Seconds to live of every bucket of a version; −1: for ever."""
    with raw(url) as client:
        keys: Any = client.keys(f"xreg:{name}:{version}:*")
        return [int(client.ttl(key)) for key in keys]
