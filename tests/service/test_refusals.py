"""Whatever comes in, the answer is a problem that names the field: never a 5xx."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.app import Service
from tests.service.asgi import post
from tests.service.server import Running

Q = b'{"query": "a", '
BAD: list[tuple[bytes, int, str]] = [
    (b"", 400, ""),
    (b"{", 400, ""),
    (b"nothing", 400, ""),
    (b'{"query": "a"} x', 400, ""),
    (b'\xef\xbb\xbf{"query": "a"}', 400, ""),
    (b'{"query": "a\xff"}', 400, "/query"),
    (b'{"query": "\\ud800"}', 400, "/query"),
    (b'{"query": "\xed\xa0\x80"}', 400, "/query"),
    (Q + b'"exclude": ["b", "\\udc00x"]}', 400, "/exclude/1"),
    (Q + b'"threshold": NaN}', 400, "/threshold"),
    (Q + b'"threshold": Infinity}', 400, "/threshold"),
    (Q + b'"exclude": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", 422, "/exclude/0"),
    (b"[" * 60_000, 422, ""),
    (b"[]", 422, ""),
    (b'"a"', 422, ""),
    (b"null", 422, ""),
    (b"{}", 422, ""),
    (Q + b'"nonsense": 1}', 422, "/nonsense"),
    (Q + b'"a/b~c": 1}', 422, "/a~1b~0c"),
    (b'{"query": 1}', 422, "/query"),
    (b'{"query": null}', 422, "/query"),
    (b'{"query": "' + b"a" * 1001 + b'"}', 422, "/query"),
    (Q + b'"query": "b"}', 422, "/query"),
    (Q + b'"k": 1, "k": 2}', 422, "/k"),
    (Q + b'"k": 1, "\\u006b": 2}', 422, "/k"),
    (Q + b'"k": 0}', 422, "/k"),
    (Q + b'"k": 101}', 422, "/k"),
    (Q + b'"k": 1e400}', 422, "/k"),
    (Q + b'"k": true}', 422, "/k"),
    (Q + b'"k": 1.5}', 422, "/k"),
    (Q + b'"k": "1"}', 422, "/k"),
    (Q + b'"k": 99999999999999999999999999}', 422, "/k"),
    (Q + b'"beam": 0}', 422, "/beam"),
    (Q + b'"beam": 101}', 422, "/beam"),
    (Q + b'"beam": null}', 422, "/beam"),
    (Q + b'"threshold": 1e400}', 422, "/threshold"),
    (Q + b'"threshold": -0.1}', 422, "/threshold"),
    (Q + b'"threshold": 1.1}', 422, "/threshold"),
    (Q + b'"threshold": false}', 422, "/threshold"),
    (Q + b'"source": "both"}', 422, "/source"),
    (Q + b'"rank": 1}', 422, "/rank"),
    (Q + b'"exclude": "a"}', 422, "/exclude"),
    (Q + b'"exclude": ["a", 1]}', 422, "/exclude/1"),
    (Q + b'"exclude": ["a", "b", "a"]}', 422, "/exclude/2"),
    (Q + b'"exclude": [""]}', 422, "/exclude/0"),
    (Q + b'"exclude": ' + json.dumps([str(i) for i in range(1001)]).encode() + b"}", 422, "/exclude"),
    (Q + b'"candidates": []}', 422, "/candidates"),
    (Q + b'"candidates": ["a", "a"]}', 422, "/candidates/1"),
    (Q + b'"features": {"indices": [], "values": []}}', 422, "/features"),
    (b'{"features": []}', 422, "/features"),
    (b'{"features": {"indices": [1]}}', 422, "/features/values"),
    (b'{"features": {"indices": [1], "values": [1], "more": 1}}', 422, "/features/more"),
    (b'{"features": {"indices": [1], "indices": [1], "values": [1]}}', 422, "/features/indices"),
    (b'{"features": {"indices": [1, 2], "values": [1]}}', 422, "/features/values"),
    (b'{"features": {"indices": [1, 1], "values": [1, 1]}}', 422, "/features/indices/1"),
    (b'{"features": {"indices": [-1], "values": [1]}}', 422, "/features/indices/0"),
    (b'{"features": {"indices": [1, 2000000], "values": [1, 1]}}', 422, "/features/indices/1"),
    (b'{"features": {"indices": [3000000000], "values": [1]}}', 422, "/features/indices/0"),
    (b'{"features": {"indices": [true], "values": [1]}}', 422, "/features/indices/0"),
    (b'{"features": {"indices": [1], "values": [-1]}}', 422, "/features/values/0"),
    (b'{"features": {"indices": [1], "values": [1e39]}}', 422, "/features/values/0"),
    (b'{"features": {"indices": [1], "values": [1]}, "source": "table"}', 422, "/source"),
]


@pytest.mark.parametrize(("body", "status", "pointer"), BAD, ids=[repr(bad[0][:50]) for bad in BAD])
def test_a_bad_body_is_refused_with_the_field_named(server: Running, body: bytes, status: int, pointer: str) -> None:
    answer = server.http.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert (answer.status_code, said["status"]) == (status, status), said
    assert [fault["pointer"] for fault in said["errors"]] == [pointer], said
    assert said["errors"][0]["detail"]
    assert said["title"]


def test_a_refusal_says_what_must_hold_and_what_came(server: Running) -> None:
    said = server.http.post("/predict", json={"query": "a", "k": 0}).json()
    assert said == {
        "type": "urn:xreg:problem:invalid",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "/k: must be int ≥ 1, got 0",
        "errors": [{"pointer": "/k", "detail": "must be int ≥ 1, got 0"}],
    }


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_415(server: Running, kind: str) -> None:
    answer = server.http.post("/predict", content=b'{"query": "a"}', headers={"Content-Type": kind})
    assert answer.status_code == 415


def test_a_charset_beside_the_content_type_is_fine(server: Running) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert server.http.post("/predict", content=b'{"query": "a"}', headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_another_method_is_405(server: Running, method: str) -> None:
    answer = server.http.request(method, "/predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(server: Running) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 65537\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(head)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_body_that_is_too_large_is_refused_by_counting(server: Running) -> None:
    def pieces() -> Any:
        yield b'{"query": "'
        for _ in range(70):
            yield b"a" * 1000

    answer = server.http.post("/predict", content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["detail"] == "a body may have 65536 bytes at most"


def test_other_paths_and_methods_get_problems_too(server: Running) -> None:
    for method, path, status in (("GET", "/nowhere", 404), ("POST", "/releases", 405), ("GET", "/predict/", 404)):
        answer = server.http.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


FIELDS = ["query", "features", "k", "beam", "threshold", "source", "rank", "exclude", "candidates", "indices", "values"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["auto", "table", "model", "revenue", 1, 10, 0.5]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=12,
)
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)


@given(st.one_of(st.binary(max_size=80), (BODIES | VALUES).map(lambda value: json.dumps(value).encode())))
def test_no_body_leads_to_a_failure(app: Service, body: bytes) -> None:
    answer = asyncio.run(post(app, body))
    assert answer.status in (200, 400, 422)
    assert answer.status == 200 or answer.body["errors"]


@given(st.text(max_size=200))
def test_every_text_is_a_query(app: Service, query: str) -> None:
    answer = asyncio.run(post(app, json.dumps({"query": query}).encode()))
    lone = any("\ud800" <= character <= "\udfff" for character in query)
    assert answer.status == (400 if lone else 200)


def test_a_wrong_method_is_told_the_right_ones(server: Running) -> None:
    for path, allowed in (
        ("/jobs/x", "DELETE, GET"),
        ("/releases", "GET"),
        ("/predict", "POST"),
        ("/labelwise", "POST"),
    ):
        answer = server.http.request("PATCH", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
