"""Files on a store: one contract for a real S3 server and a local file system; what refuses is told."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import StorageError, UsageError
from core.storage import Leaving, Store, fetch, place_of
from tests.s3_server import KEYS, address, s3_server

Place = Callable[[str], str]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XREG_WORK", str(tmp_path / "work"))


@pytest.fixture(params=["s3", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The address of a path that nobody else uses."""
    if request.param == "file":
        return lambda path: f"file://{tmp_path}/store/{path}"
    endpoint = request.getfixturevalue("server")
    return lambda path: address(endpoint, f"{tmp_path.name}/{path}")


def test_what_is_written_is_read_and_listed(place: Place, tmp_path: Path) -> None:
    store = Store(place("a"))
    assert store.files() == {}
    assert store.read("x") is None
    store.write("x", b"one")
    store.write("x", b"two!")
    (tmp_path / "large").write_bytes(bytes(range(256)) * 70_000)
    seen = list[int]()
    store.put(tmp_path / "large", "deep/er/y", seen.append)
    assert store.read("x") == b"two!"
    assert {name: size for name, (size, _) in store.files().items()} == {"x": 4, "deep/er/y": 256 * 70_000}
    assert sum(seen) == 256 * 70_000
    store.get("deep/er/y", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "large").read_bytes()
    store.remove("x")
    store.remove("x")
    store.remove_directory("deep")
    assert store.files() == {}


def test_a_file_that_is_half_there_is_fetched_from_where_it_ends(place: Place, tmp_path: Path) -> None:
    store = Store(place("a"))
    store.write("x", b"0123456789")
    target, seen = tmp_path / "x", list[int]()
    target.write_bytes(b"01234")
    store.get("x", target, seen.append)
    assert target.read_bytes() == b"0123456789"
    assert seen == [5, 5]
    target.write_bytes(b"longer than the file itself")
    store.get("x", target)
    assert target.read_bytes() == b"0123456789"


def test_a_directory_is_fetched_and_then_only_what_has_changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store, got = Store(place("data")), list[str]()
    for name in ("a", "b/c", "gone"):
        store.write(name, name.encode())
    real = Store.get

    def get(self: Store, name: str, *more: Any) -> None:
        got.append(name)
        real(self, name, *more)

    monkeypatch.setattr(Store, "get", get)
    here = fetch(place("data"))
    assert here.name == "data"
    assert sorted(got) == ["a", "b/c", "gone"]
    got.clear()
    store.write("a", b"changed")
    store.remove("gone")
    assert fetch(place("data")) == here
    assert got == ["a"]
    assert {p.relative_to(here).as_posix(): p.read_text() for p in here.rglob("*") if p.is_file()} == {
        "a": "changed",
        "b/c": "b/c",
    }


def test_one_file_is_fetched_under_its_name(place: Place) -> None:
    Store(place("logs")).write("ads.csv", b"ad_id\n")
    assert fetch(place("logs/ads.csv")).name == "ads.csv"
    assert fetch(place("logs/ads.csv")).read_bytes() == b"ad_id\n"
    with pytest.raises(StorageError, match="logs/none: no such file or directory"):
        fetch(place("logs/none"))


def test_the_manifest_is_stored_last_and_nothing_twice(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    order, real = list[str](), Store.put

    def put(self: Store, source: Path, name: str, *more: Any) -> None:
        order.append(name)
        real(self, source, name, *more)

    monkeypatch.setattr(Store, "put", put)
    leaving = Leaving(place("model"))
    leaving.out.mkdir()
    for name in ("manifest.json", "row.npy", "sub"):
        (leaving.out / name).mkdir() if name == "sub" else (leaving.out / name).write_text(name)
    (leaving.out / "sub" / "manifest.json").write_text("inner")
    leaving.store()
    assert order == ["row.npy", "sub/manifest.json", "manifest.json"]
    assert not place_of(place("model")).exists()
    with pytest.raises(UsageError, match="model exists; remove it or choose another name"):
        Leaving(place("model"))


def test_an_answers_second_file_goes_along_before_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    leaving = Leaving(place("best.parquet"))
    leaving.out.write_text("table")
    leaving.out.with_suffix(".npz").write_text("matrix")
    assert Leaving(place("best.parquet")).ready
    leaving.store()
    assert Store(place("best.npz")).read("") == b"matrix"
    assert Store(place("best.parquet")).read("") == b"table"


def test_a_store_that_is_not_there_is_told() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = address(f"127.0.0.1:{unused.getsockname()[1]}", "x")
        with pytest.raises(StorageError, match=r"s3://market/x cannot be listed: .*[Cc]onnect"):
            Store(place).files()


def test_a_bucket_that_is_not_there_is_told(server: str) -> None:
    place = address(server, "x").replace("market", "nobody")
    with pytest.raises(StorageError, match=r"s3://nobody/x cannot be written: .*NO_SUCH_BUCKET"):
        Store(place).write("a", b"1")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://user:key@bucket/x", "keys do not belong into an address"),
        ("s3://bucket/x?speed=high", "speed is no option of s3://"),
        ("s3:///x", "an address is s3://bucket/path"),
        ("ftp://host/x", "ftp://: no such store"),
    ],
)
def test_an_address_that_cannot_be_is_refused(uri: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        Store(uri)
    assert "user:key" not in str(raised.value)
