"""A directory of releases: publish, open, roll back, retain.

    RELEASES/2026-11-16T02-00-00Z-3f9a1c0b7d21/   manifest.json and everything that is served; never changed again
    RELEASES/CURRENT                              the name of the release being served, replaced by rename

A release's name ends in the first digits of its manifest's SHA-256, and the manifest holds the SHA-256 of every file:
nothing in a release can differ from what was published without being noticed. A release is written aside, synced,
verified by opening it, renamed, and only then becomes CURRENT: a kill at any moment leaves the old one or the new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from core.errors import ModelError, ReleaseError, UsageError
from core.format import MANIFEST, check_files, describe_files, sync, sync_tree

FORMAT, VERSION = "xreg-release", 1
_CURRENT, _LOCK = "CURRENT", ".lock"
_TIME = "%Y-%m-%dT%H-%M-%SZ"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{12}")


@contextmanager
def publishing(releases: Path) -> Iterator[None]:
    """Nobody else publishes, rolls back or removes releases meanwhile."""
    if not releases.is_dir():
        raise ReleaseError(f"{releases}: no such directory")
    with (releases / _LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ReleaseError(f"{releases}: another process is publishing; try again when it has finished") from error
        yield


def publish(
    releases: Path,
    created: datetime,
    fields: Mapping[str, Any],
    fill: Callable[[Path], None],
    check: Callable[[Path], None],
) -> str:
    """Make a release of what `fill` puts into a directory, and the one being served. `check` opens it and raises where
    it must not be served. Publishing the same again after a kill ends with the same name and bytes."""
    aside = releases / f".{created.strftime(_TIME)}.writing"
    with publishing(releases):
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir()
            fill(aside)
            name = _describe(aside, created, fields)
            if not (releases / name).exists():  # else killed between its rename and CURRENT
                sync_tree(aside)
                check(aside)
                aside.rename(releases / name)
                sync(releases)
            _point_to(releases, name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return name


def _describe(directory: Path, created: datetime, fields: Mapping[str, Any]) -> str:
    """Write the manifest; returns the name that goes with it."""
    described = {
        "format": FORMAT,
        "version": VERSION,
        "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        **fields,
        "files": describe_files(directory),
    }
    data = (json.dumps(described, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
    (directory / MANIFEST).write_bytes(data)
    return f"{created.strftime(_TIME)}-{hashlib.sha256(data).hexdigest()[:12]}"


def read_release(path: Path, verify: bool = True) -> dict[str, Any]:
    """The manifest of a release whose files are all there; with `verify` also unchanged since it was published."""
    if not path.is_dir():
        raise ReleaseError(f"{path}: no such release")
    try:
        data = (path / MANIFEST).read_bytes()
        manifest = json.loads(data)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path / MANIFEST}: not the manifest of a release ({error})") from error
    if is_name(path.name) and not path.name.endswith(hashlib.sha256(data).hexdigest()[:12]):
        raise ModelError(f"{path / MANIFEST}: does not go with the release's name: it was damaged or changed")
    if not isinstance(manifest, dict) or (manifest.get("format"), manifest.get("version")) != (FORMAT, VERSION):
        raise ModelError(f"{path / MANIFEST}: not a release of format version {VERSION}, which this xreg reads")
    check_files(path, manifest.get("files"), verify)
    return manifest


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def listing(releases: Path) -> list[str]:
    """All releases, oldest first."""
    return sorted(path.name for path in releases.iterdir() if is_name(path.name) and path.is_dir())


def current(releases: Path) -> str | None:
    """The release being served, or None where nothing was published yet."""
    if not releases.is_dir():
        raise ReleaseError(f"{releases}: no such directory")
    try:
        name = (releases / _CURRENT).read_text().strip()
    except FileNotFoundError:
        return None
    if not is_name(name) or not (releases / name).is_dir():
        raise ReleaseError(
            f"{releases / _CURRENT} says {name[:80]!r}, which is no release here; `xreg rollback` chooses one"
        )
    return name


def roll_back(releases: Path, to: str | None = None) -> tuple[str | None, str]:
    """Serve the release before the current one, or the one named; returns (what was served, what is served now)."""
    with publishing(releases):
        names = listing(releases)
        try:
            served = current(releases)
        except ReleaseError:  # CURRENT is broken: this is how it is mended
            served = None
        if to is None:
            to = _before(releases, names, served)
            if to is None:
                raise ReleaseError(f"{releases}: there is no release before {served or 'the current one'}")
        if to not in names:
            raise UsageError(f"{to!r} is no release in {releases}; `xreg releases` lists them")
        read_release(releases / to)
        _point_to(releases, to)
    return served, to


def retain(releases: Path, keep: int, days: float | None, now: datetime) -> list[str]:
    """Remove releases beyond the newest `keep` and, if given, older than `days`; never the one being served or the one
    before it. Returns what was removed."""
    with publishing(releases):
        names, served = listing(releases), current(releases)
        safe = {served, _before(releases, names, served)}
        removed = []
        for position, name in enumerate(names):
            old = days is not None and now - created_at(name) > timedelta(days=days)
            if name not in safe and (old or len(names) - position > keep):
                _remove(releases, name)
                removed.append(name)
        for leftover in (*releases.glob(".*.removing"), *releases.glob(".*.writing")):  # of publishers that died
            shutil.rmtree(leftover, ignore_errors=True)
    return removed


def _before(releases: Path, names: list[str], served: str | None) -> str | None:
    """What was served before: the parent that the release names, or else the next older one that is there."""
    older = [name for name in names if served is None or name < served]
    try:
        parent = json.loads((releases / served / MANIFEST).read_bytes()).get("parent") if served else None
    except (OSError, ValueError, AttributeError):
        parent = None
    return parent if parent in older else older[-1] if older else None


def created_at(name: str) -> datetime:
    return datetime.strptime(name.rpartition("-")[0], _TIME).replace(tzinfo=UTC)


def _remove(releases: Path, name: str) -> None:
    """Take the name away before the contents: a kill in between leaves no half release."""
    aside = releases / f".{name}.removing"
    (releases / name).rename(aside)
    shutil.rmtree(aside)


def _point_to(releases: Path, name: str) -> None:
    aside = releases / f".{_CURRENT}.writing"
    aside.write_text(f"{name}\n")
    sync(aside)
    aside.replace(releases / _CURRENT)
    sync(releases)


def serve(releases: Path, name: str) -> None:
    """Make a release that is there the one being served; the caller holds `publishing`."""
    _point_to(releases, name)


def link(source: Path, target: Path) -> None:
    """The same file, or the same files of a directory, under another name, without copying them; where the file system
    has no links, copies."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            link(path, target / path.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
