"""The shared table when the server is away, full, locked or holds something else: an error that says so, no secrets."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import TableError, UsageError
from core.redis_fill import Filling, fill_redis
from core.redis_store import Keys, packed, unpacked
from core.redis_table import RedisTable
from tests.core.tables import NEW, OLD, ListTable, fresh_name, raw, shared
from tests.redis_server import redis_server
from tests.strategies import TableRows


@given(st.binary(max_size=40))
def test_any_bytes_are_a_row_or_refused(value: bytes) -> None:
    row = unpacked(value)
    assert row is None or packed(row) == value


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0\0\0\0",
        b"\1\0\0\0" + b"\0" * 7,
        b"\2\0\0\0" + b"\0" * 8,
        struct.pack("<Iif", 1, -1, 0.5),
        struct.pack("<Iif", 1, 1, float("nan")),
        struct.pack("<Iiiff", 2, 1, 2, 0.25, 0.5),
        struct.pack("<Iiiff", 2, 1, 1, 0.5, 0.25),
    ],
)
def test_a_value_that_is_no_row_is_an_error(server: str, value: bytes) -> None:
    name = fresh_name()
    table = shared(server, {"a": [(1, 1.0)]}, name)
    with raw(server) as client:
        client.hset(Keys(name).bucket("v1", 0), "a", value)
    for read in (lambda: table.get("a"), lambda: list(table.rows())):
        with pytest.raises(TableError, match=f"a value in xreg:{name}:v1:0 is not a row; fill"):
            read()
    table.close()


def test_keys_of_other_kinds_are_errors(server: str) -> None:
    name = fresh_name()
    table, keys = shared(server, {"a": [(1, 1.0)]}, name), Keys(name)
    with raw(server) as client:
        client.hset(keys.bucket("v1", 0), b"\xff", packed(next(ListTable({"a": [(1, 1.0)]}).rows())[1]))
        with pytest.raises(TableError, match="is not UTF-8"):
            list(table.rows())
        client.set(keys.bucket("v1", 0), "text")
        with pytest.raises(TableError, match="WRONGTYPE"):
            table.get("a")
        client.delete(keys.bucket("v1", 0))
        with pytest.raises(
            TableError, match="has 0 rows in place of 1: it expired meanwhile, or the server evicts keys"
        ):
            list(table.rows())
        client.set(keys.sizes("v1"), "1 one")
        with pytest.raises(TableError, match="is b'1 one', not two numbers"):
            RedisTable.open(server, name)
        client.set(keys.current, b"\xff\xff")
        with pytest.raises(TableError, match="there is no table"):
            RedisTable.open(server, name)
        client.hset(keys.versions, "v0", "many")
        with pytest.raises(TableError, match="version v0 has b'many' buckets; remove it"):
            fill_redis(server, name, "v3", ListTable(NEW))
    table.close()


def test_a_table_that_was_never_filled_is_an_error(server: str) -> None:
    with pytest.raises(TableError, match=r"redis://127.0.0.1:\d+: there is no table nobody: it was never filled"):
        RedisTable.open(server, "nobody")


@pytest.mark.parametrize("url", ["http://h/", "localhost:6379", "", "redis://[", "redis"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="must begin with redis://, rediss:// or unix://"):
        RedisTable.open(url, "shop")


@pytest.mark.parametrize("name", ["", "a b", "a:b", "{a}", "ä", "a" * 101, "a\n"])
def test_names_that_would_blur_the_keys_are_refused(name: str) -> None:
    for call in (
        lambda: RedisTable.open("redis://h", name),
        lambda: RedisTable.open("redis://h", "shop", version=name),
        lambda: fill_redis("redis://h", "shop", name, ListTable({})),
    ):
        with pytest.raises(UsageError, match="a table's name and version are"):
            call()


@pytest.mark.parametrize("filling", [Filling(batch=0), Filling(grace=-1), Filling(timeout=float("nan"))])
def test_options_that_cannot_be_are_refused(filling: Filling) -> None:
    with pytest.raises(UsageError, match="must be a positive number"):
        fill_redis("redis://h", "shop", "v1", ListTable({}), filling)


def test_a_server_that_is_away_or_refuses_is_named_without_its_password() -> None:
    with redis_server() as url:
        shared(url, OLD, "shop")
        reader = RedisTable.open(url, "shop", refresh=0)
        with raw(url) as client:
            client.config_set("requirepass", "right")
        secret = url.replace("//", "//:s3cret@") + "/0?password=s3cret"
        with pytest.raises(TableError, match="AuthenticationError") as refused:
            RedisTable.open(secret, "shop")
    for call in (lambda: reader.get("a"), lambda: RedisTable.open(secret, "shop")):
        with pytest.raises(TableError, match=r"ConnectionError.*is the server up") as away:
            call()
        assert "s3cret" not in str(away.value)
    assert str(refused.value).startswith(f"{url}/0: ")
    assert "s3cret" not in str(refused.value)
    reader.close()


@pytest.mark.parametrize(
    ("policy", "message"),
    [("noeviction", "OutOfMemoryError: command not"), ("allkeys-random", "in place of 20000; does")],
)
def test_a_server_without_memory_keeps_the_old_version(policy: str, message: str) -> None:
    many: TableRows = {f"query {i}": [(ad, 0.0) for ad in range(20)] for i in range(20000)}
    with redis_server() as url:
        shared(url, {"a": [(1, 1.0)]}, "shop").close()
        with raw(url) as client:
            client.config_set("maxmemory", "4mb")
            client.config_set("maxmemory-policy", policy)
            with pytest.raises(TableError, match=message) as refused:
                fill_redis(url, "shop", "v2", ListTable(many))
            assert "query" not in str(refused.value)  # what people search for is not for logs
            assert client.get(Keys("shop").current) in ((b"v1",) if policy == "noeviction" else (b"v1", None))
