"""One request and its answer: what every answer carries, whichever route gives it.

X-Request-Id comes back as the client sent it, if it is one; X-Release says what answered; Server-Timing how long it
took. A client's `traceparent` goes into the log.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from itertools import count
from time import perf_counter
from typing import Any

from fastapi import Request, Response

from service.problems import Problem, RefusedError, problem
from service.schemas import encode
from service.settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

Whole = Callable[[int, bytes, bytes, bool], bool]
WHOLE = "xreg.whole"  # in a request's scope: writes status, lines of the head and body at once; says whether it could
ARRIVED = "xreg.arrived"  # in a request's scope: when its last byte was read
RELEASE = "xreg.release"  # in a request's scope: what a route answered from
CLOSE: tuple[tuple[bytes, bytes], ...] = ((b"connection", b"close"),)  # the connection ends with the answer
JSON, PROBLEM = b"application/json", b"application/problem+json"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_OURS, _numbers = os.urandom(8).hex().encode(), count(1)


def request_id_of(given: bytes | None) -> bytes:
    """The id that a client gave, if it is one, or one of ours."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return b"%s-%x" % (_OURS, next(_numbers))


class DisconnectedError(Exception):
    """The client went away before its request was whole."""


class Exchange:
    """A request's headers, its id, and when it came."""

    __slots__ = ("answered", "closing", "headers", "release", "request_id", "started", "status", "timing", "whole")

    def __init__(self, scope: Scope, release: str | None, closing: bool) -> None:
        self.started: float = scope.get(ARRIVED) or perf_counter()
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.request_id = request_id_of(self.headers.get(b"x-request-id"))
        self.release, self.closing = release, closing
        self.whole: Whole | None = scope.pop(WHOLE, None)
        self.status, self.answered = 500, False
        self.timing = b""

    @property
    def seconds(self) -> float:
        return perf_counter() - self.started

    @property
    def traceparent(self) -> str | None:
        given = self.headers.get(b"traceparent", b"")
        return given.decode() if _TRACEPARENT.fullmatch(given) else None

    def about(self) -> dict[str, Any]:
        """For the log."""
        return {
            "request": self.request_id.decode(),
            "trace": self.traceparent,
            "release": self.release,
            "status": self.status,
            "seconds": round(self.seconds, 6),
        }

    def own_lines(self) -> bytes:
        """What the head of every answer carries, as lines."""
        said = self.request_id, self.timing, 1e3 * (perf_counter() - self.started)
        lines = b"x-request-id: %s\r\nserver-timing: %stotal;dur=%.3f\r\n" % said
        if self.release:
            lines += release_line(self.release)
        return lines + b"connection: close\r\n" if self.closing else lines  # the client looks for another worker

    def own_headers(self) -> list[tuple[bytes, bytes]]:
        return _pairs(self.own_lines())

    async def answer(self, send: Send, status: int, kind: bytes, body: bytes, more: bytes = b"") -> None:
        """In one write where the server can; `more` lines of the head."""
        self.status, self.answered = status, True
        lines = b"content-type: %s\r\ncontent-length: %d\r\n%s%s" % (kind, len(body), self.own_lines(), more)
        if self.whole is None or not self.whole(status, lines, body, self.closing):
            await send({"type": "http.response.start", "status": status, "headers": _pairs(lines)})
            await send({"type": "http.response.body", "body": body})

    async def refuse(self, send: Send, said: Problem, more: Headers = ()) -> None:
        if more is CLOSE:
            self.closing, more = True, ()
        lines = b"".join(b"%s: %s\r\n" % pair for pair in more)
        await self.answer(send, said.status, PROBLEM, encode(said), lines)


@lru_cache(8)
def release_line(release: str) -> bytes:
    return b"x-release: %s\r\n" % release.encode()


def _pairs(lines: bytes) -> list[tuple[bytes, bytes]]:
    parted = (line.partition(b": ") for line in lines.split(b"\r\n")[:-1])
    return [(name, value) for name, _, value in parted]


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, most: int, seconds: float) -> bytes:
    """The whole body, `most` bytes at most: by what the header says, and by counting. It must come in time."""
    said = headers.get(b"content-length", b"0")
    if len(said) > 12 or int(said) > most:  # the server let digits through only
        raise RefusedError(too_large(most))
    if asyncio.current_task() is None:  # it is here already (service/turns.py)
        body = await _all(receive, most)
    else:
        try:
            async with asyncio.timeout(seconds):
                body = await _all(receive, most)
        except TimeoutError as error:
            detail = f"the body did not arrive within {seconds:g} s"
            raise RefusedError(problem(408, "too-slow", detail), CLOSE) from error
    if len(body) > most:
        raise RefusedError(too_large(most))
    return body


async def _all(receive: Receive, most: int) -> bytes:
    parts, more = list[bytes](), True
    while more and most >= 0:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        parts.append(message.get("body", b""))
        most -= len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts)


def too_large(most: int) -> Problem:
    return problem(413, "too-large", f"a body may have {most} bytes at most")


def check_kind(content_type: bytes) -> None:
    kind = content_type if content_type == JSON else content_type.partition(b";")[0].strip().lower()
    if kind != JSON:
        detail = f"Content-Type must be application/json, got {kind.decode('latin-1')[:80] or 'none'}"
        raise RefusedError(problem(415, "content-type", detail))


async def body_of(request: Request, settings: Settings, most: int) -> bytes:
    """The body of a request that FastAPI routes."""
    return await read_body(dict(request.scope["headers"]), request.receive, most, settings.body_seconds)


async def json_body(request: Request, settings: Settings, most: int) -> bytes:
    check_kind(request.headers.get("content-type", "").encode("latin-1"))
    return await body_of(request, settings, most)


def json_response(body: Any, status: int = 200) -> Response:
    return Response(encode(body), status, media_type="application/json")
