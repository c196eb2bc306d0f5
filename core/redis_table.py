"""The shared store of a table, read: for nodes that should not each hold it.

Readers follow the pointer to the current version, or keep to one version. Ads are positions in a catalogue, so a
process that serves a release asks for that release's version: the pointer may be ahead of it. `core.redis_fill` writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Self

from core.errors import TableError
from core.redis_store import Command, Sizes, Store, check_name, unpacked
from core.tables import Row


class RedisTable:
    """A table in Redis. A call sees one version: the one asked for, or the one that was current at most `refresh`
    seconds ago, far less than an old version lives on. Threads may share it."""

    def __init__(self, store: Store, version: str | None, refresh: float) -> None:
        self._store, self._asked, self._refresh = store, version, refresh
        self._looked, self._sizes = time.monotonic(), self._look()

    @classmethod
    def open(cls, url: str, name: str, version: str | None = None, refresh: float = 1.0, timeout: float = 1.0) -> Self:
        """Connect to a table: to this version of it, or to whichever is current."""
        if version is not None:
            check_name(version)
        store = Store(url, name, timeout)
        try:
            return cls(store, version, refresh)
        except BaseException:
            store.close()
            raise

    @property
    def version(self) -> str:
        return self._fresh().version

    def __len__(self) -> int:
        return self._fresh().n_queries

    def get(self, query: str) -> Row | None:
        return self.get_many([query])[0]

    def get_many(self, queries: Sequence[str]) -> list[Row | None]:
        """Pipelined: one round trip to each server for all queries."""
        sizes, places, commands = self._fresh(), list[int](), list[Command]()
        for place, query in enumerate(queries):
            try:
                raw = query.encode()
            except UnicodeEncodeError:  # a lone surrogate: no query has one
                continue
            places.append(place)
            commands.append(("HGET", self._store.keys.bucket(sizes.version, sizes.bucket_of(raw)), raw))
        rows: list[Row | None] = [None] * len(queries)
        for place, value in zip(places, self._store.send(commands), strict=True):
            if value is not None:
                rows[place] = self._row(sizes, queries[place], value)
        return rows

    def rows(self) -> Iterator[tuple[str, Row]]:
        """All of one version, bucket by bucket; an error at the end where it expired meanwhile."""
        sizes, seen = self._fresh(), 0
        for bucket in range(sizes.n_buckets):
            [found] = self._store.send([("HGETALL", self._store.keys.bucket(sizes.version, bucket))])
            for raw, value in found.items():
                try:
                    query = raw.decode()
                except UnicodeDecodeError as error:
                    raise self._error(sizes, f"the query {raw!r} is not UTF-8; fill the table again") from error
                seen += 1
                yield query, self._row(sizes, query, value)
        if seen != sizes.n_queries:
            cause = f"{seen} rows are there of {sizes.n_queries}: it expired meanwhile, or the server evicts keys"
            raise self._error(sizes, f"{cause}; read again, or fill the table again")

    def close(self) -> None:
        self._store.close()

    def _row(self, sizes: Sizes, query: str, value: bytes) -> Row:
        row = unpacked(value)
        if row is None:
            raise self._error(sizes, f"the value of {query!r} is not a row; fill the table again")
        return row

    def _fresh(self) -> Sizes:
        """The version to read, looked up again when the last look was too long ago."""
        now = time.monotonic()
        if now - self._looked > self._refresh:
            self._sizes = self._look()
            self._looked = now
        return self._sizes

    def _look(self) -> Sizes:
        version = self._asked or self._store.current()
        sizes = None if version is None else self._store.sizes(version)
        if sizes is None:
            what = self._store.keys.table + (f", version {version}" if version else "")
            raise self._store.error(f"there is no table {what}: it was never filled, or it expired; fill it")
        return sizes

    def _error(self, sizes: Sizes, cause: str) -> TableError:
        return self._store.error(f"{self._store.keys.table}, version {sizes.version}: {cause}")
