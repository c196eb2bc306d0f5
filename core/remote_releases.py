"""Releases on a store: published there, mirrored from there.

    STORE/<release>/…    as in a directory of releases (core/releases.py); manifest.json is stored last
    STORE/CURRENT        the name of the release being served; one object, replaced in one step, after all else

A mirror is a directory of releases like any other: what is fetched is written aside, checked byte by byte against the
manifest, whose own hash is in the release's name, renamed, and only then CURRENT. Files that a local release has
already, by their SHA-256, are linked. A mirror that was interrupted goes on with the bytes it has.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from core.errors import ModelError, ReleaseError, StorageError
from core.format import MANIFEST, checksum, sync_tree
from core.releases import created_at, is_name, link, listing, publishing, read_release, retain, serve
from core.storage import OnBytes, Store, counter, place_of, uri_of

CURRENT = "CURRENT"
_KEPT = 3  # releases in a mirror


def remote_current(store: Store) -> str | None:
    """The release being served, or None where nothing was published yet."""
    data = store.read(CURRENT)
    if data is None:
        return None
    name = data.decode("utf-8", "replace").strip()
    if not is_name(name):
        raise ReleaseError(f"{store.uri}/{CURRENT} says {name[:80]!r}, which is no release")
    return name


def pull(
    store: Store, releases: Path, name: str | None = None, on_bytes: OnBytes | None = None, attempts: int = 2
) -> str:
    """Mirror the release being served (or the one named) and make it the one being served here; returns its name."""
    name = name or remote_current(store)
    if name is None:
        raise ReleaseError(f"{store.uri}: nothing is published there yet")
    releases.mkdir(parents=True, exist_ok=True)
    with publishing(releases):
        if not (releases / name).exists():
            aside = releases / f".{name}.pulling"
            aside.mkdir(exist_ok=True)
            manifest = _fetch_manifest(store, name, aside)
            _fetch_files(store, name, manifest, releases, aside, on_bytes, attempts)
            sync_tree(aside)
            aside.rename(releases / name)
            read_release(releases / name, verify=False)
        serve(releases, name)
        for leftover in releases.glob(".*.pulling"):  # of a release that is not wanted any more
            shutil.rmtree(leftover, ignore_errors=True)
    return name


def _fetch_manifest(store: Store, name: str, aside: Path) -> dict[str, Any]:
    data = store.read(f"{name}/{MANIFEST}")
    if data is None:
        raise StorageError(f"{store.uri}/{name}: no such release")
    if not name.endswith(hashlib.sha256(data).hexdigest()[:12]):
        raise ModelError(f"{store.uri}/{name}/{MANIFEST}: does not go with the release's name: damaged or changed")
    (aside / MANIFEST).write_bytes(data)
    manifest: dict[str, Any] = json.loads(data)
    for path in manifest["files"]:
        if path.startswith("/") or ".." in Path(path).parts:
            raise ModelError(f"{store.uri}/{name}/{MANIFEST}: {path!r} is no name of a file in a release")
    return manifest


def _fetch_files(
    store: Store,
    name: str,
    manifest: dict[str, Any],
    releases: Path,
    aside: Path,
    on_bytes: OnBytes | None,
    attempts: int,
) -> None:
    """Every file of the manifest, verified; a file that arrived damaged is fetched again."""
    say = counter(on_bytes, sum(about["bytes"] for about in manifest["files"].values()))
    have = dict(_files_here(releases))
    for path, about in manifest["files"].items():
        target, digest = aside / path, about["sha256"]
        target.parent.mkdir(parents=True, exist_ok=True)
        if _is_whole(target, about):
            say(about["bytes"])
            continue
        if digest in have and _is_whole(have[digest], about):
            target.unlink(missing_ok=True)
            link(have[digest], target)
            say(about["bytes"])
            continue
        for _ in range(attempts):
            store.get(f"{name}/{path}", target, say)
            if _is_whole(target, about):
                break
            target.unlink()
        else:
            raise ModelError(f"{store.uri}/{name}/{path}: the SHA-256 differs from the manifest's: damaged or changed")


def _is_whole(path: Path, about: dict[str, Any]) -> bool:
    return path.is_file() and path.stat().st_size == about["bytes"] and checksum(path) == about["sha256"]


def _files_here(releases: Path) -> Iterator[tuple[str, Path]]:
    """SHA-256 and path of the files of the releases that are here already."""
    for name in listing(releases):
        try:
            files = read_release(releases / name, verify=False)["files"]
        except ModelError:
            continue
        yield from ((about["sha256"], releases / name / path) for path, about in files.items())


def push(store: Store, releases: Path, name: str, parent: str | None, on_bytes: OnBytes | None = None) -> None:
    """Publish a local release on a store whose current release is `parent`; what is there of it already stays. Readers
    see the old one or the new one: CURRENT is stored last, when all else is seen to be there."""
    manifest = read_release(releases / name, verify=False)
    sizes = {path: about["bytes"] for path, about in manifest["files"].items()}
    sizes[MANIFEST] = (releases / name / MANIFEST).stat().st_size
    there, say = _sizes(store, name), counter(on_bytes, sum(sizes.values()))
    for path, size in sizes.items():  # the manifest is the last of them
        if there.get(path) == size:
            say(size)
        else:
            store.put(releases / name / path, f"{name}/{path}", say)
    if (found := _sizes(store, name)) != sizes:
        different = sorted(path for path in {*found, *sizes} if found.get(path) != sizes.get(path))[0]
        raise StorageError(f"{store.uri}/{name}/{different}: not stored as it is here; nothing was published")
    served = remote_current(store)
    if served not in (parent, name):
        raise ReleaseError(f"{store.uri}: {served} was published meanwhile by somebody else; run again")
    store.write(CURRENT, f"{name}\n".encode())


def _sizes(store: Store, name: str) -> dict[str, int]:
    prefix = f"{name}/"
    return {path.removeprefix(prefix): size for path, (size, _) in store.files().items() if path.startswith(prefix)}


def remote_listing(store: Store) -> list[str]:
    """All finished releases, oldest first."""
    found = (path.removesuffix(f"/{MANIFEST}") for path in store.files() if path.endswith(f"/{MANIFEST}"))
    return sorted(name for name in found if is_name(name))


def remote_roll_back(store: Store, to: str | None = None) -> tuple[str | None, str]:
    """Serve the release before the current one, or the one named; returns (what was served, what is served now)."""
    served, names = remote_current(store), remote_listing(store)
    if to is None:
        parent = json.loads(store.read(f"{served}/{MANIFEST}") or b"{}").get("parent") if served else None
        older = [name for name in names if served is None or name < served]
        if not older:
            raise ReleaseError(f"{store.uri}: there is no release before {served or 'the current one'}")
        to = parent if parent in older else older[-1]
    if to not in names:
        raise ReleaseError(f"{to!r} is no release in {store.uri}")
    store.write(CURRENT, f"{to}\n".encode())
    return served, to


def remote_retain(store: Store, keep: int, days: float | None, now: datetime) -> list[str]:
    """Remove releases beyond the newest `keep` and, if given, older than `days`; never the one being served or the one
    before it. The manifest goes first: what is left of a kill is no release."""
    names, served = remote_listing(store), remote_current(store)
    before = [name for name in names if served is None or name < served]
    safe, removed = {served, *before[-1:]}, list[str]()
    for position, name in enumerate(names):
        old = days is not None and now - created_at(name) > timedelta(days=days)
        if name not in safe and (old or len(names) - position > keep):
            store.remove(f"{name}/{MANIFEST}")
            store.remove_directory(name)
            removed.append(name)
    return removed


class Follower:
    """A mirror that follows a store: told what is served there, it pulls. What was rolled back here stays until the
    store says something new."""

    def __init__(self, store: Store, releases: Path) -> None:
        self._store, self._releases, self._last = store, releases, ""

    def look(self, pulled: Callable[[str], None] = lambda name: None) -> None:
        name = remote_current(self._store)
        if name is not None and name != self._last:
            pull(self._store, self._releases, name)
            self._last = name
            retain(self._releases, _KEPT, None, datetime.now(UTC))
            pulled(name)

    def go_on(self, seconds: float) -> None:
        """Look every so many seconds, for ever; what goes wrong is told, and tried again."""
        log = logging.getLogger("xreg.mirror")
        while True:
            time.sleep(seconds)
            try:
                self.look(lambda name: log.warning("mirrored %s from %s", name, self._store.uri))
            except Exception as error:  # nothing may end the mirror while its process lives
                log.warning("%s: %s", self._store.uri, error)


def mirrored(path: Path, seconds: float) -> Path:
    """The path itself or, where it is an address, a local mirror of it that a thread keeps up to date (0: as it is)."""
    uri = uri_of(path)
    if uri is None:
        return path
    releases = place_of(uri) / "mirror"
    follower = Follower(Store(uri), releases)
    releases.mkdir(parents=True, exist_ok=True)
    follower.look()
    if seconds > 0:
        threading.Thread(target=follower.go_on, args=(seconds,), name="mirror", daemon=True).start()
    return releases
