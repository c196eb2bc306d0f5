"""The release being served, and how another takes its place.

A new one is verified byte by byte in a process of its own (the first one here: nobody waits for answers yet), mapped
and warmed beside the old one in a thread; then one assignment on the event loop swaps them. A request takes `release`
once and so sees one release; the old mapping goes when the last request that holds it does. A release that cannot be
served is refused, logged and counted, and the old one goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from core.errors import XregError
from core.releases import created_at, current, read_release, roll_back
from core.served import Served, Wanted
from service.admission import RETRY_AFTER
from service.cache import AnswerCache
from service.exchange import RELEASE, Scope
from service.problems import RefusedError, cause_of, problem
from service.schemas import Reloaded
from service.telemetry import Telemetry
from service.verify import verify_elsewhere

_NOT_A_WORD = "\u2603"  # has no letter: the merge of nothing is compiled too
_KEPT = 65536


class Release(NamedTuple):
    """A release, opened and warm."""

    name: str
    served: Served
    created: datetime
    tabled: datetime  # when its table was filled
    figures: Mapping[str, float]
    ad_id: Callable[[int], str]  # the ids of ads that are answered often are kept
    answers: AnswerCache


def open_release(path: Path, cache: int = 0, verify: bool = True) -> Release:
    """Open a release, compile or load its kernels, and ask what it must know; `cache` answers are kept. `verify`: every
    byte is checked, unless that was done just now."""
    manifest = read_release(path, verify=False)
    golden, created = manifest.get("golden"), created_at(path.name)
    served = Served.open(path, verify)
    served.engine.warm_up()
    served.ask(_NOT_A_WORD, Wanted(rank="revenue"))  # makes the weights, here and not in a request
    served.check_golden(golden)
    tabled = datetime.fromisoformat(str(manifest.get("tabled", manifest["created"])))
    name_of = lru_cache(_KEPT)(served.catalogue.ids.name)
    return Release(path.name, served, created, tabled, manifest.get("figures", {}), name_of, AnswerCache(cache))


class Holder:
    """Holds one release; `release` is None until the first one is there."""

    def __init__(self, releases: Path, cache: int, telemetry: Telemetry) -> None:
        self.release: Release | None = None
        self.draining = False
        self._releases, self._cache, self._telemetry = releases, cache, telemetry
        self._refused: str | None = None  # what was refused last: the watcher does not try it again
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "opening")  # always the same: each thread would keep memory of its own

    @property
    def ready(self) -> bool:
        return self.release is not None and not self.draining

    def pinned(self, scope: Scope | None = None) -> Release:
        """The release that a request is answered from; its scope says so, for the answer's head."""
        if self.release is None:
            raise RefusedError(problem(503, "no-release", "there is no release to answer from yet"), RETRY_AFTER)
        if scope is not None:
            scope[RELEASE] = self.release.name
        return self.release

    async def reload(self, again: bool = True) -> Reloaded:
        """Serve what CURRENT says. `again`: also try what was refused before."""
        async with self._lock:
            return await self._follow(again)

    async def roll_back(self, to: str | None) -> Reloaded:
        """Serve an earlier release again: CURRENT is changed, then followed."""
        async with self._lock:
            before, after = await asyncio.to_thread(roll_back, self._releases, to)
            self._telemetry.log("rolled back", before=before, release=after)
            return await self._follow(again=True)

    async def _follow(self, again: bool) -> Reloaded:
        try:
            name = current(self._releases)
        except (XregError, OSError, ValueError) as error:
            return self._refuse("CURRENT", error, again)
        if name is None or (self.release is not None and name == self.release.name):
            self._refused = None
            return Reloaded("unchanged", self.name)
        if name == self._refused and not again:
            return Reloaded("refused", self.name)
        try:
            first = self.release is None
            if not first:
                await verify_elsewhere(self._releases / name)
            loop, path = asyncio.get_running_loop(), self._releases / name
            release = await loop.run_in_executor(self._thread, open_release, path, self._cache, first)
        except Exception as error:  # whatever a damaged release leads to, the old one goes on
            return self._refuse(name, error, again)
        self.release, self._refused = release, None
        self._telemetry.loaded(release.name, release.created, release.tabled)
        self._telemetry.log("release loaded", release=release.name)
        return Reloaded("loaded", release.name)

    async def watch(self, seconds: float) -> None:
        """Open what CURRENT names and notice when it names another, until cancelled; with 0 seconds just the first."""
        await self.reload()
        while seconds:
            await asyncio.sleep(seconds)
            await self.reload(again=False)

    @property
    def name(self) -> str | None:
        return None if self.release is None else self.release.name

    def _refuse(self, name: str, error: Exception, again: bool) -> Reloaded:
        cause = cause_of(error)
        mark = cause if name == "CURRENT" else name
        if again or mark != self._refused:
            self._telemetry.refused()
            self._telemetry.log("release refused", refused=name, cause=cause, release=self.name)
        self._refused = mark
        return Reloaded("refused", self.name, cause)
