"""What /predict is measured against, each a server of its own: `python -m bench.http_floors KIND PORT [RELEASE]`.

    echo      a bare ASGI application: msgspec in, orjson out, a constant answer of ten ads
    whole     the same, its answer written in one piece as the service does (uvicorn writes head and body apart)
    ask       echo, and it asks the release as the service does: the difference to `echo` is what engine and table
              take inside a server, where the rest of a request has used the caches
    fastapi   FastAPI and pydantic as their documentation begins, with the same constant answer
    raw       a protocol that answers with constant bytes: shows what the load generator can ask at most
    loop      no server: prints the CPU seconds of asking the release the queries on stdin, one after the other

All run under uvicorn with the settings of service/command.py (`raw`: under uvloop alone).
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import orjson
import uvicorn
import uvloop

RELEASE = "2026-01-01T00-00-00Z-000000000000"
ANSWER: dict[str, Any] = {
    "release": RELEASE,
    "degraded": False,
    "ads": [
        {"ad": f"ad{i:07}", "relevance": 0.04123456 / (i + 1), "source": "both", "rank_score": 0.04123456 / (i + 1)}
        for i in range(10)
    ],
    "reason": None,
}


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What the load generator sends."""

    query: str
    k: int = 10


_read = msgspec.json.Decoder(Asked).decode


def echo(served: Any = None) -> Any:
    """The bare application; with a release, it is asked too."""
    from core.served import Wanted

    async def application(scope: Any, receive: Any, send: Any) -> None:
        asked = _read((await receive())["body"])
        if served is not None:
            served.ask(asked.query, Wanted(asked.k))
        body = orjson.dumps(ANSWER)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return application


class Joined:
    """Stands before a transport: what is written waits until the answer is complete."""

    def __init__(self, transport: Any) -> None:
        self._transport, self._parts = transport, list[bytes]()

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def flush(self) -> None:
        self._transport.write(b"".join(self._parts))
        self._parts.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def whole() -> Any:
    """uvicorn's protocol, which writes an answer when it is complete."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Protocol(HttpToolsProtocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.transport = Joined(transport)  # type: ignore[assignment]

        def on_response_complete(self) -> None:
            self.transport.flush()  # type: ignore[attr-defined]
            super().on_response_complete()

    return Protocol


def fastapi() -> Any:
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Query(BaseModel):
        query: str
        k: int = 10

    class Ad(BaseModel):
        ad: str
        relevance: float
        source: str
        rank_score: float

    class Answer(BaseModel):
        release: str
        degraded: bool
        ads: list[Ad]
        reason: str | None

    app, constant = FastAPI(), Answer(**ANSWER)

    async def predict(asked: Query) -> Answer:
        return constant

    predict.__annotations__ = {"asked": Query, "return": Answer}  # the names are local
    app.post("/predict")(predict)
    return app


def opened(release: str) -> Any:
    """A release, its kernels loaded."""
    from core.served import Served, Wanted

    served = Served.open(Path(release), verify=False)
    served.engine.warm_up()
    served.ask("", Wanted())
    return served


class Raw(asyncio.Protocol):
    """Answers whatever comes in one piece."""

    BODY = orjson.dumps(ANSWER)
    DATA = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.DATA)


async def raw(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Raw, "127.0.0.1", port)
    await server.serve_forever()


def loop(release: str, queries: list[str]) -> float:
    """CPU seconds of asking, after the queries were asked once."""
    from core.served import Wanted

    served, wanted = opened(release), Wanted(10)
    seconds = 0.0
    for _ in range(2):
        start = process_time()
        for query in queries:
            served.ask(query, wanted)
        seconds = process_time() - start
    return seconds


def main(kind: str, port: str, release: str = "") -> None:
    if kind == "loop":
        print(loop(release, json.load(sys.stdin)))
    elif kind == "raw":
        uvloop.run(raw(int(port)))
    else:
        app = fastapi() if kind == "fastapi" else echo(opened(release) if kind == "ask" else None)
        uvicorn.run(
            app, host="127.0.0.1", port=int(port), loop="uvloop", http=whole() if kind == "whole" else "httptools",
            ws="none", lifespan="off", access_log=False, log_config=None, server_header=False, proxy_headers=False,
        )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
