"""A small market, the plan that every test of the release trains by, and what tests ask about releases."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from core.served import Served
from training.ingest.run import ingest
from training.market.make import MarketSize, make_market
from training.params import CLICKS, Params
from training.release.refresh import Plan
from training.release.staging import Terms

WHEN = datetime(2026, 11, 16, 2, tzinfo=UTC)
SIZE = MarketSize(ads=300, queries=600, events=30_000)
PARAMS = Params(CLICKS, trees=2, max_leaf=20)
PLAN = Plan(PARAMS, PARAMS)


def terms(releases: Path, days: int = 0, threads: int = 2, **more: Any) -> Terms:
    """The night that is so many days after the first."""
    return Terms(releases, threads, now=WHEN + timedelta(days=days), **more)


def make_clicks(out: Path) -> Path:
    """ads.csv and events.parquet of a market, and `clicks`, the data set made of them."""
    make_market(out, SIZE)
    ingest([out / "events.parquet"], out / "ads.csv", out / "clicks")
    return out


def read_ads(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_ads(path: Path, ads: Sequence[Mapping[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(ads[0]))
        writer.writeheader()
        writer.writerows(ads)
    return path


def answered(served: Served, queries: Sequence[str], k: int = 10) -> set[str]:
    """All ads that any of these queries is answered with."""
    return {ad for query in queries for ad in served.ids(query, k)}


def tabled(served: Served) -> set[str]:
    """All ads of the table."""
    return {served.catalogue.ids.name(int(ad)) for _, row in served.table.rows() for ad in row.ads}
