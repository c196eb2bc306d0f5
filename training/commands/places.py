"""Places that may be on a store: what commands read is fetched, what they make is stored when it is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from core.errors import ResumeError
from training.display import progress_bar

OnPublished = Callable[[str, str | None], None]


class _Place(click.ParamType[Any]):
    """A local path, or the address of something on a store."""

    name = "path or address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        text = str(value)
        return text if "://" in text else Path(text)


PLACE = _Place()


@contextmanager
def _moving(what: str, place: str) -> Iterator[Callable[[int, int], None]]:
    with progress_bar(what, "bytes") as bar:
        task = bar.add_task(place.partition("?")[0], total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or 1)


def fetched(place: Path | str) -> Path:
    """What is there, as local files."""
    if isinstance(place, Path):
        return place
    from core.storage import fetch

    with _moving("fetching", place) as on_bytes:
        return fetch(place, on_bytes)


@contextmanager
def left_at(place: Path | str, resume: bool = False) -> Iterator[Path]:
    """A local path to write to; what is there at the end goes to its place. With `resume`, what an earlier run finished
    but could not store is stored, and the command ends."""
    if isinstance(place, Path):
        yield place
        return
    from core.storage import Leaving

    leaving = Leaving(place)
    if leaving.ready and not resume:
        raise ResumeError(f"{leaving.out} is finished but was not stored; go on with --resume, or remove it")
    if not leaving.ready:
        yield leaving.out
    with _moving("storing", place) as on_bytes:
        leaving.store(on_bytes)
    if leaving.ready:
        raise SystemExit(0)


class ReleasesHere(NamedTuple):
    """A directory of releases and, where it mirrors a store, what publishes there and removes old ones."""

    path: Path
    on_published: OnPublished
    retain: Callable[[int, float | None], list[str]]


@contextmanager
def releases_at(place: Path | str) -> Iterator[ReleasesHere]:
    """The directory, or a mirror of the store with the release being served there."""
    from core.releases import retain

    if isinstance(place, Path):
        here = place
        yield ReleasesHere(
            here, lambda name, parent: None, lambda keep, days: retain(here, keep, days, datetime.now(UTC))
        )
        return
    from core.remote_releases import CURRENT, pull, push, remote_current, remote_retain
    from core.storage import Store, place_of

    store, here = Store(place), place_of(place) / "releases"
    here.mkdir(parents=True, exist_ok=True)
    if remote_current(store) is None:
        (here / CURRENT).unlink(missing_ok=True)  # of a run that did not come to its end
    else:
        with _moving("fetching", place) as on_bytes:
            pull(store, here, None, on_bytes)

    def retain_both(keep: int, days: float | None) -> list[str]:
        retain(here, 2, None, datetime.now(UTC))
        return remote_retain(store, keep, days, datetime.now(UTC))

    yield ReleasesHere(here, lambda name, parent: push(store, here, name, parent), retain_both)
