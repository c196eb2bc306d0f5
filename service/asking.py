"""What takes milliseconds to answer: many queries at once, and why an ad was answered. Both go to a thread."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from core.served import Found
from core.why import Push, Why, why
from service.answers import ads_of, beam_of, wanted_of
from service.exchange import json_body, json_response
from service.holder import Holder, Release
from service.offload import Offload
from service.openapi import answer, refusal, request_body
from service.pace import Pace, deadline_of
from service.problems import RefusedError, problem
from service.reading import read_batch
from service.schemas import (
    BatchAnswer,
    BatchRequest,
    ExplainAnswer,
    ModelWhy,
    OneAnswer,
    PathEdge,
    TableWhy,
    TreePath,
    WordPush,
)
from service.settings import Settings
from service.telemetry import Telemetry

_REFUSALS: dict[int | str, dict[str, Any]] = {
    503: refusal("overloaded, or no release yet"),
    422: refusal("a value that cannot be"),
}


def asking_routes(settings: Settings, holder: Holder, pace: Pace, offload: Offload, telemetry: Telemetry) -> APIRouter:
    routes = APIRouter(tags=["predict"])

    @routes.post(
        "/predict/batch",
        response_class=Response,
        openapi_extra=request_body(BatchRequest, required=True),
        responses={
            200: answer(BatchAnswer, "answers in the order of the queries"),
            400: refusal("not JSON, or a bad header"),
            408: refusal("the body came too slowly"),
            413: refusal("the body is too large"),
            415: refusal("not application/json"),
            **_REFUSALS,
        },
    )
    async def batch(request: Request) -> Response:
        """Many queries with the same wishes, through the batch kernel: the ads that /predict gives one by one."""
        started = perf_counter()
        body = await json_body(request, settings, settings.max_batch_body)
        deadline = deadline_of(request.headers.get("x-deadline-ms"))
        release = holder.pinned(request.scope)

        def work() -> tuple[BatchAnswer, list[Found]]:
            asked = read_batch(body, settings.max_batch)
            wished = beam_of(release, asked)
            beam = wished
            if deadline is not None:
                beam = pace.within(wished, (deadline - (perf_counter() - started)) / len(asked.queries))
            found = release.served.ask_many(asked.queries, wanted_of(release, asked, beam))
            answers = [OneAnswer(ads_of(release, one), one.reason) for one in found]
            return BatchAnswer(release.name, beam < wished, answers), found

        said, found = await offload.run(work)
        telemetry.note_batch(found, said.degraded)
        return json_response(said)

    @routes.get(
        "/explain",
        response_class=Response,
        responses={200: answer(ExplainAnswer), 404: refusal("the catalogue does not have the ad"), **_REFUSALS},
    )
    async def explain(
        request: Request,
        query: Annotated[str, Query(max_length=1000, description="as it was typed")],
        ad: Annotated[str, Query(min_length=1, max_length=256, description="the ad's id")],
    ) -> Response:
        """Why an ad has its relevance for a query: its path and the probability of each edge in every tree, the words
        that pushed it, and what the table says."""
        release = holder.pinned(request.scope)
        number = release.served.catalogue.ids.find(ad)
        if number < 0:
            raise RefusedError(problem(404, "unknown-ad", f"{ad!r:.300} is not in the catalogue of {release.name}"))
        said = await offload.run(lambda: _explained(release, ad, number, why(release.served, query, number)))
        return json_response(said)

    return routes


def _explained(release: Release, ad: str, number: int, said: Why) -> ExplainAnswer:
    title, url = (release.served.texts[column][number].as_py() or "" for column in ("title", "url"))
    model = None
    if said.model is not None:
        score, paths = said.model
        trees = [
            TreePath(path.score, path.factor, [PathEdge(*edge[:3], _words(edge.words)) for edge in path.edges])
            for path in paths
        ]
        model = ModelWhy(score, trees)
    table = None if said.table is None else TableWhy(*said.table)
    relevance = round(said.relevance, 8)
    words = _words(said.words)
    return ExplainAnswer(release.name, said.query, ad, title, url, relevance, said.source, words, model, table)


def _words(pushes: Sequence[Push]) -> list[WordPush]:
    return [WordPush(*push) for push in pushes]
