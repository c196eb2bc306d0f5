"""Answers that were given before are given again: the same bytes, from the same release, and never from another."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from core.merge import Merged
from core.served import Found
from service.app import Service, create_app
from service.cache import AnswerCache, Kept
from service.settings import Settings
from service.telemetry import Telemetry
from tests.service.asgi import JSON, post
from tests.service.server import copied, point_to

NONE = Found(Merged(*[()] * 3), (), None)  # type: ignore[arg-type]  # nobody looks inside


def kept(number: int) -> Kept:
    return Kept(b"%d" % number, NONE)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60), st.integers(0, 5))
def test_it_holds_what_was_asked_last(calls: list[tuple[int, bool]], most: int) -> None:
    cache, order = AnswerCache(most), list[int]()  # the oracle: numbers, the one asked last at the end
    for number, put in calls:
        key = b"%d" % number
        if put and number not in order:
            cache.put(key, kept(number))
            order = [*order, number][-most:] if most else []
        else:
            found = cache.get(key)
            assert (None if found is None else found.body) == (key if number in order else None)
            if number in order:
                order = [*(n for n in order if n != number), number]
        assert len(cache) == len(order) <= most


def test_long_bodies_are_not_kept() -> None:
    cache = AnswerCache(10)
    cache.put(b"x" * 1025, kept(1))
    assert len(cache) == 0


def service(releases: Path, **settings: int) -> Service:
    return create_app(Settings(releases=releases, **settings), Telemetry(out=io.StringIO()))  # type: ignore[arg-type]


def counted(app: Service, result: str) -> float:
    app.telemetry.tick()
    return float(app.telemetry.counts.series("xreg_cache", result)[0])


def test_an_answer_is_given_again_and_counted_again(releases: Path) -> None:
    app = service(releases)

    async def asked() -> None:
        await app.holder.reload()
        body = b'{"query": "chair"}'
        first, again = await post(app, body), await post(app, body)
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers[b"x-release"] == first.headers[b"x-release"]
        assert again.headers[b"x-request-id"] != first.headers[b"x-request-id"]
        assert (await post(app, b'{"query":"chair"}')).body == first.body  # other bytes: asked anew

    asyncio.run(asked())
    assert (counted(app, "hit"), counted(app, "miss")) == (1, 2)
    words = app.telemetry.counts.series("xreg_words", "true")[0] + app.telemetry.counts.series("xreg_words", "false")[0]
    assert words == 3
    assert b'xreg_request_seconds_count{route="/predict",status="200"} 3.0' in app.telemetry.metrics()


def test_a_narrowed_answer_is_not_kept_and_a_deadline_asks_anew(releases: Path) -> None:
    app = service(releases)
    hurry = (*JSON, (b"x-deadline-ms", b"0.000001"))

    async def asked() -> None:
        await app.holder.reload()
        body = b'{"query": "chair"}'
        assert (await post(app, body, hurry)).body["degraded"] is True
        assert (await post(app, body)).body["degraded"] is False
        assert (await post(app, body, hurry)).body["degraded"] is True

    asyncio.run(asked())
    assert counted(app, "hit") == 0


def test_what_was_refused_is_refused_again_and_nothing_is_kept_with_cache_0(releases: Path) -> None:
    app = service(releases, cache=0)

    async def asked() -> None:
        await app.holder.reload()
        for _ in range(2):
            assert (await post(app, b'{"query": "chair", "k": 0}')).status == 422
            assert (await post(app, b'{"query": "chair"}')).status == 200

    asyncio.run(asked())
    assert (counted(app, "hit"), counted(app, "miss")) == (0, 2)


def test_answers_go_with_their_release(releases: Path, tmp_path: Path) -> None:
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    app = service(directory)

    async def swaps() -> None:
        for name in (*names, *names):
            point_to(directory, name)
            await app.holder.reload()
            for _ in range(2):
                answer = await post(app, b'{"query": "chair"}')
                assert answer.body["release"] == name == answer.headers[b"x-release"].decode()

    asyncio.run(swaps())
    assert (counted(app, "hit"), counted(app, "miss")) == (4, 4)
