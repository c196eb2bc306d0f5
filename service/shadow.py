"""A release that is tried before it serves: some requests are answered by it too, off their way, and compared.

A request is offered after its answer was sent, so nobody waits for the shadow. It works in a thread of its own; where
it falls behind, what is offered is dropped and counted. What is counted is how far the answers agree: the share of
their ads that both have. The thread has no lower priority than others: one that holds the interpreter's lock and is
kept waiting by the operating system would keep all others waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from core.errors import XregError
from core.served import Found
from service.answers import ask, beam_of
from service.holder import Release, open_release
from service.problems import RefusedError
from service.reading import read_predict
from service.settings import Settings
from service.telemetry import Telemetry

_MOST = 256  # offers that wait
_LOOK = 0.1  # seconds


class Offer(NamedTuple):
    """A request, who answered it, and what."""

    body: bytes
    release: Release
    found: Found


class Shadow:
    """The release that is tried."""

    def __init__(self, settings: Settings, name: str, telemetry: Telemetry) -> None:
        self._path, self._share, self._telemetry = settings.releases / name, settings.shadow_share, telemetry
        self._offers = deque[Offer]()
        self._release: Release | None = None
        self._thread = ThreadPoolExecutor(1, "shadow")

    def offer(self, body: bytes, release: Release, found: Found) -> None:
        """A request that was answered; a share of them is taken."""
        if self._release is None or random.random() >= self._share:
            return
        if len(self._offers) >= _MOST:
            self._telemetry.counts.add("xreg_shadow", "dropped")
            return
        self._offers.append(Offer(body, release, found))

    async def run(self) -> None:
        """Open the release, and compare until cancelled; one that cannot be opened is said and left alone."""
        loop = asyncio.get_running_loop()
        try:
            self._release = await loop.run_in_executor(self._thread, open_release, self._path)
        except Exception as error:  # whatever a damaged release leads to, the one being served goes on
            cause = str(error) if isinstance(error, XregError) else f"{type(error).__name__}: {error}"
            self._telemetry.log("shadow refused", refused=self._path.name, cause=cause)
            return
        self._telemetry.log("shadow loaded", shadow=self._path.name)
        while True:
            await asyncio.sleep(_LOOK)
            while self._offers:
                offer = self._offers.popleft()
                overlap = await loop.run_in_executor(self._thread, self._compared, self._release, offer)
                self._telemetry.counts.add("xreg_shadow", "failed" if overlap is None else "compared")
                if overlap is not None:
                    self._telemetry.counts.observe("xreg_shadow_overlap", [overlap])

    def _compared(self, shadow: Release, offer: Offer) -> float | None:
        """The share of the ads that both answer; None where the shadow cannot answer, say for features it lacks."""
        try:
            asked = read_predict(offer.body)
            found = ask(shadow, asked, beam_of(shadow, asked))
        except (RefusedError, XregError):
            return None
        given, tried = _ids(offer.release, offer.found), _ids(shadow, found)
        return len(given & tried) / max(len(given), len(tried)) if given or tried else 1.0


def _ids(release: Release, found: Found) -> set[str]:
    return {release.ad_id(ad) for ad in found.merged.ads.tolist()}


def shadow_of(settings: Settings, telemetry: Telemetry) -> Shadow | None:
    return None if settings.shadow is None else Shadow(settings, settings.shadow, telemetry)
