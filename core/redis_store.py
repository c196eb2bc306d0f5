"""What readers and writers of a shared table agree on: the server, the names of the keys, the bytes of a row.

A version of a table is a number of Redis hashes, the buckets, with queries as fields: Redis itself compares the whole
query, HLEN counts what was written, and a version expires by naming its buckets, so that nothing scans the server.
docs/tables.md has keys and values byte by byte. Any server that speaks Redis's protocol will do, one node or a cluster.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import isfinite
from operator import ge
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.retry import Retry
from xxhash import xxh3_64_intdigest

from core.errors import TableError, UsageError
from core.tables import Row

Command = tuple[Any, ...]
_BLAME = "of pipeline caused error: "  # how the client begins the cause, after quoting the command
_COUNT = struct.Struct("<I")
_SIZES = re.compile(rb"([1-9][0-9]{0,9}) ([0-9]{1,12})")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Sizes(NamedTuple):
    """What a finished version says of itself."""

    version: str
    n_buckets: int
    n_queries: int

    def bucket_of(self, query: bytes) -> int:
        return xxh3_64_intdigest(query) % self.n_buckets


class Keys(NamedTuple):
    """The keys of one table. The few that are one for all of it have a hash tag, so they lie together in a cluster;
    buckets have none, so they spread."""

    table: str

    @property
    def current(self) -> str:
        return f"xreg:{{{self.table}}}:current"

    @property
    def versions(self) -> str:
        return f"xreg:{{{self.table}}}:versions"

    @property
    def filling(self) -> str:
        return f"xreg:{{{self.table}}}:filling"

    def sizes(self, version: str) -> str:
        return f"xreg:{{{self.table}}}:sizes:{version}"

    def bucket(self, version: str, bucket: int) -> str:
        return f"xreg:{self.table}:{version}:{bucket}"


class Store:
    """A connection to the server of one table. All that goes wrong with it is a TableError that names the server."""

    def __init__(self, url: str, table: str, timeout: float) -> None:
        check_name(table)
        self.keys, self.shown = Keys(table), shown(url)
        with self._told():
            self._client = _connected(url, timeout)

    def send(self, commands: Iterable[Command], whole: bool = False) -> list[Any]:
        """Pipeline commands. `whole`: on a single server all happen or none does; a cluster gives no such promise."""
        with self._told(), self._client.pipeline(transaction=whole and isinstance(self._client, Redis)) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return list(pipe.execute())

    def whole(self, *stages: list[Command]) -> None:
        """All stages at once on a single server; in a cluster one after the other."""
        if isinstance(self._client, Redis):
            stages = ([command for stage in stages for command in stage],)
        for stage in stages:
            self.send(stage, whole=True)

    def current(self) -> str | None:
        [value] = self.send([("GET", self.keys.current)])
        return None if value is None else str(value, "utf-8", "replace")

    def sizes(self, version: str) -> Sizes | None:
        """Of a finished version; None where there is none."""
        [value] = self.send([("GET", self.keys.sizes(version))])
        if value is None:
            return None
        match = _SIZES.fullmatch(value)
        if match is None:
            raise self.error(f"{self.keys.sizes(version)} is {value!r}, not two numbers; fill the table again")
        return Sizes(version, int(match[1]), int(match[2]))

    def error(self, cause: str) -> TableError:
        return TableError(f"{self.shown}: {cause}")

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, RedisClusterException, OSError, ValueError) as error:
            cause = str(error).rpartition(_BLAME)[2]  # without the command: what people search for is not for logs
            what = f"{type(error).__name__}: {cause.rstrip('.')}"
            raise self.error(f"{what}; is the server up, with memory left, and the URL right?") from None


def _connected(url: str, timeout: float) -> Redis | RedisCluster:
    """A client of the server at a URL; where that is a node of a cluster, of the cluster."""
    options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    options["protocol"] = 2  # which every server speaks
    options["retry"] = Retry(NoBackoff(), 1)  # a connection that the server had closed is opened again, once
    client = Redis.from_url(url, **options)
    try:
        about: Any = client.info("cluster")
    except ResponseError:  # a server that knows of no clusters
        about = {}
    except BaseException:
        client.close()
        raise
    if not about.get("cluster_enabled"):
        return client
    client.close()
    return RedisCluster.from_url(url, **options)


def packed(row: Row) -> bytes:
    """Number of ads u4, ads i4, scores f4; little-endian."""
    return _COUNT.pack(len(row.ads)) + row.ads.astype("<i4").tobytes() + row.scores.astype("<f4").tobytes()


def unpacked(value: bytes) -> Row | None:
    """The row of a value; None where it is not one, since others can write to the server."""
    n = (len(value) - _COUNT.size) // 8
    if n < 1 or len(value) != _COUNT.size + 8 * n or _COUNT.unpack_from(value)[0] != n:
        return None
    ads = np.frombuffer(value, "<i4", n, _COUNT.size)
    scores = np.frombuffer(value, "<f4", n, _COUNT.size + 4 * n)
    # Plain numbers: for rows this short NumPy takes ten times as long. A NaN is not ≥ anything.
    known, falling = ads.tolist(), scores.tolist()
    good = min(known) >= 0 and len(set(known)) == n and all(map(ge, falling, falling[1:]))
    return Row(ads, scores) if good and isfinite(falling[0]) and isfinite(falling[-1]) else None


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: a table's name and version are up to 100 of A–Z, a–z, 0–9, dot, dash, underscore")


def shown(url: str) -> str:
    """A URL without its user, password and options, some of which are secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise UsageError("the URL of a shared table must begin with redis://, rediss:// or unix://")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
