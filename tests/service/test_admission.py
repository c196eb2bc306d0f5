"""Past the limit requests are refused at once, over real sockets: those that come whole, and those that do not."""

from __future__ import annotations

import json
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep

import pytest

from service.admission import Admission
from service.telemetry import Telemetry
from tests.service.server import Running, eventually, serving

PLACES, N = 3, 20
BODY = b'{"query": "a"}'


@pytest.fixture(scope="module")
def small(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with few places."""
    log = tmp_path_factory.mktemp("small") / "log"
    with serving(releases, log, watch_seconds="0", max_concurrency=str(PLACES)) as running:
        yield running


@contextmanager
def halted(running: Running) -> Iterator[None]:
    """What is sent inside arrives all at once."""
    running.process.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{running.process.pid}/stat")
    eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")  # a signal takes its time
    try:
        yield
    finally:
        running.process.send_signal(signal.SIGCONT)


def request(more: bytes = b"") -> bytes:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n"
    return head % (len(BODY), more) + BODY


def read(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer."""
    with connection.makefile("rb") as file:
        status = int(file.readline().split()[1])
        lines = iter(lambda: file.readline().strip(), b"")
        headers = {name.lower(): value for name, _, value in (line.decode().partition(": ") for line in lines)}
        return status, headers, file.read(int(headers["content-length"]))


def all_at_once(running: Running, first: bytes, rest: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    with ExitStack() as stack:
        address = ("127.0.0.1", running.port)
        connections = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(N)]
        for connection in connections:
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read(connection)[0] == 200  # the server knows the connection
            connection.sendall(first)
        assert running.http.get("/health/live").status_code == 200  # by now it has read what was sent
        with halted(running):
            for connection in connections:
                connection.sendall(rest)
        return [read(connection) for connection in connections]


@pytest.mark.parametrize("sent_first", [0, 40, -3], ids=["whole", "from the middle of the head", "but for the end"])
def test_past_the_limit_requests_are_told_to_come_back(small: Running, sent_first: int) -> None:
    shed = 'xreg_shed_total{reason="concurrency"}'
    refused = 'xreg_request_seconds_count{route="/predict",status="503"}'
    before = small.metric(shed), small.metric(refused)
    whole = request(b"X-Request-Id: mine\r\n")
    answers = all_at_once(small, whole[:sent_first], whole[sent_first:])
    told = Counter(status for status, _, _ in answers)
    assert told.keys() == {200, 503}
    assert told[200]  # as many as there are places, or fewer while the last burst is remembered
    assert told[503] > N // 2  # not all that arrives at once is also read at once
    for status, headers, body in answers:
        assert headers["x-request-id"] == "mine"
        assert headers["x-release"]
        assert "server-timing" in headers
        if status == 200:
            assert json.loads(body)["ads"]
        if status == 503:
            assert headers["retry-after"] == "1"
            assert headers["content-type"] == "application/problem+json"
            assert json.loads(body)["type"] == "urn:xreg:problem:overloaded"
    assert (small.metric(shed) - before[0], small.metric(refused) - before[1]) == (told[503], told[503])
    assert small.metric("xreg_in_flight") == 0
    assert small.predict(query="a").status_code == 200


def test_pipelined_requests_are_all_answered_in_order(small: Running) -> None:
    with socket.create_connection(("127.0.0.1", small.port), 30) as connection:
        connection.sendall(b"".join(request(b"X-Request-Id: %d\r\n" % i) for i in range(10)))
        with connection.makefile("rb") as file:
            seen = list[str]()
            while len(seen) < 10:
                line = file.readline().decode().strip().lower()
                if line.startswith("x-request-id: "):
                    seen.append(line.partition(": ")[2])
    assert seen == [str(i) for i in range(10)]
    assert small.metric("xreg_in_flight") == 0


def test_clients_that_leave_give_their_places_back(small: Running) -> None:
    for _ in range(3):
        with ExitStack() as stack, halted(small):
            for _ in range(PLACES):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", small.port), 30))
                connection.sendall(request())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # leaves with a reset
    assert small.predict(query="a").status_code == 200
    eventually(lambda: small.metric("xreg_in_flight") == 0)


def test_a_slow_body_takes_no_place(small: Running) -> None:
    with ExitStack() as stack:
        for _ in range(3 * PLACES):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", small.port), 30))
            connection.sendall(request()[:-1])
        assert small.predict(query="a").status_code == 200


def test_pressure_narrows_the_beam_before_anybody_is_refused() -> None:
    admission = Admission(20, Telemetry())
    beams = []
    while admission.enter():
        beams.append(admission.narrowed(20))
    assert len(beams) == 20
    assert beams[:10] == [20] * 10
    assert beams[10:] == sorted(beams[10:], reverse=True)
    assert beams[-1] == 5
    assert Admission(1, Telemetry()).narrowed(20) == 20


def turn(admission: Admission, arrivals: int) -> int:
    """How many of those that arrive in one turn are let in; they are answered before the next."""
    let_in = sum(admission.enter() for _ in range(arrivals))
    for _ in range(let_in):
        admission.leave()
    admission.end_turn()
    return let_in


def test_a_burst_finds_all_places_and_lasting_pressure_a_quarter_of_them() -> None:
    admission = Admission(40, Telemetry())
    assert [turn(admission, n) for n in (40, 40, 41, 41, 11, 11)] == [40, 40, 40, 10, 10, 10]
    assert {turn(admission, 10) for _ in range(20)} == {10}
    assert turn(admission, 40) == 40  # nobody was refused for some turns


def test_bursts_after_a_moment_of_silence_are_bursts() -> None:
    admission = Admission(40, Telemetry())
    assert [turn(admission, 41), turn(admission, 20)] == [40, 10]
    for _ in range(3):
        sleep(0.005)
        assert turn(admission, 20) == 20


def test_few_places_are_not_made_fewer() -> None:
    admission = Admission(10, Telemetry())
    assert [turn(admission, n) for n in (11, 11, 11)] == [10, 8, 8]
    admission = Admission(6, Telemetry())
    assert [turn(admission, n) for n in (11, 11, 11)] == [6, 6, 6]


def test_lasting_pressure_narrows_every_beam() -> None:
    admission = Admission(20, Telemetry())
    turn(admission, 21)
    admission.enter()
    assert (admission.narrowed(20), admission.lasting) == (20, False)  # nobody waits
    admission.enter()
    assert (admission.narrowed(20), admission.lasting) == (5, True)


def test_who_does_not_read_takes_nobodys_place(small: Running) -> None:
    """Many requests on one connection whose answers are left unread."""
    with socket.create_connection(("127.0.0.1", small.port), 30) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        whole = request()
        for _ in range(20_000):  # far more than the buffers of both sides hold
            try:
                connection.send(whole)
            except (BlockingIOError, ConnectionError):
                break
        eventually(lambda: small.metric("xreg_in_flight") == 0)
        answers = [small.predict(query="a") for _ in range(5)]
        assert [(answer.status_code, answer.json()["degraded"]) for answer in answers] == [(200, False)] * 5


def test_a_body_is_never_taken_for_a_request(small: Running) -> None:
    """After an early answer the rest of a body may look like a request: it is answered by nobody, also when all places
    are taken."""
    hidden = request(b"X-Request-Id: smuggled\r\n")
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(hidden)
    address = ("127.0.0.1", small.port)
    with ExitStack() as stack:
        victim = stack.enter_context(socket.create_connection(address, 30))
        victim.sendall(head)
        assert read(victim)[0] == 415
        others = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(N)]
        with halted(small):
            for connection in others:
                connection.sendall(request())
            victim.sendall(hidden + b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n\r\n")
        status, headers, _ = read(victim)
        assert (status, headers["x-request-id"]) == (200, "mine")
