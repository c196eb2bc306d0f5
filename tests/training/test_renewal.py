"""What is served is renewed without training: a changed catalogue fills the table anew, a fresh log refits the maps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import DataError, ReleaseError
from core.releases import current, listing, read_release
from core.served import RULE, Served
from tests.training.nightly import PLAN, answered, read_ads, tabled, terms, write_ads
from training.clicks import Clicks, open_clicks
from training.ingest.run import ingest
from training.release.refresh import CatalogueChange, recalibrate, refresh, refresh_table
from training.release.staging import served_release


def inodes(directory: Path) -> dict[str, int]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.stat().st_ino for path in files}


@pytest.fixture
def clicks(market: Path) -> Clicks:
    return open_clicks(market / "clicks")


def often_answered(served: Served, clicks: Clicks, n: int) -> list[str]:
    """Ads that come first for a query each."""
    first = [served.ids(query, 1)[0] for query in clicks.queries[: clicks.known]]
    return list(dict.fromkeys(first))[:n]


def test_a_changed_catalogue_is_served_without_training(
    market: Path, clicks: Clicks, releases: Path, tmp_path: Path
) -> None:
    old, ads = served_release(releases), read_ads(market / "ads.csv")
    before = Served.open(old)
    gone = often_answered(before, clicks, 20)
    twin = next(ad for ad in ads if ad["ad_id"] in answered(before, clicks.queries[:50]) and ad["ad_id"] not in gone)
    dearer = next(ad for ad in ads if ad["ad_id"] not in (*gone, twin["ad_id"]))
    changed = [{**ad, "bid": "7.5"} if ad == dearer else ad for ad in ads if ad["ad_id"] not in gone]
    new = [{**twin, "ad_id": name} for name in ("aa-first", "zz-last")]
    path = write_ads(tmp_path / "ads.csv", [*new, *changed])

    name = refresh_table(CatalogueChange(path), terms(releases, days=1, force=True))
    after = Served.open(releases / name)

    known = [served.catalogue.ids.find(ad["ad_id"]) for ad in ads for served in (before, after)]
    assert known[::2] == known[1::2]  # every ad keeps its number, also one that is gone
    assert sorted(after.catalogue.ids.find(ad["ad_id"]) for ad in new) == [300, 301]
    assert after.catalogue.bid[after.catalogue.ids.find(dearer["ad_id"])] == 7.5
    assert after.catalogue.live.sum() == 300 - 20 + 2
    assert {ad["ad_id"] for ad in new} <= tabled(after)
    assert {ad["ad_id"] for ad in new} & answered(after, clicks.queries)
    assert set(gone) <= answered(before, clicks.queries)
    assert not set(gone) & tabled(after)
    assert not set(gone) & answered(after, clicks.queries, k=40)  # unseen queries too: the model does not name them
    shared, now = inodes(old), inodes(releases / name)
    parts = ("online", "labelwise", "text")
    assert {path for path in shared if now.get(path) == shared[path]} == {
        path for path in shared if path.startswith(parts)
    }
    manifest = read_release(releases / name)
    assert (manifest["kind"], manifest["parent"]) == ("table", old.name)
    assert manifest["plan"] == read_release(old)["plan"]
    assert json.loads((releases / name / "stats.json").read_text())["counts"]["ads"] == 282


def test_an_ad_that_comes_back_is_answered_under_its_old_number(
    market: Path, clicks: Clicks, releases: Path, tmp_path: Path
) -> None:
    ads = read_ads(market / "ads.csv")
    before = Served.open(served_release(releases))
    (ad,) = often_answered(before, clicks, 1)
    without = write_ads(tmp_path / "without.csv", [row for row in ads if row["ad_id"] != ad])
    refresh_table(CatalogueChange(without), terms(releases, days=1))
    assert ad not in answered(Served.open(served_release(releases)), clicks.queries)
    refresh_table(CatalogueChange(market / "ads.csv"), terms(releases, days=2))
    again = Served.open(served_release(releases))
    assert again.catalogue.ids.find(ad) == before.catalogue.ids.find(ad)
    assert {query: again.ids(query) for query in clicks.queries} == {
        query: before.ids(query) for query in clicks.queries
    }
    assert len(listing(releases)) == 3


def test_a_catalogue_that_lost_most_ads_is_stopped_by_the_gate(market: Path, releases: Path, tmp_path: Path) -> None:
    old = current(releases)
    few = [{**ad, "title": "zzz", "text": "zzz"} for ad in read_ads(market / "ads.csv")[:3]]
    with pytest.raises(ReleaseError, match="table queries fell from 558 to"):
        refresh_table(CatalogueChange(write_ads(tmp_path / "few.csv", few)), terms(releases, days=1))
    assert current(releases) == old


def test_a_catalogue_that_cannot_be_read_leaves_the_served_release(releases: Path, tmp_path: Path) -> None:
    old = current(releases)
    (tmp_path / "ads.csv").write_text("ad_id,title,text,url\n")
    with pytest.raises(DataError, match="holds no ads"):
        refresh_table(CatalogueChange(tmp_path / "ads.csv"), terms(releases, days=1))
    assert current(releases) == old
    (tmp_path / "none").mkdir()
    with pytest.raises(ReleaseError, match="nothing is published yet"):
        refresh_table(CatalogueChange(tmp_path / "ads.csv"), terms(tmp_path / "none"))


def test_added_ads_are_answered_and_all_others_stay(
    market: Path, clicks: Clicks, releases: Path, tmp_path: Path
) -> None:
    old = Served.open(served_release(releases))
    twin = next(ad for ad in read_ads(market / "ads.csv") if ad["ad_id"] in answered(old, clicks.queries[:50]))
    given = [{**twin, "ad_id": "new"}, {**twin, "bid": "7.5"}]
    change = CatalogueChange(write_ads(tmp_path / "new.csv", given), adding=True)
    after = Served.open(releases / refresh_table(change, terms(releases, days=1)))
    assert list(after.catalogue.ids.all()) == [*old.catalogue.ids.all(), "new"]
    assert after.catalogue.live.all()
    assert "new" in tabled(after)
    changed = after.catalogue.ids.find(twin["ad_id"])
    assert after.catalogue.bid[changed] == 7.5
    others = np.arange(300) != changed
    assert (after.catalogue.bid[:300][others] == old.catalogue.bid[others]).all()
    texts = after.catalogue.texts().slice(0, 300).to_pylist()
    assert texts[:changed] == old.catalogue.texts().to_pylist()[:changed]


def test_a_run_that_has_published_is_not_made_again(market: Path, releases: Path) -> None:
    change = CatalogueChange(market / "ads.csv", run="job-1")
    name = refresh_table(change, terms(releases, days=1))
    assert read_release(releases / name)["run"] == "job-1"
    assert refresh_table(change, terms(releases, days=2)) == name
    assert refresh_table(CatalogueChange(market / "ads.csv", run="job-2"), terms(releases, days=2)) != name


def test_a_release_that_is_published_meanwhile_is_built_on(market: Path, releases: Path, tmp_path: Path) -> None:
    """While a table is filled, the night publishes: the table is filled again, for what is served now."""
    published = list[str]()

    def on_step(step: str, done: int, total: int) -> None:
        if step == "publishing" and not published:
            published.append(refresh(market / "clicks", PLAN, terms(releases, days=1)))

    change = CatalogueChange(market / "ads.csv")
    name = refresh_table(change, terms(releases, days=2, on_step=on_step))
    assert current(releases) == name
    manifest = read_release(releases / name)
    assert manifest["parent"] == manifest["release"] == published[0]
    assert len(listing(releases)) == 3


def test_the_night_is_compared_with_a_table_that_was_filled_meanwhile(market: Path, releases: Path) -> None:
    published = list[str]()

    def on_step(step: str, done: int, total: int) -> None:
        if step == "publishing" and not published:
            published.append(refresh_table(CatalogueChange(market / "ads.csv"), terms(releases, days=1)))

    name = refresh(market / "clicks", PLAN, terms(releases, days=2, on_step=on_step))
    assert current(releases) == name
    assert read_release(releases / name)["parent"] == published[0]


def test_a_release_says_when_its_table_was_filled(market: Path, releases: Path) -> None:
    first = read_release(served_release(releases))
    assert first["tabled"] == first["created"]
    filled = read_release(releases / refresh_table(CatalogueChange(market / "ads.csv"), terms(releases, days=1)))
    assert filled["tabled"] == filled["created"] != first["created"]
    again = read_release(releases / recalibrate(market / "clicks", False, terms(releases, days=2, force=True)))
    assert again["tabled"] == filled["created"] != again["created"]


def with_fewer_clicks(market: Path, out: Path) -> Path:
    """A log of the market as it would be if everything were clicked a quarter as often."""
    truth, shown = pq.read_table(market / "truth.parquet"), 1000
    clicks = np.rint(truth["probability"].to_numpy() / 4 * shown).astype(np.int64)
    log = {"query": truth["query"], "ad_id": truth["ad_id"], "impressions": [shown] * len(clicks), "clicks": clicks}
    pq.write_table(pa.table(log), out.with_suffix(".parquet"))
    ingest([out.with_suffix(".parquet")], market / "ads.csv", out)
    return out


def test_recalibration_follows_a_fresh_log_and_shares_everything_else(
    market: Path, clicks: Clicks, releases: Path, tmp_path: Path
) -> None:
    old, data = served_release(releases), with_fewer_clicks(market, tmp_path / "fresh")
    name = recalibrate(data, True, terms(releases, days=1))
    before, after = Served.open(old), Served.open(releases / name)
    assert after.rule.maps
    scores = [
        np.mean([served.answer(query).merged.scores.mean() for query in clicks.queries[:200]])
        for served in (before, after)
    ]
    assert scores[1] / scores[0] < 0.5
    shared, now = inodes(old), inodes(releases / name)
    own = {RULE, "stats.json", "report.html", "manifest.json"}
    assert {path for path in shared if now[path] != shared[path]} == own
    assert (old / RULE).read_text() != (releases / name / RULE).read_text()
    manifest = read_release(releases / name)
    assert (manifest["kind"], manifest["parent"]) == ("recalibration", old.name)
    checks = {check["figure"]: check for check in manifest["gate"]["checks"]}
    assert checks["ECE@10"]["after"] < checks["ECE@10"]["before"]
    assert len(listing(releases)) == 2


def test_recalibration_on_the_log_of_training_looks_at_its_held_out_part_only(market: Path, releases: Path) -> None:
    old = served_release(releases)
    name = recalibrate(market / "clicks", False, terms(releases, days=1))
    assert (releases / name / RULE).read_text() == (old / RULE).read_text()
    figures, was = read_release(releases / name)["figures"], read_release(old)["figures"]
    assert figures["WP@5"] == was["WP@5"]
