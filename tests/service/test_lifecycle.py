"""Start, stop, and what those who watch are told meanwhile."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import httpx

from core.names import names_arrays, names_of
from core.served import Served
from core.text import words
from service.app import create_app
from service.settings import Settings
from service.telemetry import Telemetry
from tests.service.asgi import JSON, post
from tests.service.server import Running, copied, eventually, point_to, serving


def test_at_sigterm_it_turns_unready_and_finishes_what_was_begun(releases: Path, tmp_path: Path) -> None:
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    with serving(directory, tmp_path / "log", watch_seconds="0.02", drain_seconds="30") as running:
        connection = socket.create_connection(("127.0.0.1", running.port), 30)
        body = b'{"query": "a"}'
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body[:5])
        running.process.send_signal(signal.SIGTERM)
        eventually(lambda: running.http.get("/health/ready").status_code == 503)
        assert running.http.get("/health/ready").json() == {"status": "draining", "release": names[0]}
        assert running.predict(query="a").json()["release"] == names[0]  # who still asks is answered
        running.process.send_signal(signal.SIGTERM)  # a second one: stop listening now
        eventually(lambda: not _listens(running.port))
        connection.sendall(body[5:])
        with connection, connection.makefile("rb") as answer:
            assert answer.read().startswith(b"HTTP/1.1 200")
        assert running.process.wait(30) == 0
    assert [event["event"] for event in running.events()][-2:] == ["draining", "stop"]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 30).close()
    except ConnectionRefusedError:
        return False
    return True


def test_without_a_token_there_is_no_admin_and_without_a_release_no_answer(tmp_path: Path, releases: Path) -> None:
    directory = tmp_path / "releases"
    names, bearer = copied(releases, directory), {"Authorization": "Bearer anything"}
    (directory / "CURRENT").unlink()
    settings = {"admin_token": "", "watch_seconds": "0.02"}
    with serving(directory, tmp_path / "log", until="/health/live", **settings) as running:
        answer = running.predict(query="a")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:xreg:problem:no-release")
        assert running.http.get("/table/a").status_code == 503
        assert running.http.post("/admin/reload", headers=bearer).status_code == 404
        assert running.http.get("/v2/health/live").status_code == 200
        point_to(directory, names[0])
        eventually(lambda: running.http.get("/v2/health/ready").status_code == 200)
        assert running.http.get("/v2/models/xreg").json()["versions"] == [names[0]]


def test_metrics_count_what_was_asked_and_answered(server: Running, served: Served) -> None:
    query = next(iter(served.table.rows()))[0]
    names = (
        'xreg_request_seconds_count{route="/predict",status="200"}',
        'xreg_request_seconds_count{route="/predict",status="422"}',
        'xreg_request_seconds_count{route="/table/{query}",status="404"}',
        'xreg_words_total{known="true"}',
        'xreg_words_total{known="false"}',
        'xreg_empty_answers_total{reason="no_known_words"}',
    )
    before = [server.metric(name) for name in names]
    n_words = len(words(query))
    server.predict(query=query)
    server.predict(query="qqqq zzzz")
    server.predict()
    server.http.get("/table/qqqq")
    after = [server.metric(name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [2, 1, 1, n_words, 2, 1]
    assert server.metric('xreg_answers_total{source="both"}') > 0
    assert server.metric("xreg_release_age_seconds") > 0
    assert 'xreg_request_seconds_bucket{le="5e-05"' in server.http.get("/metrics").text


def test_what_the_server_says_is_json_too(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")
    assert server.events()[-1]["message"] == "Invalid HTTP request received."


def test_a_failure_is_a_problem_and_a_line_of_the_log(releases: Path) -> None:
    out = io.StringIO()
    service = create_app(Settings(releases=releases), Telemetry(out=out))

    asyncio.run(service.holder.reload())
    release = service.holder.pinned()
    served = release.served
    few = names_of(releases, names_arrays(["only"]))  # a release that says so would be refused
    service.holder.release = release._replace(ad_id=few.name)
    query = next(iter(served.table.rows()))[0]
    answer = asyncio.run(post(service, json.dumps({"query": query}).encode()))
    assert (answer.status, answer.body["type"]) == (500, "urn:xreg:problem:failure")
    line = json.loads(out.getvalue().splitlines()[-1])
    assert line["request"] == answer.headers[b"x-request-id"].decode()
    assert "no name" in line["cause"]
    transport = httpx.ASGITransport(service, raise_app_exceptions=False)

    async def table() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get(f"/table/{query}")

    other = asyncio.run(table())
    assert (other.status_code, other.json()["type"]) == (500, "urn:xreg:problem:failure")
    assert b'xreg_request_seconds_count{route="/table/{query}",status="500"} 1.0' in service.telemetry.metrics()


def test_queries_are_hashed_in_the_log_unless_it_is_wished_otherwise() -> None:
    assert Telemetry().query("my secret").startswith("xxh3:")
    assert Telemetry(log_queries=True).query("my secret") == "my secret"


def test_a_request_is_one_line_of_the_log(releases: Path, tmp_path: Path) -> None:
    out = io.StringIO()
    service = create_app(Settings(releases=releases, log_requests=True), Telemetry(out=out))
    trace = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
    headers = (*JSON, (b"x-request-id", b"r1"), (b"traceparent", trace))

    async def asked() -> None:
        await service.holder.reload()
        assert (await post(service, b'{"query": "my secret"}', headers)).status == 200

    asyncio.run(asked())
    line = json.loads(out.getvalue().splitlines()[-1])
    assert (line["event"], line["request"], line["status"], line["trace"]) == ("predict", "r1", 200, trace.decode())
    assert line["release"] == service.holder.name
    assert "my secret" not in out.getvalue()


def test_a_slow_body_is_given_up_on_and_one_that_never_comes_is_forgotten(releases: Path) -> None:
    service = create_app(Settings(releases=releases, body_seconds=0.01), Telemetry(out=io.StringIO()))
    sent = list[MutableMapping[str, Any]]()
    messages: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> MutableMapping[str, Any]:
        return messages.pop(0) if messages else await asyncio.get_running_loop().create_future()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": JSON}
    asyncio.run(service(scope, receive, send))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    asyncio.run(service(scope, receive, send))  # not a byte of it
    assert sent[2]["status"] == 408
    messages.append({"type": "http.disconnect"})
    asyncio.run(service(scope, receive, send))
    assert len(sent) == 4


def test_a_log_that_nobody_reads_stops_nothing(releases: Path) -> None:
    out = io.StringIO()
    out.close()
    service = create_app(Settings(releases=releases, log_requests=True), Telemetry(out=out))

    async def asked() -> None:
        assert (await service.holder.reload()).result == "loaded"
        assert (await post(service, b'{"query": "a"}')).status == 200

    asyncio.run(asked())


def test_work_in_the_background_goes_on_after_a_failure(releases: Path) -> None:
    service = create_app(Settings(releases=releases), Telemetry(out=io.StringIO()))
    tried = list[int]()

    async def work() -> None:
        tried.append(1)
        if len(tried) == 1:
            raise ValueError("once")

    asyncio.run(service._kept_up(work))
    assert len(tried) == 2


def test_time_is_counted_from_the_last_byte_of_a_request(releases: Path, tmp_path: Path) -> None:
    """Also that which it spent waiting for the event loop: a deadline sees it."""
    with serving(releases, tmp_path / "log", watch_seconds="0", cache="0") as running:
        running.predict(query="a")
        with socket.create_connection(("127.0.0.1", running.port), 30) as connection:
            body = b'{"query": "chair"}'
            head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Deadline-Ms: 60000\r\n"
            whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
            connection.sendall(whole * 100)  # the last ones wait for the first
            with connection.makefile("rb") as file:
                seen = list[float]()
                while len(seen) < 100:
                    line = file.readline().decode()
                    if line.startswith("server-timing"):
                        seen.append(float(line.rpartition("=")[2]))
    assert seen[-1] > 2 * seen[0]
