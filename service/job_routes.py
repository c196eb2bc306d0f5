"""POST /labelwise and the jobs it starts.

Whatever is accepted with 202 is on disk by then. Where an admin token is configured, starting and cancelling need it:
a job changes what is served, as a rollback does.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, Depends, Header, Request, Response
from msgspec import UNSET

from service.access import needs_token
from service.data_files import ENDINGS, open_below
from service.exchange import json_body, json_response
from service.jobs import Asked, Jobs
from service.openapi import answer, refusal, request_body
from service.problems import RefusedError, problem
from service.reading import read_labelwise
from service.schemas import Job, LabelwiseRequest, encode
from service.schemas import Jobs as JobList
from service.settings import Settings

T = TypeVar("T")
_TOKEN: dict[int | str, dict[str, Any]] = {401: refusal("no token, or a wrong one, where one is configured")}
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: refusal("there is no such job")}


def job_routes(settings: Settings, jobs: Jobs) -> APIRouter:
    routes = APIRouter(tags=["jobs"])
    token = Depends(needs_token(settings.admin_token))

    @routes.post(
        "/labelwise",
        status_code=202,
        response_class=Response,
        dependencies=[token],
        openapi_extra=request_body(LabelwiseRequest, required=True),
        responses={
            202: {**answer(Job, "accepted, or accepted before under the same key"), "headers": _LOCATION},
            400: refusal("not JSON"),
            408: refusal("the body came too slowly"),
            413: refusal("the body is too large"),
            415: refusal("not application/json"),
            422: refusal("a value that cannot be, or a key that was used for another request"),
            503: refusal("the jobs cannot be written"),
            **_TOKEN,
        },
    )
    async def labelwise(
        request: Request,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    ) -> Response:
        """Fill the query→ad table anew from a set of ads. The result becomes a new release, which is then served."""
        body = await json_body(request, settings, settings.max_batch_body)
        job = await _stored(jobs, lambda: _accepted(settings, jobs, body, idempotency_key))
        return Response(encode(job), 202, {"Location": f"/jobs/{job.id}"}, "application/json")

    @routes.get("/jobs", response_class=Response, responses={200: answer(JobList)})
    async def listed() -> Response:
        """The jobs, newest first."""
        return json_response(JobList(await _stored(jobs, jobs.all)))

    @routes.get("/jobs/{job}", response_class=Response, responses={200: answer(Job), **_UNKNOWN})
    async def one(job: str) -> Response:
        """How far a job is, and what came of it."""
        return json_response(await _stored(jobs, lambda: jobs.one(job)))

    @routes.delete(
        "/jobs/{job}",
        response_class=Response,
        dependencies=[token],
        responses={200: answer(Job), 409: refusal("the job has ended"), **_UNKNOWN, **_TOKEN},
    )
    async def cancel(job: str) -> Response:
        """End a job before it has published anything; one that runs ends within a second or so."""
        return json_response(await _stored(jobs, lambda: jobs.cancel(job)))

    return routes


_LOCATION = {"Location": {"description": "where to ask for its progress", "schema": {"type": "string"}}}


async def _stored(jobs: Jobs, work: Callable[[], T]) -> T:
    try:
        return await jobs.on_thread(work)
    except (sqlite3.Error, OSError) as error:
        raise RefusedError(problem(503, "jobs", f"the jobs cannot be read or written: {error}")) from error


def _accepted(settings: Settings, jobs: Jobs, body: bytes, key: str | None) -> Job:
    asked = read_labelwise(body)
    digest = hashlib.sha256(body).hexdigest()
    if asked.ads is not UNSET:
        ads = asked.ads
        about = Asked(key, digest, asked.mode, f"{len(ads)} ad{'s' * (len(ads) > 1)}")
        return jobs.add(about, "ads.parquet", lambda path: _write_ads(path, ads))[0]
    assert asked.file is not UNSET  # one of them was given
    with open_below(settings.data_dir, asked.file) as source:
        ending = next(ending for ending in ENDINGS if asked.file.endswith(ending))

        def copy(path: Path) -> None:
            with path.open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

        return jobs.add(Asked(key, digest, asked.mode, asked.file), f"ads{ending}", copy)[0]


def _write_ads(path: Path, ads: Any) -> None:
    names = ads[0].__struct_fields__
    pq.write_table(pa.table({name: [getattr(ad, name) for ad in ads] for name in names}), path)
