"""A shadow answers a share of the requests a second time, off their way, and says how far the answers agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.served import Served
from service.holder import open_release
from service.settings import Settings
from service.shadow import Shadow
from service.telemetry import Telemetry
from tests.service.server import copied, eventually, serving
from tests.service.test_predict import queries


def test_the_shadow_is_compared_with_what_was_answered(releases: Path, tmp_path: Path, served: Served) -> None:
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    settings = {"watch_seconds": "0", "shadow": names[1], "shadow_share": "1", "cache": "0"}
    with serving(directory, tmp_path / "log", **settings) as running:
        eventually(lambda: "shadow loaded" in {event["event"] for event in running.events()})
        asked = queries(served)
        given = [{ad["ad"] for ad in running.predict(query=query).json()["ads"]} for query in asked]
        eventually(lambda: running.metric('xreg_shadow_total{result="compared"}') == len(asked))
        other = Served.open(directory / names[1])
        tried = [set(other.ids(query)) for query in asked]
        shares = [len(a & b) / max(len(a), len(b)) if a or b else 1.0 for a, b in zip(given, tried, strict=True)]
        assert min(shares) < 1  # the second release lacks ads of the first
        assert running.metric("xreg_shadow_overlap_count") == len(asked)
        assert running.metric("xreg_shadow_overlap_sum") == pytest.approx(sum(shares))
        assert running.metric(f'xreg_release_info{{release="{names[0]}"}}') == 1
        features = {"indices": [served.text.n_features - 1], "values": [1.0]}
        assert running.predict(features=features).status_code == 200
        assert running.metric('xreg_shadow_total{result="dropped"}') == 0


def test_a_shadow_that_cannot_be_opened_is_said_and_answers_go_on(releases: Path, tmp_path: Path) -> None:
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    (directory / names[1] / "calibration.json").write_text("{}")
    settings = {"watch_seconds": "0", "shadow": names[1], "shadow_share": "1"}
    with serving(directory, tmp_path / "log", **settings) as running:
        eventually(lambda: "shadow refused" in {event["event"] for event in running.events()})
        assert running.predict(query="a").json()["release"] == names[0]


def test_what_it_cannot_keep_up_with_is_dropped_and_counted(releases: Path, served: Served) -> None:
    name = served.catalogue.path.parent.name
    telemetry = Telemetry()
    shadow = Shadow(Settings(releases=releases, shadow_share=1.0), name, telemetry)
    release = open_release(releases / name)
    found = release.served.answer("chair")
    shadow.offer(b"{}", release, found)  # not open yet: nothing to compare with
    shadow._release = release
    for _ in range(300):
        shadow.offer(b"{}", release, found)
    assert telemetry.counts.series("xreg_shadow", "dropped")[0] == 300 - 256


def test_a_share_is_a_share(releases: Path, served: Served) -> None:
    name = served.catalogue.path.parent.name
    release = open_release(releases / name)
    for share, least, most in ((0.0, 0, 0), (0.5, 60, 140), (1.0, 200, 200)):
        shadow = Shadow(Settings(releases=releases, shadow_share=share), name, Telemetry())
        shadow._release = release
        for _ in range(200):
            shadow.offer(b"{}", release, release.served.answer("chair"))
        assert least <= len(shadow._offers) <= most
