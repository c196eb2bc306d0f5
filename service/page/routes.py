"""GET / and GET /docs, and the few files they are made of.

The files are read once and served from memory by their names, so no path of a request ever meets the disk. A page may
load nothing from elsewhere, run no inline script and be framed by nobody: its policy says so, and browsers see to it.
"""

from __future__ import annotations

import asyncio
import hashlib
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from service.exchange import RELEASE
from service.holder import Holder, Release
from service.page.examples import examples
from service.problems import RefusedError, problem
from service.schemas import encode

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_PAGES = {"/": "index.html", "/docs": "docs.html"}
_PARTS = ("style.css", "make.js", "calls.js", "rows.js", "release.js", "page.js", "docs.js")


class Static(NamedTuple):
    """A file, ready to be sent."""

    body: bytes
    headers: dict[str, str]

    async def answer(self, request: Request) -> Response:
        """The file, or 304 to whoever has it."""
        known = request.headers.get("if-none-match", "")
        if self.headers["ETag"] in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return Response(status_code=304, headers=self.headers)
        return Response(self.body, headers=self.headers)


def _static(name: str) -> Static:
    body = (files(__package__) / name).read_bytes()
    headers = {
        "Content-Type": _KINDS[name.rpartition(".")[2]],
        "ETag": f'"{hashlib.sha256(body).hexdigest()[:16]}"',
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",  # a query stands in the page's address
        "Content-Security-Policy": _POLICY,
    }
    return Static(body, headers)


def page_routes(holder: Holder) -> APIRouter:
    """The pages, their parts, and the queries that the empty page offers."""
    routes = APIRouter(include_in_schema=False)
    parts = {name: _static(name) for name in _PARTS}
    kept = dict[str, bytes]()  # of one release, by its name: the release itself must be free to go

    async def part(name: str, request: Request) -> Response:
        if name not in parts:
            raise RefusedError(problem(404, "not-found", "the page has no such file"))
        return await parts[name].answer(request)

    async def begin_with(request: Request) -> Response:
        release = holder.pinned()
        request.scope[RELEASE] = release.name
        body = kept.get(release.name)
        if body is None:
            body = await asyncio.to_thread(_proposed, release)
            kept.clear()
            kept[release.name] = body
        return Response(body, media_type="application/json")

    for path, name in _PAGES.items():
        routes.add_api_route(path, _static(name).answer, methods=["GET", "HEAD"])
    routes.add_api_route("/page/examples", begin_with)
    routes.add_api_route("/page/{name}", part, methods=["GET", "HEAD"])
    return routes


def _proposed(release: Release) -> bytes:
    return encode({"release": release.name, "queries": examples(release.served)})
