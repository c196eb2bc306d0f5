"""How many requests are worked on or wait, and what the rest is told.

The kernel runs on the event loop, so what waits are requests that have arrived whole. Each takes a place when its last
byte is read (service/protocol.py) and gives it back with its answer. Past the limit a request is refused at once, which
costs a tenth of an answer; a queue that grows would make everybody late. Before that, pressure narrows the beam.
"""

from __future__ import annotations

from time import perf_counter

from service.exchange import PROBLEM, request_id_of
from service.problems import RefusedError, problem
from service.schemas import encode
from service.telemetry import Telemetry

RETRY_AFTER = ((b"retry-after", b"1"),)
REFUSED = "xreg.refused"  # in a request's scope: there was no place for it
_EASY = 0.5  # share of the places up to which nobody narrows anything
_NARROWEST = 0.25


class Admission:
    """Places for so many requests at once."""

    def __init__(self, most: int, telemetry: Telemetry) -> None:
        self._most, self._taken, self._telemetry = most, 0, telemetry
        telemetry.in_flight = lambda: self._taken
        detail = f"{most} requests are being worked on; try again in a moment"
        self._overloaded = problem(503, "overloaded", detail)
        body = encode(self._overloaded)
        self._head = (
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: %s\r\ncontent-length: %d\r\nretry-after: 1\r\n"
            b"server-timing: total;dur=0\r\n" % (PROBLEM, len(body))
        )
        self._body = b"\r\n\r\n" + body

    @property
    def full(self) -> bool:
        return self._taken >= self._most

    def enter(self) -> bool:
        """Take a place; whoever gets one gives it back with `leave`."""
        if self._taken >= self._most:
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        self._taken -= 1

    def narrowed(self, beam: int) -> int:
        """The beam that pressure leaves: all of it while half of the places are free, a quarter when none is."""
        pressure = self._taken / self._most
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
        began = perf_counter()
        who = b"x-request-id: " + request_id_of(given_id)
        where = b"" if release is None else b"\r\nx-release: " + release.encode()
        self._telemetry.note_refused(perf_counter() - began)
        return self._head + who + where + self._body
