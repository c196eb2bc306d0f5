"""How many requests are worked on or wait, and what the rest is told.

The kernel runs on the event loop, so what waits are requests that have arrived whole. Each takes a place when its last
byte is read (service/protocol.py) and gives it back with its answer. Past the limit a request is refused at once, which
costs a tenth of an answer; a queue that grows would make everybody late. Before that, pressure narrows the beam.

A burst finds all places. Where somebody was refused in the last turns (service/turns.py) the load is more than a
burst. Then a quarter of the places is left, since a long queue would not be used up and everybody would just wait in
it; all beams are narrow, and the table alone answers queries that it has, so that as many as possible are answered. A
moment in which nobody asks ends that: what comes then is a burst again.
"""

from __future__ import annotations

from time import monotonic

from service.exchange import PROBLEM, release_line, request_id_of
from service.problems import RefusedError, problem
from service.schemas import encode
from service.telemetry import Telemetry

RETRY_AFTER = ((b"retry-after", b"1"),)
REFUSED = "xreg.refused"  # in a request's scope: there was no place for it
_EASY = 0.5  # share of the places up to which nobody narrows anything
_NARROWEST = 0.25
_WARY = 16  # ends of turns, and of all places taken, without a refusal after which all places are there again
_MOMENT = 1e-3  # seconds in which nobody asks, after which they are too
_STANDING, _LEAST = 4, 8  # the part of the places that is left where refusing goes on; and how many at least


class Admission:
    """Places for so many requests at once."""

    def __init__(self, most: int, telemetry: Telemetry) -> None:
        self._most, self._taken, self._telemetry = most, 0, telemetry
        self._limit, self._refused, self._wary, self._done = most, False, 0, 0.0
        telemetry.in_flight = lambda: self._taken
        detail = f"too many requests at once, {most} at most; try again in a moment"
        self._overloaded = problem(503, "overloaded", detail)
        self._body = encode(self._overloaded)
        self._head = (
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: %s\r\ncontent-length: %d\r\nretry-after: 1\r\n"
            b"server-timing: total;dur=0\r\n" % (PROBLEM, len(self._body))
        )

    @property
    def full(self) -> bool:
        return self._taken >= self._limit

    @property
    def lasting(self) -> bool:
        """Whether somebody was refused in the last turns, and somebody waits now."""
        return self._wary > 0 and self._taken > 1

    def enter(self) -> bool:
        """Take a place; whoever gets one gives it back with `leave`."""
        if self._wary and not self._taken and monotonic() - self._done > _MOMENT:
            self._wary, self._limit, self._refused = 0, self._most, False
        if self._taken >= self._limit:
            self._refused = True
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        self._taken -= 1
        if not self._taken:
            self.end_turn()

    def end_turn(self) -> None:
        """All that were let in together are answered, or those of them that wait for nothing else."""
        self._wary = _WARY if self._refused else max(0, self._wary - 1)
        self._limit = min(self._most, max(_LEAST, self._most // _STANDING)) if self._wary else self._most
        self._refused, self._done = False, monotonic()

    def narrowed(self, beam: int) -> int:
        """The beam that pressure leaves: all of it while half of the places are free, a quarter when none is."""
        pressure = 1.0 if self.lasting else self._taken / self._most
        if pressure <= _EASY or self._taken <= 1:
            return beam
        share = 1 - (1 - _NARROWEST) * (pressure - _EASY) / (1 - _EASY)
        return max(1, int(beam * share))

    def refusal(self) -> RefusedError:
        """What a request is told that found no place."""
        self._telemetry.shed("concurrency")
        return RefusedError(self._overloaded, RETRY_AFTER)

    def refused_at_once(self, given_id: bytes | None, release: str | None) -> bytes:
        """The same as the bytes of an answer, counted."""
        self._refused = True
        self._telemetry.note_refused()
        said = self._head, request_id_of(given_id), release_line(release) if release else b"", self._body
        return b"%sx-request-id: %s\r\n%s\r\n%s" % said
