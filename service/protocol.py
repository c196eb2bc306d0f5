"""uvicorn's HTTP protocol with four changes that a busy service needs.

An answer of /predict is written in one piece. uvicorn writes head and body separately: two system calls, two packets
and two wake-ups of the client where one would do.

A request for /predict takes a place when it is whole (service/admission.py). Where there is none, it is refused before
anything is made of it: no scope, no task, no parsing. At twice the load that a worker can bear, refusing is half of all
work, and what it takes is missing for answers.

A request for /predict that comes in one piece, as nearly all do, is answered without a task (service/turns.py).

Connections that nobody uses are closed by a look at all of them once a second, not by a timer that is set and cancelled
with every request.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from time import monotonic, perf_counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.admission import REFUSED
from service.app import Service
from service.exchange import ARRIVED, PROBLEM, WHOLE, request_id_of
from service.predict import ROUTE
from service.problems import problem
from service.schemas import encode

_HEAD = f"POST {ROUTE} HTTP/1.1\r\n".encode()
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})\r\n", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"\r\nx-request-id: *([^\r\n]*)\r\n", re.IGNORECASE)
_SPECIAL = re.compile(rb"\r\n(?:connection|transfer-encoding|expect|upgrade):", re.IGNORECASE)
_H2C = re.compile(rb"\r\nupgrade:(?= *h2c\r\n)", re.IGNORECASE)
_MOST_HEAD = 1 << 16  # bytes of a request's head, beyond those of its first packet
_MOST_UNREAD = 1 << 20  # bytes of answers that a client may leave unread


def write_whole(cycle: RequestResponseCycle, status: int, lines: bytes, body: bytes, closing: bool) -> bool:
    """An answer in one write, as uvicorn would give it in two; False where the client is gone. `lines` of the head say
    the body's length, and that the connection ends if it is `closing`. Nobody waits for a client that does not read:
    what it leaves unread is kept, up to a limit, and then its connection ends."""
    if cycle.disconnected:
        return False
    if cycle.transport.get_write_buffer_size() > _MOST_UNREAD:
        cycle.transport.abort()
    default = _lines_of(cycle.default_headers)
    if not (cycle.keep_alive or closing):
        lines += b"connection: close\r\n"
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"%s%s%s\r\n%s" % (STATUS_LINE[status], default, lines, body))
    cycle.message_event.set()
    if closing or not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


class _Default:
    """uvicorn's own headers, the date: made anew once a second, and written with every answer."""

    headers: list[tuple[bytes, bytes]] | None = None
    lines = b""


def _lines_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    if _Default.headers is not headers:
        _Default.headers, _Default.lines = headers, b"".join([b"%s: %s\r\n" % pair for pair in headers])
    return _Default.lines


class Protocol(HttpToolsProtocol):
    """One connection; the application is a service.app.Service."""

    _places = 0  # that requests of this connection hold: more than one only where they are pipelined
    _between = True  # nothing of a next request has been read
    _head_size = 0
    _reading = False  # what the parser finds was sent just now
    _held: tuple[RequestResponseCycle, Any] | None = None  # a request whose body may come with its head

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
            if not cycle.more_body:  # it waited behind another one of this connection
                self._service.turns.add(cycle.run_asgi(app))
                return
            if self._reading:
                self._held = cycle, app
                return
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._between:
            if self._admission.full and data.startswith(_HEAD) and self._is_idle() and self._refuses(data):
                return
            if b"h2c" in data:  # an offer that need not be taken; the parser would stop at it, before the body
                data = _H2C.sub(b"\r\nx-upgrade:", data, 1)
        self._reading = True
        super().data_received(data)
        self._reading = False
        if self._held is not None:  # its body has not come yet
            super()._start_asgi_task(*self._held)
            self._held = None
        if not self._between and (self.cycle is None or self.cycle.scope is not self.scope):  # in the middle of a head
            self._head_size += len(data)
            if self._head_size > _MOST_HEAD:
                self._end(431, "head-too-large", f"the head of a request may have {_MOST_HEAD} bytes at most")
        else:
            self._head_size = 0

    def on_message_begin(self) -> None:
        self._between = False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._between = True
        self.scope[ARRIVED] = perf_counter()  # type: ignore[literal-required]
        if self.scope["path"] == ROUTE and not self.cycle.response_complete:
            if self._admission.enter():
                self._places += 1
                self.cycle.on_response = self._on_placed_response
            else:
                self.scope[REFUSED] = True  # type: ignore[literal-required]
        super().on_message_complete()
        if self._held is not None and self._held[0] is self.cycle:
            self._service.turns.add(self.cycle.run_asgi(self._held[1]))
            self._held = None

    def _on_placed_response(self) -> None:
        if self._places:  # else the connection was lost meanwhile, and its places with it
            self._places -= 1
            self._admission.leave()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        """As uvicorn does it, without its timer."""
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

    def send_400_response(self, msg: str) -> None:
        self._end(400, "http", msg)

    def _end(self, status: int, kind: str, detail: str) -> None:
        """A problem that no request can be made of, and the end of the connection."""
        body = encode(problem(status, kind, detail))
        said = STATUS_LINE[status], PROBLEM, len(body), request_id_of(None), body
        self.transport.write(
            b"%scontent-type: %s\r\ncontent-length: %d\r\nx-request-id: %s\r\nconnection: close\r\n\r\n%s" % said
        )
        self.transport.close()

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
