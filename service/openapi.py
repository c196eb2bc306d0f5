"""The OpenAPI document: FastAPI's, with the bodies as service/schemas.py defines them and /predict, which FastAPI does
not see, added from the same definitions."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from service.problems import Problem
from service.schemas import (
    BatchAnswer,
    BatchRequest,
    ExplainAnswer,
    Health,
    Job,
    Jobs,
    LabelwiseRequest,
    PredictAnswer,
    PredictRequest,
    Releases,
    Reloaded,
    RollbackRequest,
    TableRow,
)
from service.settings import Settings

_BODIES = (
    PredictRequest, PredictAnswer, BatchRequest, BatchAnswer, ExplainAnswer, Problem, Health, Releases, Reloaded,
    RollbackRequest, TableRow, LabelwiseRequest, Job, Jobs,
)  # fmt: skip
_REFUSALS = {
    400: "not JSON, or a bad header",
    408: "the body came too slowly",
    413: "the body is too large",
    415: "not application/json",
    422: "a value that cannot be",
    503: "overloaded, or no release yet",
}
DEADLINE = r"^(?=.*[1-9])[0-9]{1,9}(\.[0-9]{1,6})?$"  # above 0
_HEADERS = {
    "X-Request-Id": "echoed if it is 1 … 128 of A-Z a-z 0-9 . _ -, else made up",
    "X-Release": "the release that answered",
    "Server-Timing": "milliseconds, by part",
}


def answer(body: type, about: str = "the answer") -> dict[str, Any]:
    """An answer of a route, by its body."""
    return {"description": about, "content": {"application/json": {"schema": _ref(body)}}}


def answer_or_refusal(body: type, about: str) -> dict[str, Any]:
    """An answer that says it did not work, or a problem."""
    return {"description": about, "content": answer(body)["content"] | refusal(about)["content"]}


def refusal(about: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/problem+json": {"schema": _ref(Problem)}}}


def request_body(body: type, required: bool) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": _ref(body)}}}}


def document(api: FastAPI, settings: Settings) -> dict[str, Any]:
    """FastAPI's document, completed; made once."""
    said = FastAPI.openapi(api)
    _, schemas = msgspec.json.schema_components(_BODIES, ref_template="#/components/schemas/{name}")
    said.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
    query, features = {"required": ["query"]}, {"required": ["features"]}
    said["components"]["schemas"]["PredictRequest"]["oneOf"] = [query, features]
    said["components"]["schemas"]["BatchRequest"]["properties"]["queries"]["maxItems"] = settings.max_batch
    given = [{"required": ["ads"]}, {"required": ["file"]}]
    said["components"]["schemas"]["LabelwiseRequest"]["oneOf"] = given
    said["paths"]["/predict"] = {"post": _predict()}
    return said


def _predict() -> dict[str, Any]:
    headers = {name: {"description": about, "schema": {"type": "string"}} for name, about in _HEADERS.items()}
    deadline = {
        "name": "X-Deadline-Ms",
        "in": "header",
        "required": False,
        "description": "milliseconds; the beam is narrowed to meet it, and the answer says degraded",
        "schema": {"type": "string", "pattern": DEADLINE},
    }
    return {
        "operationId": "predict",
        "summary": "One query, its ads",
        "tags": ["predict"],
        "parameters": [deadline],
        **request_body(PredictRequest, required=True),
        "responses": {
            "200": {**answer(PredictAnswer, "its ads, best first"), "headers": headers},
            **{str(status): refusal(about) for status, about in _REFUSALS.items()},
        },
    }


def _ref(body: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{body.__name__}"}
