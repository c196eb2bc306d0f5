"""Releases on a real S3 server: readers see the old one or the new one, a mirror is verified, goes on and shares."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelError, ReleaseError, StorageError
from core.releases import current, listing, read_release
from core.remote_releases import (
    Follower,
    pull,
    push,
    remote_current,
    remote_listing,
    remote_retain,
    remote_roll_back,
)
from core.storage import Store
from tests.s3_server import KEYS, address, s3_server
from tests.training.nightly import PLAN, terms
from training.release.refresh import CatalogueChange, refresh, refresh_table


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XREG_WORK", str(tmp_path / "work"))


@pytest.fixture
def store(server: str, tmp_path: Path) -> Store:
    return Store(address(server, tmp_path.name))


@pytest.fixture
def published(store: Store, night: Path) -> str:
    """The night's release, on the store."""
    name = current(night)
    assert name is not None
    push(store, night, name, None)
    return name


def contents(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def failing_after(n: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """A store that refuses from its n-th call on."""
    calls = 0

    def call(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > n:
            raise StorageError("the store went away")
        return real(*args)

    return call


def test_a_release_is_mirrored_byte_for_byte_and_served(
    store: Store, published: str, night: Path, tmp_path: Path
) -> None:
    seen = list[tuple[int, int]]()
    assert pull(store, tmp_path / "here", on_bytes=lambda *told: seen.append(told)) == published
    assert contents(tmp_path / "here" / published) == contents(night / published)
    assert current(tmp_path / "here") == published
    assert seen[-1][0] == seen[-1][1]
    assert pull(store, tmp_path / "here") == published


def test_nothing_is_published_until_all_is_there(store: Store, night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = current(night)
    assert name is not None
    n_files = len(read_release(night / name)["files"])
    for n in (0, 1, n_files - 1):  # nothing is stored; one file; all the others but the manifest
        with monkeypatch.context() as patch:
            patch.setattr(Store, "put", failing_after(n, Store.put))
            with pytest.raises(StorageError, match="the store went away"):
                push(store, night, name, None)
        assert remote_current(store) is None
        assert remote_listing(store) == []
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", failing_after(1, Store.put))  # what is there is not stored again
        push(store, night, name, None)
    assert remote_current(store) == name


def test_what_somebody_else_published_meanwhile_is_not_replaced(store: Store, published: str, night: Path) -> None:
    store.write("CURRENT", b"2030-01-01T00-00-00Z-0123456789ab\n")
    with pytest.raises(ReleaseError, match="2030-01-01T00-00-00Z-0123456789ab was published meanwhile"):
        push(store, night, published, None)
    assert remote_current(store) == "2030-01-01T00-00-00Z-0123456789ab"


def test_a_mirror_that_was_interrupted_goes_on_with_what_it_has(
    store: Store, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, fetched = tmp_path / "here", list[str]()
    real = Store.get
    with monkeypatch.context() as patch:
        patch.setattr(Store, "get", failing_after(3, Store.get))
        with pytest.raises(StorageError):
            pull(store, here)
    assert current(here) is None
    assert listing(here) == []
    aside = here / f".{published}.pulling"
    whole = [path for path in aside.rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert len(whole) >= 3
    cut = max(whole, key=lambda path: path.stat().st_size)
    data = cut.read_bytes()
    cut.write_bytes(data[: len(data) // 2])
    starts = dict[str, int]()

    def get(self: Store, name: str, target: Path, *more: Any) -> None:
        fetched.append(name)
        starts[name] = target.stat().st_size if target.exists() else 0
        real(self, name, target, *more)

    monkeypatch.setattr(Store, "get", get)
    pull(store, here)
    read_release(here / published)
    assert starts[f"{published}/{cut.relative_to(aside).as_posix()}"] == len(data) // 2
    assert len(fetched) == len(read_release(here / published)["files"]) - len(whole) + 1


def test_a_damaged_object_never_becomes_a_release(store: Store, published: str, night: Path, tmp_path: Path) -> None:
    path = max((night / published / "table").iterdir(), key=lambda p: p.stat().st_size)
    name = f"{published}/table/{path.name}"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    store.write(name, bytes(data))
    with pytest.raises(ModelError, match=f"{path.name}: the SHA-256 differs from the manifest's"):
        pull(store, tmp_path / "here")
    assert current(tmp_path / "here") is None
    store.write(name, path.read_bytes())
    pull(store, tmp_path / "here")
    manifest = f"{published}/manifest.json"
    store.write(manifest, (store.read(manifest) or b"").replace(b"refresh", b"REFRESH"))
    with pytest.raises(ModelError, match="does not go with the release's name"):
        pull(store, tmp_path / "elsewhere")
    assert listing(tmp_path / "elsewhere") == []


def test_files_that_are_here_already_are_linked(
    store: Store, published: str, market: Path, releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table filled anew is another release that shares its models."""
    pull(store, tmp_path / "here")
    ads = tmp_path / "ads.csv"
    lines = (market / "ads.csv").read_text().splitlines(keepends=True)
    ads.write_text("".join(lines[:-3]))
    name = refresh_table(CatalogueChange(ads), terms(releases, 1, force=True))
    push(store, releases, name, published)
    fetched, real = list[str](), Store.get

    def get(self: Store, name: str, *more: Any) -> None:
        fetched.append(name)
        real(self, name, *more)

    monkeypatch.setattr(Store, "get", get)
    pull(store, tmp_path / "here")
    read_release(tmp_path / "here" / name)
    assert not [path for path in fetched if "/online/" in path]
    shared = tmp_path / "here" / name / "online" / "manifest.json"
    assert shared.stat().st_ino == (tmp_path / "here" / published / "online" / "manifest.json").stat().st_ino


def test_rolling_back_and_retaining_on_a_store(
    store: Store, published: str, market: Path, releases: Path, night: Path
) -> None:
    names = [published]
    for day in (1, 2, 3):
        names.append(refresh(market / "clicks", PLAN, terms(releases, day)))
        push(store, releases, names[-1], names[-2])
    assert remote_listing(store) == names
    assert remote_roll_back(store) == (names[3], names[2])
    assert remote_roll_back(store, names[0]) == (names[2], names[0])
    with pytest.raises(ReleaseError, match="there is no release before"):
        remote_roll_back(store)
    with pytest.raises(ReleaseError, match="is no release in"):
        remote_roll_back(store, "2030-01-01T00-00-00Z-0123456789ab")
    remote_roll_back(store, names[3])
    assert remote_retain(store, 2, None, datetime.now(UTC)) == names[:2]
    assert remote_listing(store) == names[2:]
    assert not [path for path in store.files() if path.startswith(names[0])]


def test_a_follower_takes_over_what_is_new_and_leaves_what_was_rolled_back_here(
    store: Store, published: str, market: Path, releases: Path, tmp_path: Path
) -> None:
    follower, told = Follower(store, tmp_path / "here"), list[str]()
    follower.look(told.append)
    second = refresh(market / "clicks", PLAN, terms(releases, 1))
    push(store, releases, second, published)
    follower.look(told.append)
    (tmp_path / "here" / "CURRENT").write_text(f"{published}\n")
    follower.look(told.append)
    assert told == [published, second]
    assert current(tmp_path / "here") == published


def xreg(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "training.cli", *map(str, args)], capture_output=True, text=True, check=False
    )


def test_a_night_on_a_store_from_its_log_to_a_mirror(server: str, market: Path, tmp_path: Path) -> None:
    """Every step reads from the store and leaves its result there."""
    name = tmp_path.name
    log, clicks, releases = (address(server, f"{name}/{part}") for part in ("log", "clicks", "releases"))
    Store(log).put(market / "ads.csv", "ads.csv")
    Store(log).put(market / "events.parquet", "events/day.parquet")
    events, ads = (address(server, f"{name}/log/{part}") for part in ("events", "ads.csv"))
    ran = xreg("ingest", "--events", events, "--ads", ads, "--out", clicks, "--most-rejected", 0.5)
    assert ran.returncode == 0, ran.stderr
    ran = xreg("refresh", "--data", clicks, "--releases", releases, "--trees", 1, "--max-leaf", 50, "--threads", 2)
    assert ran.returncode == 0, ran.stderr
    first = ran.stdout.split()[-1]
    assert remote_current(Store(releases)) == first
    ran = xreg("pull", "--from", releases, "--releases", tmp_path / "here")
    assert (ran.returncode, ran.stdout) == (0, f"{first}\n"), ran.stderr
    read_release(tmp_path / "here" / first)
    model = address(server, f"{name}/model")
    ran = xreg("train", address(server, f"{name}/clicks/online"), "--out", model, "--trees", 1, "--max-leaf", 50)
    assert ran.returncode == 0, ran.stderr
    best = address(server, f"{name}/best.parquet")
    ran = xreg("labelwise", model, address(server, f"{name}/clicks/online"), "--out", best)
    assert ran.returncode == 0, ran.stderr
    assert {"best.npz", "best.parquet"} <= set(Store(address(server, name)).files())
    ran = xreg("train", address(server, f"{name}/clicks/online"), "--out", model, "--trees", 1)
    assert ran.returncode == 2
    assert "model exists; remove it or choose another name" in ran.stderr


def test_a_refresh_whose_store_refuses_publishes_nothing_and_goes_on_later(
    server: str, market: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.commands.places import releases_at

    place = address(server, f"{tmp_path.name}/releases")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", failing_after(2, Store.put))
        with releases_at(place) as here, pytest.raises(StorageError):
            refresh(market / "clicks", PLAN, terms(here.path, on_published=here.on_published))
    assert remote_current(Store(place)) is None
    with monkeypatch.context() as patch:
        patch.setattr("training.release.refresh.begin", lambda *args: pytest.fail("trained again"))
        with releases_at(place) as here:
            name = refresh(market / "clicks", PLAN, terms(here.path, on_published=here.on_published))
    assert remote_current(Store(place)) == name
    shutil.rmtree(here.path)
