"""From raw files to a served release as people do it, command by command; what goes wrong is one line and a code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from core.releases import current, listing
from core.served import Served
from tests.training.nightly import read_ads, write_ads
from tests.training.test_cli import xreg
from training.clicks import open_clicks
from training.release.staging import served_release

TRAIN = ("--trees", 2, "--max-leaf", 20)


def error(*args: object, code: int) -> str:
    """The one line that a command says when it fails."""
    done = xreg(*args, code=code)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line


def test_from_raw_files_to_a_served_release_and_back(tmp_path: Path) -> None:
    market, data, releases = tmp_path / "market", tmp_path / "clicks", tmp_path / "releases"
    xreg("synth", market, "--ads", 300, "--queries", 600, "--events", 30_000)
    xreg("ingest", "--events", market / "events.parquet", "--ads", market / "ads.csv", "--out", data)
    first = xreg("refresh", "--data", data, "--releases", releases, *TRAIN).stdout.strip()
    assert first == current(releases)
    served = Served.open(releases / first)
    query = open_clicks(data).queries[0]

    shown = xreg("table", "get", f" {query.upper()}!", "--releases", releases).stdout
    row = served.table.get(query)
    assert row is not None
    assert served.catalogue.ids.name(int(row.ads[0])) in shown
    assert "is not in the table of" in error("table", "get", "xqzt", "--releases", releases, code=2)

    xreg("table", "export", "--parquet", tmp_path / "t.parquet", "--releases", releases)
    exported = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [(entry["rank"], entry["ad_id"]) for entry in exported if entry["query"] == query] == [
        (rank, served.catalogue.ids.name(int(ad))) for rank, ad in enumerate(row.ads, 1)
    ]

    for direction in ("online", "labelwise"):
        xreg("train", data / direction, "--out", tmp_path / direction, "--recipe", "clicks", *TRAIN)
    xreg("fill", tmp_path / "labelwise", "--data", data, "--out", tmp_path / "table")
    assert "exists; remove it" in error(
        "fill", tmp_path / "labelwise", "--data", data, "--out", tmp_path / "table", code=2
    )
    parts = ("--online", tmp_path / "online", "--labelwise", tmp_path / "labelwise", "--table", tmp_path / "table")
    second = xreg("publish", "--data", data, "--releases", releases, *parts).stdout.strip()
    assert second == current(releases) != first
    by_hand = Served.open(releases / second)
    assert by_hand.ids(query) == served.ids(query)  # the same models, the same table

    ads = write_ads(tmp_path / "ads.csv", read_ads(market / "ads.csv")[10:])
    third = xreg("refresh", "--table-only", "--ads", ads, "--releases", releases, "--keep", 2).stdout.strip()
    assert listing(releases) == [second, third]
    fourth = xreg("recalibrate", "--data", data, "--releases", releases).stdout.strip()
    assert xreg("rollback", "--releases", releases).stdout.strip() == third == current(releases)
    xreg("rollback", "--to", fourth, "--releases", releases)

    (releases / second / "stats.json").write_text("{}")
    lines = xreg("releases", "--releases", releases).stdout
    for word in ("served", "damaged", "table", "recalibra"):
        assert word in lines
    assert "is no release in" in error("rollback", "--to", "none", "--releases", releases, code=2)
    assert current(releases) == fourth


def test_a_refusal_of_the_gate_has_its_own_code(market: Path, releases: Path, tmp_path: Path) -> None:
    old, poor = current(releases), tmp_path / "poor"
    files = ("--events", market / "events.parquet", "--ads", market / "ads.csv")
    xreg("ingest", *files, "--out", poor, "--most-words", 20)
    line = error("refresh", "--data", poor, "--releases", releases, code=8)
    assert "WP@5 fell from" in line
    assert "--force" in line
    assert current(releases) == old


@pytest.mark.parametrize(
    ("events", "ads", "message"),
    [
        ("query,ad\nred,a\n", "ad_id,title,text,url\na,t,t,u\n", "events.csv"),
        ("query,ad_id\nred,a\n", "ad_id,title\na,t\n", "needed are ad_id, title, text, url"),
        ("query,ad_id\nred,a\n", "ad_id,title,text,url\n", "the catalogue holds no ads"),
        ("query,ad_id\nred,a\n", "ad_id,title,text,url\na,t,t,u\na,t,t,u\n", "ad_id 'a' occurs 2 times"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(tmp_path: Path, events: str, ads: str, message: str) -> None:
    (tmp_path / "events.csv").write_text(events)
    (tmp_path / "ads.csv").write_text(ads)
    paths = ("--events", tmp_path / "events.csv", "--ads", tmp_path / "ads.csv", "--out", tmp_path / "out")
    assert message in error("ingest", *paths, code=3)
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_said(night: Path, tmp_path: Path) -> None:
    releases = Path(shutil.copytree(night, tmp_path / "releases"))
    old = current(releases)
    none = tmp_path / "none"
    assert "not a data set of clicks: `xreg ingest`" in error("refresh", "--data", none, "--releases", releases, code=3)
    assert "give --data DATASET, or --table-only" in error("refresh", "--releases", releases, code=2)
    ads = ("refresh", "--table-only", "--ads", none / "ads.csv", "--releases", releases)
    assert "no such file" in error(*ads, code=3)
    (tmp_path / "twice.csv").write_text("ad_id,title,text,url\na,t,t,u\na,t,t,u\n")
    ads = ("refresh", "--table-only", "--ads", tmp_path / "twice.csv", "--releases", releases)
    assert "occurs 2 times" in error(*ads, code=3)
    assert "no such directory" in error("releases", "--releases", none, code=7)
    none.mkdir()
    assert "nothing is published yet" in error("table", "get", "shoes", "--releases", none, code=7)
    assert current(releases) == old
    assert json.loads((served_release(releases) / "manifest.json").read_text())["kind"] == "refresh"
