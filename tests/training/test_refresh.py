"""The nightly job: from a data set to a served release; killed anywhere it ends the same; two at once do not mix."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core import releases as releases_module
from core.errors import DataError, ModelError, ReleaseError, ResumeError
from core.merge import SOURCES
from core.releases import current, listing, read_release
from core.served import Served
from tests.training.market import digest_of
from tests.training.nightly import PARAMS, PLAN, answered, tabled, terms
from training.clicks import open_clicks
from training.ingest.options import IngestOptions
from training.ingest.run import ingest
from training.release.refresh import Plan, publish_parts, refresh
from training.release.staging import served_release


class Killed(BaseException):
    """Stands for the end of a process."""


def until(step: str) -> Any:
    def on_step(name: str, done: int, total: int) -> None:
        if name == step:
            raise Killed

    return on_step


def test_a_refresh_publishes_a_release_that_opens_and_answers_known_and_unseen_queries(
    market: Path, night: Path
) -> None:
    clicks, name = open_clicks(market / "clicks"), current(night)
    assert name is not None
    assert listing(night) == [name]
    assert name.startswith("2026-11-16T02-00-00Z-")
    assert sorted(path.name for path in night.iterdir()) == [".lock", name, "CURRENT"]  # no work is left
    served = Served.open(night / name)
    for query in clicks.queries[: clicks.known : 20]:
        found = served.answer(query)
        assert found.reason is None
        assert set(found.merged.sources) & {SOURCES.index("table"), SOURCES.index("both")}
    for query in clicks.queries[clicks.known :]:
        found = served.answer(query)
        assert served.table.get(query) is None
        assert len(found.merged.ads) == 10
        assert set(found.merged.sources) == {SOURCES.index("model")}
        assert ((found.merged.scores > 0) & (found.merged.scores <= 1)).all()


def test_the_manifest_says_how_the_release_came_about_and_how_good_it_is(market: Path, night: Path) -> None:
    release = served_release(night)
    manifest = read_release(release)
    assert manifest["kind"] == "refresh"
    assert manifest["parent"] is None
    assert manifest["plan"]["online"]["trees"] == PARAMS.trees
    assert manifest["gate"] == {"forced": False, "checks": []}  # nothing was served before
    assert manifest["merge"]["weight"] in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert {"WP@5", "XMAD@5", "ECE@10", "query coverage", "table queries", "megabytes"} <= manifest["figures"].keys()
    assert manifest["figures"]["WP@5"] > 40
    assert len(manifest["golden"]) == 16
    Served.open(release).check_golden(manifest["golden"])
    facts = json.loads((release / "stats.json").read_text())
    assert {"merged", "table", "model", "popular", "bm25", "memory"} <= facts["figures"].keys()
    assert facts["figures"]["merged"] == manifest["figures"]
    assert facts["counts"] == {"ads": 300, "queries": open_clicks(market / "clicks").known, "table rows": 558}
    report = (release / "report.html").read_text()
    assert "<svg" in report
    assert "src=" not in report  # everything is in the page


def test_a_release_that_answers_otherwise_than_it_was_judged_is_refused(night: Path) -> None:
    golden = read_release(served_release(night))["golden"]
    wrong = [*golden[:-1], {**golden[-1], "ads": golden[-1]["ads"][::-1]}]
    with pytest.raises(ModelError, match="was answered with"):
        Served.open(served_release(night)).check_golden(wrong)


def test_ads_that_nobody_has_clicked_are_in_the_table_and_answered(market: Path, night: Path) -> None:
    clicks, served = open_clicks(market / "clicks"), Served.open(served_release(night))
    ids = clicks.ads["ad_id"].to_pylist()
    never = {ids[i] for i in np.setdiff1d(np.arange(len(ids)), clicks.train.ad)}
    assert len(never) == 30
    assert len(never & tabled(served)) > 25
    assert never & answered(served, clicks.queries[: clicks.known])


def renames(below: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where things are renamed to, below a directory, from now on."""
    places: list[str] = []

    def noted(real: Any) -> Any:
        def call(source: Any, to: Any) -> None:
            if below in Path(to).parents:
                places.append(os.path.relpath(to, below))
            real(source, to)

        return call

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, noted(getattr(os, name)))
    return places


def test_a_refresh_killed_anywhere_and_started_again_ends_byte_for_byte_the_same(
    market: Path, releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, old, whole = market / "clicks", current(releases), Path(shutil.copytree(releases, tmp_path / "whole"))
    places = renames(whole, monkeypatch)
    new = refresh(data, PLAN, terms(whole, days=1, threads=1))
    monkeypatch.undo()
    assert len(places) > 50
    assert places[-3:] == [new, "CURRENT", "..refresh.finished"]
    chosen = [*places[1:-8:6], ".refresh/table", *places[-4:]]
    command = [sys.executable, "-m", "tests.training.killed", data, releases, "1", *chosen]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [int(code) for code, _ in lines] == [-signal.SIGKILL] * len(chosen) + [0], done.stderr
    assert [name for _, name in lines] == [old] * (len(chosen) - 1) + [new] * 2  # old until CURRENT is replaced
    assert digest_of(releases) == digest_of(whole)
    assert not (releases / ".refresh").exists()


def test_work_that_another_job_left_is_cleared_and_not_mixed_in(market: Path, night: Path, tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    other = replace(PARAMS, max_leaf=30)
    with pytest.raises(Killed):
        refresh(market / "clicks", Plan(other, other), terms(releases, days=5, on_step=until("judging")))
    assert (releases / ".refresh" / "table").is_dir()
    assert refresh(market / "clicks", PLAN, terms(releases)) == current(night)
    assert digest_of(releases) == digest_of(night)


def test_two_refreshes_at_once_do_not_mix(market: Path, releases: Path) -> None:
    old, seen = current(releases), []

    def another(name: str, done: int, total: int) -> None:
        if name not in seen:
            seen.append(name)
            with pytest.raises(ResumeError, match="is being worked on by another process"):
                refresh(market / "clicks", PLAN, terms(releases, days=2))
            assert current(releases) == old

    new = refresh(market / "clicks", PLAN, terms(releases, days=1, on_step=another))
    assert seen == ["training, online", "training, labelwise", "filling the table", "judging", "publishing"]
    assert listing(releases) == [old, new]
    assert read_release(releases / new)["parent"] == old


def test_a_refresh_while_somebody_publishes_is_refused_and_goes_on_later(market: Path, releases: Path) -> None:
    old = current(releases)
    with (releases / releases_module._LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ReleaseError, match="another process is publishing; try again"):
            refresh(market / "clicks", PLAN, terms(releases, days=1))
    assert current(releases) == old
    new = refresh(market / "clicks", PLAN, terms(releases, days=3))
    assert new.startswith("2026-11-17")  # it is the run that was begun then
    assert current(releases) == new


def test_nothing_held_out_is_published_without_a_judgement(market: Path, tmp_path: Path) -> None:
    ingest([market / "events.parquet"], market / "ads.csv", tmp_path / "all", IngestOptions(hold_out=0))
    name = refresh(tmp_path / "all", PLAN, terms(tmp_path / "releases"))
    served = Served.open(tmp_path / "releases" / name)
    assert served.rule.maps == {}
    assert answered(served, open_clicks(tmp_path / "all").queries[:5])


def test_parts_of_other_data_are_refused(market: Path, night: Path, tmp_path: Path) -> None:
    release = served_release(night)
    parts = {name: release / name for name in ("online", "labelwise", "table")}
    with pytest.raises(ModelError, match="online direction has 300 and"):
        publish_parts(market / "clicks", {**parts, "online": release / "labelwise"}, terms(tmp_path / "releases"))
    with pytest.raises(DataError, match="not a data set of clicks"):
        publish_parts(market, parts, terms(tmp_path / "releases"))
    assert current(tmp_path / "releases") is None
    name = publish_parts(market / "clicks", parts, terms(tmp_path / "releases"))
    assert read_release(tmp_path / "releases" / name)["figures"] == read_release(release)["figures"]
