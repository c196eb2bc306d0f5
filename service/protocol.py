"""uvicorn's HTTP protocol with three changes that a busy service needs.

An answer of /predict is written in one piece. uvicorn writes head and body separately: two system calls, two packets
and two wake-ups of the client where one would do.

A request for /predict takes a place when it is whole (service/admission.py). Where there is none, it is refused before
anything is made of it: no scope, no task, no parsing. At twice the load that a worker can bear, refusing is half of all
work, and what it takes is missing for answers.

Connections that nobody uses are closed by a look at all of them once a second, not by a timer that is set and cancelled
with every request.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from time import monotonic
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.admission import REFUSED
from service.app import Service
from service.exchange import WHOLE
from service.predict import ROUTE

_HEAD = f"POST {ROUTE} HTTP/1.1\r\n".encode()
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})\r\n", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"\r\nx-request-id: *([^\r\n]*)\r\n", re.IGNORECASE)
_SPECIAL = re.compile(rb"\r\n(?:connection|transfer-encoding|expect|upgrade):", re.IGNORECASE)


def write_whole(cycle: RequestResponseCycle, status: int, lines: bytes, body: bytes, closing: bool) -> bool:
    """An answer in one write, as uvicorn would give it in two; False where it must go the long way. `lines` of the head
    say the body's length, and that the connection ends if it is `closing`."""
    if cycle.disconnected or cycle.flow.write_paused:
        return False
    default = b"".join([b"%s: %s\r\n" % pair for pair in cycle.default_headers])
    if not (cycle.keep_alive or closing):
        lines += b"connection: close\r\n"
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"%s%s%s\r\n%s" % (STATUS_LINE[status], default, lines, body))
    cycle.message_event.set()
    if closing or not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


class Protocol(HttpToolsProtocol):
    """One connection; the application is a service.app.Service."""

    _places = 0  # that requests of this connection hold: more than one only where they are pipelined

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.config.loaded_app, Service)
        self._service = self.config.loaded_app
        self._holder, self._admission = self._service.holder, self._service.admission

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._service.connections.add(self)
        self._idle_since = monotonic()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["path"] == ROUTE and cycle.scope["method"] == "POST":
            cycle.scope[WHOLE] = partial(write_whole, cycle)  # type: ignore[literal-required]
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._admission.full and data.startswith(_HEAD) and self._is_idle() and self._refuses(data):
            return
        super().data_received(data)

    def on_message_complete(self) -> None:
        if self.scope["path"] == ROUTE and not self.cycle.response_complete:
            if self._admission.enter():
                self._places += 1
            else:
                self.scope[REFUSED] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn does it, without its timer."""
        if self._places:
            self._places -= 1
            self._admission.leave()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._idle_since = monotonic()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def close_if_idle(self, seconds: float) -> None:
        """Close a connection that nobody has used for so long."""
        if self._is_idle() and monotonic() - self._idle_since > seconds:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        while self._places:
            self._places -= 1
            self._admission.leave()
        self._service.connections.discard(self)
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuses(self, data: bytes) -> bool:
        """Refuse a request that is here whole and plain; any other goes the long way and is refused there."""
        end = data.find(b"\r\n\r\n")
        length = _LENGTH.search(data, 0, end + 2)
        if length is None or end + 4 + int(length[1]) != len(data) or _SPECIAL.search(data, 0, end + 2):
            return False
        given = _REQUEST_ID.search(data, 0, end + 2)
        self._idle_since = monotonic()
        self.transport.write(self._admission.refused_at_once(given[1] if given else None, self._holder.name))
        return True
