"""Labelwise jobs over a real socket: what was accepted becomes a release, whoever is killed meanwhile."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.catalogue import open_catalogue
from core.releases import current, listing, read_release
from core.served import Served
from service.schemas import Job
from tests.service.server import TOKEN, Running, copied, eventually, serving

ADMIN = {"Authorization": f"Bearer {TOKEN}"}
NEW = {"ad_id": "brand-new", "title": "", "text": ""}


class Place:
    """Releases and a data directory of a test's own."""

    def __init__(self, base: Path, releases: Path) -> None:
        self.releases, self.data, self._base = base / "releases", base / "data", base
        self.data.mkdir()
        self.names = copied(releases, self.releases, served=0)
        self._n = 0

    def serving(self, **settings: str) -> Any:
        self._n += 1
        more = {"watch_seconds": "0.05", "data_dir": str(self.data), **settings}
        return serving(self.releases, self._base / f"log{self._n}", **more)


@pytest.fixture
def place(tmp_path: Path, releases: Path) -> Place:
    return Place(tmp_path, releases)


@pytest.fixture
def server_of(place: Place) -> Iterator[Running]:
    with place.serving() as running:
        yield running


def start(running: Running, key: str | None = None, **asked: Any) -> httpx.Response:
    headers = ADMIN if key is None else {**ADMIN, "Idempotency-Key": key}
    return running.http.post("/labelwise", json=asked, headers=headers)


def job_of(running: Running, where: str) -> dict[str, Any]:
    answer = running.http.get(where)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found.keys() == set(Job.__struct_fields__)
    return found


def ended(running: Running, where: str) -> dict[str, Any]:
    eventually(lambda: job_of(running, where)["ended"] is not None)
    return job_of(running, where)


def twin_of_a_table_ad(releases: Path) -> tuple[str, dict[str, str]]:
    """A query of the table, and an ad that says what its best ad says."""
    served = Served.open(releases / str(current(releases)))
    query, row = next(iter(served.table.rows()))
    texts = served.catalogue.texts(["title", "text"]).slice(int(row.ads[0]), 1).to_pylist()[0]
    return query, {**NEW, **texts}


def test_added_ads_become_a_release_that_is_served(place: Place, server_of: Running) -> None:
    query, new = twin_of_a_table_ad(place.releases)
    answer = start(server_of, ads=[new])
    assert answer.status_code == 202, answer.text
    where = answer.headers["location"]
    assert answer.json()["state"] == "queued"
    assert where == f"/jobs/{answer.json()['id']}"
    job = ended(server_of, where)
    assert (job["state"], job["progress"], job["detail"]) == ("succeeded", 1.0, None)
    assert job["release"] == current(place.releases)
    eventually(lambda: server_of.predict(query=query).json()["release"] == job["release"])
    assert "brand-new" in {ad["ad"] for ad in server_of.http.get(f"/table/{query}").json()["ads"]}
    before, after = (open_catalogue(place.releases / name / "catalogue") for name in (place.names[0], job["release"]))
    assert list(after.ids.all()) == [*before.ids.all(), "brand-new"]
    assert after.live.all()
    assert read_release(place.releases / job["release"])["run"] == job["id"]
    assert [one["id"] for one in server_of.http.get("/jobs").json()["jobs"]] == [job["id"]]
    assert server_of.metric('xreg_jobs{state="succeeded"}') == 1
    assert not list((place.releases / ".jobs").glob("*/ads.*"))  # nobody needs them any more


def test_the_same_key_is_the_same_job_and_another_request_needs_another(server_of: Running, place: Place) -> None:
    _, new = twin_of_a_table_ad(place.releases)
    first, again = start(server_of, "night-1", ads=[new]), start(server_of, "night-1", ads=[new])
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.headers["location"] == again.headers["location"]
    other = start(server_of, "night-1", ads=[{**new, "title": "other"}])
    assert (other.status_code, other.json()["errors"][0]["pointer"]) == (422, "/Idempotency-Key")
    assert len(server_of.http.get("/jobs").json()["jobs"]) == 1
    assert server_of.http.delete(first.headers["location"], headers=ADMIN).status_code == 200


def test_a_file_replaces_the_catalogue_and_one_that_cannot_be_read_fails_with_its_cause(
    place: Place, server_of: Running
) -> None:
    catalogue = open_catalogue(place.releases / place.names[0] / "catalogue").texts().to_pylist()
    (place.data / "ads").mkdir()
    with (place.data / "ads" / "now.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, catalogue[0])
        writer.writeheader()
        writer.writerows(catalogue[5:])
    (place.data / "bad.csv").write_text("ad_id,title\na,b\n")
    good = start(server_of, file="ads/now.csv", mode="replace")
    bad = start(server_of, file="bad.csv")
    job = ended(server_of, good.headers["location"])
    assert (job["state"], job["ads"], job["mode"]) == ("succeeded", "ads/now.csv", "replace")
    assert open_catalogue(place.releases / job["release"] / "catalogue").live.sum() == len(catalogue) - 5
    failed = ended(server_of, bad.headers["location"])
    assert failed["state"] == "failed"
    assert "needed are ad_id, title, text, url" in failed["detail"]
    assert current(place.releases) == job["release"]
    late = server_of.http.delete(bad.headers["location"], headers=ADMIN)
    assert (late.status_code, late.json()["type"]) == (409, "urn:xreg:problem:ended")


def test_nothing_outside_the_data_directory_can_be_named(place: Place, server_of: Running, tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text("ad_id,title,text,url\nsecret,secret,secret,\n")
    (place.data / "out.csv").symlink_to(outside)
    (place.data / "up").symlink_to(tmp_path)
    (place.data / "loop.csv").symlink_to("loop.csv")
    (place.data / "folder.csv").mkdir()
    os.mkfifo(place.data / "pipe.csv")
    (place.data / "text.txt").write_text("x")
    named = ["../outside.csv", str(outside), "out.csv", "up/outside.csv", "loop.csv", "folder.csv", "pipe.csv"]
    for file in [*named, "missing.csv", "text.txt", "a\0.csv", "folder.csv/../../outside.csv", "x" * 500 + ".csv", "."]:
        answer = start(server_of, file=file)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/file"), file
    (place.data / "in.csv").symlink_to("real.csv")
    (place.data / "real.csv").write_text("ad_id,title,text,url\n")
    assert start(server_of, file="in.csv").status_code == 202  # a link inside is a file like any other
    assert len(server_of.http.get("/jobs").json()["jobs"]) == 1


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({}, ""),
        ({"ads": []}, "/ads"),
        ({"ads": [NEW], "file": "a.csv"}, "/file"),
        ({"ads": [NEW, NEW]}, "/ads/1"),
        ({"ads": [{"ad_id": "a"}]}, "/ads/0/title"),
        ({"ads": [{**NEW, "bid": -1}]}, "/ads/0/bid"),
        ({"ads": [{**NEW, "colour": "red"}]}, "/ads/0/colour"),
        ({"ads": [NEW], "mode": "remove"}, "/mode"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_its_field(server: Running, asked: dict[str, Any], pointer: str) -> None:
    answer = start(server, **asked)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert answer.json()["errors"][0]["detail"]


def test_jobs_need_the_token_where_there_is_one_and_unknown_jobs_are_not_found(server: Running) -> None:
    assert server.http.post("/labelwise", json={}).status_code == 401
    assert server.http.delete("/jobs/x").status_code == 401
    for answer in (server.http.get("/jobs/x"), server.http.delete("/jobs/x", headers=ADMIN)):
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:xreg:problem:unknown-job")


def test_a_job_is_cancelled_before_it_begins_and_while_it_runs(place: Place, server_of: Running) -> None:
    _, new = twin_of_a_table_ad(place.releases)
    running, waiting = (start(server_of, ads=[new]).headers["location"] for _ in range(2))
    eventually(lambda: job_of(server_of, running)["state"] == "running")
    assert server_of.http.delete(waiting, headers=ADMIN).json()["state"] == "cancelled"
    assert server_of.http.delete(running, headers=ADMIN).status_code == 200
    assert ended(server_of, running)["state"] == "cancelled"
    assert server_of.http.delete(running, headers=ADMIN).json()["state"] == "cancelled"  # once more does no harm
    assert listing(place.releases) == place.names
    assert current(place.releases) == place.names[0]


def processes_of(job: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if job.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("moment", ["accepted", "begun", "working"])
def test_a_job_outlives_a_service_that_is_killed_and_publishes_once(place: Place, moment: str) -> None:
    query, new = twin_of_a_table_ad(place.releases)
    with place.serving() as first:
        where = start(first, ads=[new]).headers["location"]
        job = where.removeprefix("/jobs/")
        if moment != "accepted":
            eventually(lambda: bool(processes_of(job)))
        if moment == "working":
            eventually(lambda: (place.releases / ".table").exists() or job_of(first, where)["ended"] is not None)
        first.process.kill()
        first.process.wait(30)
    with place.serving() as second:
        done = ended(second, where)
        assert (done["state"], done["detail"]) == ("succeeded", None)
        eventually(lambda: not processes_of(job))
        assert len(listing(place.releases)) == len(place.names) + 1
        assert current(place.releases) == done["release"]
        eventually(lambda: "brand-new" in second.http.get(f"/table/{query}").text)


def test_a_job_goes_on_after_a_graceful_restart(place: Place) -> None:
    _, new = twin_of_a_table_ad(place.releases)
    with place.serving() as first:
        where = start(first, ads=[new]).headers["location"]
        eventually(lambda: job_of(first, where)["state"] == "running")
    assert first.process.returncode == 0
    assert not processes_of(where.removeprefix("/jobs/"))
    with place.serving() as second:
        assert ended(second, where)["state"] == "succeeded"


def test_a_job_whose_process_dies_is_tried_again(place: Place, server_of: Running) -> None:
    _, new = twin_of_a_table_ad(place.releases)
    where = start(server_of, ads=[new]).headers["location"]
    job = where.removeprefix("/jobs/")
    eventually(lambda: bool(processes_of(job)))
    os.kill(processes_of(job)[0], signal.SIGKILL)
    assert ended(server_of, where)["state"] == "succeeded"


def test_of_several_workers_one_runs_the_jobs_and_another_takes_over(place: Place) -> None:
    _, new = twin_of_a_table_ad(place.releases)
    with place.serving(workers="2") as running:
        where = start(running, ads=[new]).headers["location"]
        job = where.removeprefix("/jobs/")
        eventually(lambda: bool(processes_of(job)))
        [process] = processes_of(job)
        parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        with suppress(httpx.TransportError):  # whoever talked to that worker is cut off, once
            running.http.get("/health/live")
        assert ended(running, where)["state"] == "succeeded"
        eventually(lambda: running.metric("xreg_workers") == 2)
    assert len(listing(place.releases)) == len(place.names) + 1
