"""The release being served changes between requests, never under one; a bad one is refused and the old one goes on."""

from __future__ import annotations

import asyncio
import gc
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.app import create_app
from service.settings import Settings
from service.telemetry import Telemetry
from tests.service.asgi import post
from tests.service.server import TOKEN, Running, copied, eventually, point_to, serving

ADMIN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def own(releases: Path, tmp_path: Path) -> Iterator[tuple[Running, Path, list[str]]]:
    """A server of the test's own, with the first of two releases; it looks at CURRENT all the time."""
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    with serving(directory, tmp_path / "log", watch_seconds="0.02") as running:
        yield running, directory, names


def damage(release: Path) -> None:
    """One flipped bit."""
    path = release / "table" / "row_score.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def served(running: Running) -> str:
    answer = running.predict(query="a").json()["release"]
    assert isinstance(answer, str)
    return answer


def test_a_new_release_is_noticed_a_bad_one_refused_and_the_old_one_is_rolled_back_to(
    own: tuple[Running, Path, list[str]],
) -> None:
    running, directory, names = own
    assert served(running) == names[0]
    point_to(directory, names[1])
    eventually(lambda: served(running) == names[1])
    assert running.metric(f'xreg_release_info{{release="{names[1]}"}}') == 1
    assert running.metric(f'xreg_release_info{{release="{names[0]}"}}') == 0
    back = running.http.post("/admin/rollback", headers=ADMIN)
    assert (back.status_code, back.json()) == (200, {"result": "loaded", "release": names[0], "detail": None})
    assert served(running) == names[0]
    damage(directory / names[1])
    point_to(directory, names[1])
    eventually(lambda: running.metric('xreg_reloads_total{result="refused"}') == 1)
    assert served(running) == names[0]
    assert running.http.get("/health/ready").status_code == 200
    refused = running.http.post("/admin/reload", headers=ADMIN)
    assert refused.status_code == 409
    assert refused.json()["result"] == "refused"
    assert "row_score.npy" in refused.json()["detail"]
    assert running.metric('xreg_reloads_total{result="refused"}') == 2  # the watcher does not try it again and again
    assert running.metric('xreg_reloads_total{result="loaded"}') == 3
    events = [event["event"] for event in running.events()]
    assert events.count("release refused") == 2


def test_a_release_can_be_rolled_back_to_by_name_and_a_damaged_one_cannot(
    own: tuple[Running, Path, list[str]],
) -> None:
    running, directory, names = own
    named = running.http.post("/admin/rollback", headers=ADMIN, json={"to": names[1]})
    assert named.json()["release"] == names[1] == served(running)
    damage(directory / names[0])
    assert running.http.post("/admin/rollback", headers=ADMIN).status_code == 503
    assert (directory / "CURRENT").read_text().strip() == names[1]
    missing = running.http.post("/admin/rollback", headers=ADMIN, json={"to": "../" + names[1]})
    assert (missing.status_code, missing.headers["content-type"]) == (400, "application/problem+json")
    unknown = running.http.post("/admin/rollback", headers=ADMIN, json={"too": names[1]})
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/too")
    assert served(running) == names[1]


def test_a_broken_current_changes_nothing(own: tuple[Running, Path, list[str]]) -> None:
    running, directory, names = own
    (directory / "CURRENT").write_bytes(b"\xff\x00 no release")
    eventually(lambda: running.metric('xreg_reloads_total{result="refused"}') == 1)
    assert served(running) == names[0]
    listed = running.http.get("/releases").json()
    assert (listed["current"], listed["served"]) == (None, names[0])
    assert [release["name"] for release in listed["releases"]] == names


def test_admin_needs_the_token(server: Running) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer é"}):
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        answer = server.http.post("/admin/reload", headers=encoded)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    again = server.http.post("/admin/reload", headers=ADMIN)
    assert again.json()["result"] == "unchanged"


def test_a_swap_ends_the_old_mapping_without_waiting_for_the_garbage_collector(releases: Path, tmp_path: Path) -> None:
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    service = create_app(Settings(releases=directory), Telemetry(out=io.StringIO()))

    async def swaps() -> None:
        for name in names * 3:
            point_to(directory, name)
            assert (await service.holder.reload()).release == name
            assert (await post(service, b'{"query": "a chair"}')).body["release"] == name
            mapped = Path("/proc/self/maps").read_text()
            assert {other for other in names if f"{directory}/{other}/" in mapped} == {name}

    gc.disable()
    try:
        asyncio.run(swaps())
    finally:
        gc.enable()


def test_a_rollback_that_says_too_much_is_refused(server: Running) -> None:
    answer = server.http.post("/admin/rollback", headers=ADMIN, content=b" " * 65537)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:xreg:problem:too-large")
