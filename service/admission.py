"""How many requests are worked on or wait, and what the rest is told.

The kernel runs on the event loop, so what waits are requests whose body has arrived. Each takes a place and then lets
the loop go round once: all that arrived together are counted before any of them is worked on. Past the limit a request
is refused at once, which costs little; a queue that grows would make everybody late.
"""

from __future__ import annotations

from service.problems import RefusedError, problem
from service.telemetry import Telemetry

RETRY_AFTER = ((b"retry-after", b"1"),)


class Admission:
    """Places for so many requests at once."""

    def __init__(self, most: int, telemetry: Telemetry) -> None:
        self._most, self._taken, self._telemetry = most, 0, telemetry
        telemetry.in_flight.set_function(lambda: self._taken)

    def enter(self) -> None:
        """Take a place; whoever does gives it back with `leave`."""
        if self._taken >= self._most:
            self._telemetry.shed("concurrency")
            detail = f"{self._most} requests are being worked on; try again in a moment"
            raise RefusedError(problem(503, "overloaded", detail), RETRY_AFTER)
        self._taken += 1

    def leave(self) -> None:
        self._taken -= 1
