"""The shared table: versions flip at once, old ones expire, and fills that die do no harm."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from core.errors import TableError
from core.redis_fill import Filling, fill_redis
from core.redis_store import Keys
from core.redis_table import RedisTable
from core.tables import Row
from tests.core.tables import NEW, OLD, ListTable, contents, fresh_name, lives, plain, raw, shared


def test_a_flip_shows_the_new_version_and_lets_the_old_one_expire(server: str) -> None:
    name = fresh_name()
    reader = shared(server, OLD, name)
    pinned = RedisTable.open(server, name, version="v1")
    assert set(lives(server, name, "v1")) == {-1}
    fill_redis(server, name, "v2", ListTable(NEW), Filling(grace=100))
    follower = RedisTable.open(server, name, refresh=0)
    assert contents(follower) == NEW
    assert (follower.version, len(follower)) == ("v2", len(NEW))
    assert contents(pinned) == OLD
    assert len(lives(server, name, "v1")) == 4  # 600 queries at 256 a bucket, as a power of two
    assert all(0 < life <= 100 for life in lives(server, name, "v1"))
    assert set(lives(server, name, "v2")) == {-1}
    with raw(server) as client:
        assert 0 < int(client.ttl(Keys(name).sizes("v1"))) <= 100
        assert client.hgetall(Keys(name).versions) == {b"v2": b"4"}
        assert client.exists(Keys(name).filling) == 0
    for table in (reader, pinned, follower):
        table.close()


def test_a_reader_follows_the_flip_and_every_call_sees_one_version(server: str) -> None:
    name = fresh_name()
    shared(server, {"a": [(1, 1.0)], "b": [(1, 1.0)]}, name).close()
    reader, seen, done = RedisTable.open(server, name, refresh=0.001), set[Any](), Event()

    def read() -> None:
        while not done.is_set():
            seen.add(tuple(str(plain(row)) for row in reader.get_many(["a", "b"])))

    thread = Thread(target=read)
    thread.start()
    for version in range(2, 12):
        shared(server, {"a": [(version, 1.0)], "b": [(version, 1.0)]}, name, f"v{version}").close()
    done.set()
    thread.join()
    assert plain(reader.get("a")) == [(11, 1.0)]
    assert all(first == second for first, second in seen)
    reader.close()


def test_an_old_version_is_gone_when_its_time_is_over(server: str) -> None:
    name = fresh_name()
    shared(server, OLD, name).close()
    pinned = RedisTable.open(server, name, version="v1", refresh=0)
    fill_redis(server, name, "v2", ListTable(NEW), Filling(grace=1))
    while lives(server, name, "v1"):
        time.sleep(0.05)
    with pytest.raises(TableError, match=f"there is no table {name}, version v1: it was never filled, or it expired"):
        pinned.get("query 1")
    pinned.close()


def test_a_version_that_expired_can_be_filled_again(server: str) -> None:
    """A release that is rolled back to."""
    name = fresh_name()
    for version, rows in (("v1", OLD), ("v2", NEW), ("v1", OLD)):
        table = shared(server, rows, name, version)
        assert contents(table) == rows
        assert set(lives(server, name, version)) == {-1}
        table.close()


def test_filling_the_current_version_again_changes_nothing(server: str) -> None:
    name = fresh_name()
    shared(server, OLD, name).close()
    table = shared(server, OLD, name)
    assert contents(table) == OLD
    assert set(lives(server, name, "v1")) == {-1}
    with pytest.raises(
        TableError, match=r"version v1 of .* is served, with 600 queries; 900 other ones need a version"
    ):
        fill_redis(server, name, "v1", ListTable(NEW))
    table.close()


FILL = """
import sys, time
from core.redis_fill import Filling, fill_redis
from tests.core.tables import ListTable
from tests.core.tables import NEW

class Stuck(ListTable):
    def rows(self):
        for i, row in enumerate(super().rows()):
            if i == 500:
                print("half", flush=True)
                time.sleep(1000)
            yield row

fill_redis(sys.argv[1], sys.argv[2], "v2", Stuck(NEW), Filling(batch=50, unfinished=200, lock=1))
"""


def test_a_killed_fill_leaves_the_old_version_and_can_be_repeated(server: str) -> None:
    name = fresh_name()
    reader = shared(server, OLD, name)
    command = [sys.executable, "-c", FILL, server, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent.parent) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
    assert contents(reader) == OLD
    assert contents(RedisTable.open(server, name)) == OLD
    assert len(lives(server, name, "v2")) == 4
    assert all(0 < life <= 200 for life in lives(server, name, "v2"))
    with pytest.raises(TableError, match=r"there is no table .*, version v2"):
        RedisTable.open(server, name, version="v2")
    fill_redis(server, name, "v2", ListTable(NEW))  # when the dead one's lock has ended
    assert contents(RedisTable.open(server, name)) == NEW
    assert set(lives(server, name, "v2")) == {-1}
    reader.close()


def test_what_killed_fills_left_for_ever_expires_with_the_next_fill(server: str) -> None:
    """In a cluster the last steps are not one: a kill among them may leave buckets that stay."""
    name = fresh_name()
    with raw(server) as client:
        client.hset(Keys(name).versions, "v0", "2")
        for bucket in range(2):
            client.hset(Keys(name).bucket("v0", bucket), "a", "b")
    assert lives(server, name, "v0") == [-1, -1]
    shared(server, OLD, name).close()
    assert all(0 < life <= 3600 for life in lives(server, name, "v0"))


def test_a_long_fill_keeps_its_buckets_alive(server: str) -> None:
    class Slow(ListTable):
        def rows(self) -> Iterator[tuple[str, Row]]:
            for i, row in enumerate(super().rows()):
                if i < 5:
                    time.sleep(0.3)
                    assert -1 not in lives(server, name, "v1")
                yield row

    name = fresh_name()
    fill_redis(server, name, "v1", Slow(NEW), Filling(batch=1, unfinished=1))
    assert contents(RedisTable.open(server, name)) == NEW


def test_two_fills_at_once_are_refused(server: str) -> None:
    begun, end = Event(), Event()

    class Held(ListTable):
        def rows(self) -> Iterator[tuple[str, Row]]:
            begun.set()
            end.wait()
            yield from super().rows()

    name = fresh_name()
    first = Thread(target=fill_redis, args=(server, name, "v1", Held(OLD)))
    first.start()
    begun.wait()
    with pytest.raises(TableError, match=f"{name} is being filled with version v1 by another process; wait"):
        fill_redis(server, name, "v2", ListTable(NEW), Filling(lock=1))
    end.set()
    first.join()
    assert contents(RedisTable.open(server, name)) == OLD


def test_a_fill_that_lost_its_lock_stops(server: str) -> None:
    name = fresh_name()

    class Robbed(ListTable):
        def rows(self) -> Iterator[tuple[str, Row]]:
            for row in super().rows():
                with raw(server) as client:
                    client.set(Keys(name).filling, "v9 other")
                yield row

    with pytest.raises(TableError, match="is being filled with version v9 by another process"):
        fill_redis(server, name, "v1", Robbed(OLD))
    with raw(server) as client:
        assert client.get(Keys(name).filling) == b"v9 other"
        assert client.get(Keys(name).current) is None
