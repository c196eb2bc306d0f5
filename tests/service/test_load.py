"""Under load: releases change, the service ends, too much is asked; no request that was taken on is lost or mixed up.

The load comes from the benchmark's generator, which judges every answer. Nothing here depends on how fast anything is.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
import uvloop

from bench.http_questions import RightAds, make_queries, make_requests
from bench.load import (
    LOST,
    PENDING,
    REFUSED,
    RIGHT,
    UNREAD,
    Outcome,
    Run,
    Target,
    closed_loop,
    open_loop,
    request_bytes,
)
from core.served import Served
from tests.service.server import Running, copied, point_to, serving

RATE, MUCH = 400.0, 20_000.0  # requests per second: what any machine can do, and what ours cannot
PLENTY = "100000"


def asking(releases: Path, names: list[str]) -> tuple[list[bytes], RightAds]:
    """Requests, and a judge that knows what each release answers."""
    served = {name: Served.open(releases / name) for name in names}
    queries = make_queries(served[names[0]], 300)
    return make_requests(queries), RightAds(queries, served)


def test_reloads_under_load_fail_no_request_and_mix_no_answer(releases: Path, tmp_path: Path) -> None:
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    requests, judge = asking(directory, names)
    answered = list[int]()  # requests, when each swap was seen

    async def swapping(run: Run) -> None:
        for name in (names * 6)[1:]:
            point_to(directory, name)
            while judge.release != name.encode() and not run.over:
                await asyncio.sleep(0.002)
            answered.append(run.n_answered)
        run.stop()

    with serving(directory, tmp_path / "log", watch_seconds="0.02", max_concurrency=PLENTY) as running:
        outcome = uvloop.run(open_loop(Target(running.port, requests, judge), RATE, 100.0, 32, swapping))
        assert running.metric('xreg_reloads_total{result="loaded"}') == 12
    assert len(answered) == 11
    assert outcome.count(RIGHT) == len(outcome.verdict) >= answered[-1] > answered[0]


def test_the_judge_knows_the_releases_apart(releases: Path) -> None:
    names = sorted(path.name for path in releases.iterdir() if path.is_dir() and not path.name.startswith("."))
    served = [Served.open(releases / name) for name in names]
    queries = make_queries(served[0], 300)
    differ = sum(served[0].ids(query) != served[1].ids(query) for query in queries)
    assert differ > 30, "a mixed answer would not be noticed"


@pytest.mark.parametrize("seed", range(3))
def test_sigterm_under_load_loses_nothing_that_was_taken_on(releases: Path, tmp_path: Path, seed: int) -> None:
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    requests, judge = asking(directory, names[:1])
    with serving(directory, tmp_path / "log", max_concurrency=PLENTY) as running:
        under_way = 0

        async def ending(run: Run) -> None:
            nonlocal under_way
            while run.n_answered < 500 or not run.under_way:
                await asyncio.sleep(0.001)
            under_way = run.under_way
            running.process.send_signal(signal.SIGTERM)

        load = open_loop(Target(running.port, requests, judge), MUCH, 60.0, 64, ending, seed)
        outcome = uvloop.run(load)
        assert running.process.wait(30) == 0
    assert under_way > 0
    assert [event["event"] for event in running.events()][-2:] == ["draining", "stop"]
    assert outcome.count(LOST) + outcome.count(PENDING) == 0
    assert outcome.count(RIGHT) + outcome.count(UNREAD) == len(outcome.verdict)
    assert outcome.count(RIGHT) >= 500


@pytest.mark.parametrize(("reads", "verdict"), [(True, LOST), (False, UNREAD)])
def test_the_load_generator_tells_a_lost_request_from_one_that_was_never_read(reads: bool, verdict: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def end_under_a_request() -> None:
            connection, _ = listening.accept()
            connection.recv(65536, 0 if reads else socket.MSG_PEEK)
            listening.close()
            connection.close()

        thread = threading.Thread(target=end_under_a_request)
        port = listening.getsockname()[1]
        thread.start()
        outcome = uvloop.run(closed_loop(Target(port, [request_bytes("/", b"{}")], lambda *_: RIGHT), 1, 1))
        thread.join()
    assert outcome.verdict.tolist() == [verdict]


def overtaken(outcome: Outcome) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each right answer, how many others were given while it was waited for."""
    right = outcome.verdict == RIGHT
    done = np.sort(outcome.done[right])
    between: np.ndarray[tuple[int], np.dtype[np.int64]] = np.searchsorted(done, outcome.done[right]) - np.searchsorted(
        done, outcome.sent[right]
    )
    return between


def test_too_much_is_refused_with_retry_after_and_nobody_waits_for_many(releases: Path, tmp_path: Path) -> None:
    names = [path.name for path in releases.iterdir() if path.is_dir() and not path.name.startswith(".")]
    requests, judge = asking(releases, sorted(names))
    places, connections = 4, 128
    with serving(releases, tmp_path / "log", max_concurrency=str(places)) as running:
        target = Target(running.port, requests, judge)
        outcome = uvloop.run(closed_loop(target, 6000, connections))
        assert outcome.errors == 0  # a 503 without Retry-After is one
        assert outcome.count(REFUSED) > 0 < outcome.count(RIGHT)
        assert running.metric('xreg_shed_total{reason="concurrency"}') == outcome.count(REFUSED)
        assert running.metric("xreg_in_flight") == 0
        assert np.median(overtaken(outcome)) < connections / 4
        calm = uvloop.run(closed_loop(target, 300, 1))
        assert calm.count(RIGHT) == 300


def test_where_there_is_room_for_all_a_request_waits_for_as_many_as_there_are(server: Running, served: Served) -> None:
    """What the test above would see if nobody were refused."""
    queries = make_queries(served, 100)
    ask = closed_loop(Target(server.port, make_requests(queries), lambda *_: RIGHT), 2000, 48)
    assert np.median(overtaken(uvloop.run(ask))) > 24
