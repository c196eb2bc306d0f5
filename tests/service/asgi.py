"""Requests to the application without a socket."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, NamedTuple

import msgspec

from service.app import Service

JSON = ((b"content-type", b"application/json"),)


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: Any


async def post(app: Service, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = JSON) -> Answer:
    """POST /predict; the body arrives in two pieces."""
    half = len(body) // 2
    pieces = [(body[:half], True), (body[half:], False)]
    sent = list[MutableMapping[str, Any]]()

    async def receive() -> MutableMapping[str, Any]:
        piece, more = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": more}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": "/predict", "headers": headers}, receive, send)
    start, end = sent
    return Answer(start["status"], dict(start["headers"]), msgspec.json.decode(end["body"]))
