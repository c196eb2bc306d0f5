"""uvicorn's HTTP protocol with two changes that a busy service needs.

An answer is written in one piece. uvicorn writes head and body separately: two system calls, two packets and two
wake-ups of the client where one would do.

A request for /predict takes a place when it is whole (service/admission.py). Where there is none, it is refused before
anything is made of it: no scope, no task, no parsing. At twice the load that a worker can bear, refusing is half of all
work, and what it takes is missing for answers.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.admission import REFUSED
from service.app import Service
from service.predict import ROUTE

_MOST = 1 << 16
_HEAD = f"POST {ROUTE} HTTP/1.1\r\n".encode()
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})\r\n", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"\r\nx-request-id: *([^\r\n]*)\r\n", re.IGNORECASE)
_SPECIAL = re.compile(rb"\r\n(?:connection|transfer-encoding|expect|upgrade):", re.IGNORECASE)


class Whole:
    """Stands before a transport: what is written waits for the rest of the answer."""

    __slots__ = ("_parts", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._parts, self._size = transport, list[bytes](), 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self.flush()

    def flush(self) -> None:
        if self._parts:
            self._transport.write(b"".join(self._parts))
            self._parts, self._size = [], 0

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """One connection; the application is a service.app.Service."""

    _whole: Whole
    _places = 0  # that requests of this connection hold: more than one only where they are pipelined

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        service = self.config.loaded_app
        assert isinstance(service, Service)
        self._holder, self._admission = service.holder, service.admission

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._whole = Whole(transport)
        self.transport = self._whole  # type: ignore[assignment]

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
        self._whole.flush()
        if self._places:
            self._places -= 1
            self._admission.leave()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        while self._places:
            self._places -= 1
            self._admission.leave()
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
        self._unset_keepalive_if_required()
        self._whole.write(self._admission.refused_at_once(given[1] if given else None, self._holder.name))
        self._whole.flush()
        return True
