"""A table goes into Redis, and readers notice nothing but a new version.

Rows are written in batches into buckets that expire by themselves; when all are there and counted they are made to
stay, the pointer is flipped, and every other version gets a time to live in which readers in flight finish. A fill that
dies leaves the old version served and its own half to expire; repeating it is all there is to do. The rows of a version
never change. One fill at a time works on a table: another waits a little, in case the first died, and gives up.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, TypeVar

from core.errors import TableError, UsageError
from core.redis_store import Command, Sizes, Store, check_name, packed
from core.tables import Row, Table

_BUCKET = 256  # queries of a bucket: few enough to be freed in one step, enough to make a version some thousand keys
T = TypeVar("T")


class Filling(NamedTuple):
    """How a table is brought into Redis; times in seconds."""

    batch: int = 1000  # rows sent at once; memory holds no more
    grace: int = 3600  # how long other versions live on after the flip
    unfinished: int = 3600  # how long rows live on whose fill died
    lock: int = 10  # after which a fill that gave no sign of life is taken for dead
    timeout: float = 10.0  # for the server to answer

    def checked(self) -> Filling:
        for name, value in self._asdict().items():
            if not value > 0 or (name != "timeout" and value != int(value)):
                raise UsageError(f"{name} must be a positive number, got {value}")
        return self


def fill_redis(url: str, name: str, version: str, table: Table, filling: Filling | None = None) -> None:
    """Make `table` the current version of the shared table `name`. A version that is current already stays as it is."""
    filling = (filling or Filling()).checked()
    check_name(version)
    store = Store(url, name, filling.timeout)
    try:
        _Fill(store, _sizes(version, len(table)), filling).run(table)
    finally:
        store.close()


def _sizes(version: str, n_queries: int) -> Sizes:
    return Sizes(version, 1 << (max(n_queries - 1, 0) // _BUCKET).bit_length(), n_queries)


class _Fill:
    """One fill of one version, step by step."""

    def __init__(self, store: Store, sizes: Sizes, filling: Filling) -> None:
        self._store, self._keys, self._sizes, self._filling = store, store.keys, sizes, filling
        self._token = f"{sizes.version} {secrets.token_hex(8)}".encode()
        self._expiring: set[str] = set()  # the buckets that have a time to live
        self._renewed = time.monotonic()

    def run(self, table: Table) -> None:
        self._wait()
        try:
            if self._store.current() == self._sizes.version:
                self._same()
                self._store.whole(*self._others())
                return
            self._store.send([("HSET", self._keys.versions, self._sizes.version, self._sizes.n_buckets)])
            for batch in _batches(table.rows(), self._filling.batch):
                self._lock()
                self._store.send(self._write(batch), whole=True)
            self._count()
            self._lock()
            flip: list[Command] = [("SET", self._keys.current, self._sizes.version)]
            self._store.whole(self._stay(), flip, *self._others())
        finally:
            self._unlock()

    def _wait(self) -> None:
        """Take the lock; if a fill that died holds it, when it ends."""
        patience = time.monotonic() + self._filling.lock + 1
        while True:
            try:
                return self._lock()
            except _LockedError:
                if time.monotonic() > patience:
                    raise
                time.sleep(0.2)

    def _lock(self) -> None:
        """Take or prolong the lock; it is another's only if this process slept past its end."""
        key, life = self._keys.filling, self._filling.lock
        _, holder = self._store.send([("SET", key, self._token, "NX", "EX", life), ("GET", key)])
        if holder is not None and holder != self._token:
            version = holder.partition(b" ")[0].decode(errors="replace")
            cause = f"{self._keys.table} is being filled with version {version} by another process"
            raise _LockedError(f"{self._store.shown}: {cause}; wait for its end")
        self._store.send([("EXPIRE", key, life)])

    def _unlock(self) -> None:
        with suppress(TableError):  # what ended the fill says more; the lock ends by itself
            if self._store.send([("GET", self._keys.filling)]) == [self._token]:
                self._store.send([("DEL", self._keys.filling)])

    def _same(self) -> None:
        found = self._store.sizes(self._sizes.version)
        if found != self._sizes:
            n_found = 0 if found is None else found.n_queries
            cause = f"version {self._sizes.version} of {self._keys.table} is served, with {n_found} queries"
            raise self._store.error(f"{cause}; {self._sizes.n_queries} other ones need a version of their own")

    def _write(self, batch: list[tuple[str, Row]]) -> Iterator[Command]:
        """Rows; a time to live for every bucket when it comes to be, and anew when much of it has passed."""
        if time.monotonic() - self._renewed > self._filling.unfinished / 4:
            self._renewed = time.monotonic()
            yield from (self._expire(key) for key in self._expiring)
        for query, row in batch:
            raw = query.encode()
            key = self._bucket(self._sizes.bucket_of(raw))
            yield ("HSET", key, raw, packed(row))
            if key not in self._expiring:
                self._expiring.add(key)
                yield self._expire(key)

    def _expire(self, key: str) -> Command:
        return ("EXPIRE", key, self._filling.unfinished)

    def _bucket(self, bucket: int) -> str:
        return self._keys.bucket(self._sizes.version, bucket)

    def _count(self) -> None:
        """Refuse to go on unless the server holds every row, and no other."""
        buckets, n_found = range(self._sizes.n_buckets), 0
        for some in _batches(buckets, self._filling.batch):
            n_found += sum(self._store.send(("HLEN", self._bucket(bucket)) for bucket in some))
        if n_found != self._sizes.n_queries:
            cause = f"version {self._sizes.version} of {self._keys.table} has {n_found} rows in place of "
            raise self._store.error(
                f"{cause}{self._sizes.n_queries}; does the server evict keys, or was the version begun with another "
                "table? The version that was served still is"
            )

    def _stay(self) -> list[Command]:
        sizes = f"{self._sizes.n_buckets} {self._sizes.n_queries}"
        persist = [("PERSIST", self._bucket(bucket)) for bucket in range(self._sizes.n_buckets)]
        return [*persist, ("SET", self._keys.sizes(self._sizes.version), sizes)]

    def _others(self) -> tuple[list[Command], list[Command]]:
        """Every other version that was ever begun expires, and then is forgotten."""
        [versions] = self._store.send([("HGETALL", self._keys.versions)])
        expire, forget = list[Command](), list[Command]()
        for raw, n_buckets in versions.items():
            version = raw.decode(errors="replace")
            if version == self._sizes.version:
                continue
            if not re.fullmatch(rb"[0-9]{1,8}", n_buckets):
                raise self._store.error(
                    f"{self._keys.versions}: version {version} has {n_buckets!r} buckets; remove it"
                )
            keys = [self._keys.bucket(version, bucket) for bucket in range(int(n_buckets))]
            expire += [("EXPIRE", key, self._filling.grace) for key in (self._keys.sizes(version), *keys)]
            forget.append(("HDEL", self._keys.versions, raw))
        return expire, forget


class _LockedError(TableError):
    """Another fill is under way."""


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
