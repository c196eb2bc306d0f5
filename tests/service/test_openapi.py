"""The OpenAPI document is true: real bytes of every route are what it says."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator, ValidationError

from core.served import Served
from tests.service.server import TOKEN, Running

ADMIN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def document(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/openapi.json").json()
    return found


def validate(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def check(document: dict[str, Any], path: str, answer: httpx.Response) -> None:
    """An answer against what the document says about its route and status."""
    operation = document["paths"][path][answer.request.method.lower()]
    said = operation["responses"][str(answer.status_code)]["content"][answer.headers["content-type"]]
    validate(document, said["schema"], answer.json())


def test_real_answers_are_what_the_document_says(server: Running, served: Served, document: dict[str, Any]) -> None:
    query = next(iter(served.table.rows()))[0]
    for asked in ({"query": query}, {"query": "☃"}, {"query": query, "rank": "revenue"}, {}, {"query": 1}):
        check(document, "/predict", server.http.post("/predict", json=asked))
    check(document, "/predict", server.http.post("/predict", content=b"{", headers={"Content-Type": "text/plain"}))
    for path, route in (
        ("/releases", "/releases"),
        (f"/table/{query}", "/table/{query}"),
        ("/table/qqqq", "/table/{query}"),
    ):
        check(document, route, server.http.get(path))
    for path in ("/admin/reload", "/admin/rollback"):
        check(document, path, server.http.post(path))
    check(document, "/admin/reload", server.http.post("/admin/reload", headers=ADMIN))


BODIES: list[dict[str, Any]] = [
    {"query": "a"},
    {"features": {"indices": [1, 2], "values": [1, 0.5]}},
    {"query": "a", "k": 100, "beam": 1, "threshold": 1, "source": "model", "rank": "revenue"},
    {"query": "a", "exclude": ["x"], "candidates": ["y"]},
    {},
    {"query": "a", "features": {"indices": [], "values": []}},
    {"query": "a", "k": 0},
    {"query": "a", "k": "1"},
    {"query": "a", "beam": 101},
    {"query": "a", "threshold": 2},
    {"query": "a", "source": "both"},
    {"query": "a", "exclude": [1]},
    {"query": "a", "candidates": []},
    {"query": "a", "more": 1},
    {"features": {"indices": [-1], "values": [1]}},
]


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_the_document_and_the_service_accept_the_same_requests(
    server: Running, document: dict[str, Any], body: dict[str, Any]
) -> None:
    schema = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    try:
        validate(document, schema, body)
        accepted = True
    except ValidationError:
        accepted = False
    assert (server.http.post("/predict", json=body).status_code == 200) == accepted


def test_every_schema_of_the_document_is_one(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert {"PredictRequest", "PredictAnswer", "Problem", "TableRow", "Releases"} <= document["components"][
        "schemas"
    ].keys()
