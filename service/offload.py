"""Work that takes milliseconds: on a thread, so that the event loop goes on; a bounded number waits.

One thread: two would contend with the event loop for the interpreter without being faster together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from service.admission import RETRY_AFTER
from service.problems import RefusedError, problem
from service.telemetry import Telemetry

T = TypeVar("T")


class Offload:
    """A thread and a short queue before it."""

    def __init__(self, most: int, telemetry: Telemetry) -> None:
        self._most, self._taken, self._telemetry = most, 0, telemetry
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="offload")

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns; refused at once where too much waits already."""
        if self._taken >= self._most:
            self._telemetry.shed("offload")
            detail = f"{self._most} long requests are being worked on; try again in a moment"
            raise RefusedError(problem(503, "overloaded", detail), RETRY_AFTER)
        self._taken += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._taken -= 1
