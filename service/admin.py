"""What is served and what there is; with a token, to reload and to roll back. Also the table's rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from core.errors import XregError
from core.releases import current, listing, read_release
from core.text import normalise
from service.access import needs_token, nothing_here
from service.exchange import body_of
from service.holder import Holder
from service.openapi import answer, answer_or_refusal, refusal, request_body
from service.problems import RefusedError, problem
from service.reading import read_rollback
from service.schemas import (
    OneRelease,
    Releases,
    Reloaded,
    RollbackRequest,
    TableEntry,
    TableRow,
    encode,
)
from service.settings import Settings


def _json(body: Any, status: int = 200) -> Response:
    return Response(encode(body), status, media_type="application/json")


def release_routes(settings: Settings, holder: Holder) -> APIRouter:
    """What there is, and the table."""
    routes = APIRouter(tags=["releases"])

    @routes.get("/releases", response_class=Response, responses={200: answer(Releases)})
    async def releases() -> Response:
        """The releases, oldest first; which one CURRENT names, and which one answers here."""
        return _json(await asyncio.to_thread(_listed, settings.releases, holder.name))

    @routes.get(
        "/table/{query:path}",
        response_class=Response,
        responses={
            200: answer(TableRow),
            404: refusal("the table does not have the query"),
            503: refusal("no release"),
        },
    )
    async def table(query: str) -> Response:
        """The table's row of a query."""
        release = holder.pinned()
        canonical = normalise(query)
        row = release.served.table.get(canonical)
        if row is None:
            raise RefusedError(
                problem(404, "not-in-table", f"{canonical!r:.200} is not in the table of {release.name}")
            )
        entries = zip(row.ads.tolist(), row.scores.tolist(), strict=True)
        return _json(
            TableRow(release.name, canonical, [TableEntry(release.ad_id(ad), round(x, 8)) for ad, x in entries])
        )

    return routes


def _listed(directory: Path, served: str | None) -> Releases:
    """Manifests are read, files not verified; a release whose manifest cannot be read is no release."""
    found = list[OneRelease]()
    for name in listing(directory):
        try:
            manifest = read_release(directory / name, verify=False)
        except XregError:
            continue
        created, kind, figures = str(manifest.get("created")), str(manifest.get("kind")), manifest.get("figures", {})
        found.append(OneRelease(name, created, kind, name == served, figures))
    try:
        named = current(directory)
    except (XregError, ValueError):  # a broken CURRENT may hold anything
        named = None
    return Releases(named, served, found)


def admin_routes(settings: Settings, holder: Holder) -> APIRouter:
    """Needs `Authorization: Bearer`; not there (404) where no token is configured."""
    token = settings.admin_token
    admitted = nothing_here if token is None else needs_token(token)
    routes = APIRouter(
        prefix="/admin",
        tags=["admin"],
        dependencies=[Depends(admitted)],
        responses={401: refusal("no token, or a wrong one"), 404: refusal("no token is configured")},
    )
    outcomes: dict[int | str, dict[str, Any]] = {
        200: answer(Reloaded),
        409: answer(Reloaded, "refused: the release before goes on"),
    }

    @routes.post("/reload", response_class=Response, responses=outcomes)
    async def reload() -> Response:
        """Serve what CURRENT names; also a release that was refused before."""
        return _outcome(await holder.reload())

    @routes.post(
        "/rollback",
        response_class=Response,
        responses=outcomes
        | {
            400: refusal("not JSON, or no such release"),
            409: answer_or_refusal(Reloaded, "refused: the release before goes on; or there is none before"),
            413: refusal("the body is too large"),
            422: refusal("a value that cannot be"),
            503: refusal("the release that was named is damaged"),
        },
        openapi_extra=request_body(RollbackRequest, required=False),
    )
    async def rollback(request: Request) -> Response:
        """Serve the release before the current one again, or the one named."""
        asked = read_rollback(await body_of(request, settings.max_body))
        return _outcome(await holder.roll_back(asked.to))

    return routes


def _outcome(result: Reloaded) -> Response:
    return _json(result, 409 if result.result == "refused" else 200)
