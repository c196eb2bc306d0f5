"""Two small releases of one made-up market, made once per session: the second lacks some ads of the first."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from core.labelwise import Labelwise
from core.releases import listing
from training.ingest.run import ingest
from training.market.make import MarketSize, make_market
from training.params import CLICKS, Params
from training.release.refresh import CatalogueChange, Plan, refresh, refresh_table
from training.release.staging import Terms

N_GONE = 20  # ads at the head of the catalogue that the second release does not have
DAYS = datetime(2026, 11, 16, 2, tzinfo=UTC), datetime(2026, 11, 17, 2, tzinfo=UTC)


def small_releases(factory: pytest.TempPathFactory) -> Path:
    """A directory with both; tests copy what they change."""
    return _made(factory.getbasetemp())


@cache
def _made(base: Path) -> Path:
    market, clicks, releases = (base / f"small-{part}" for part in ("market", "clicks", "releases"))
    make_market(market, MarketSize(ads=300, queries=300, events=12_000))
    ads = market / "ads.csv"
    ingest([market / "events.parquet"], ads, clicks, threads=2)
    params, asked = Params(CLICKS, trees=2, max_leaf=30), Labelwise(top=20)
    refresh(clicks, Plan(params, params, asked=asked), Terms(releases, 2, now=DAYS[0]))
    fewer = market / "fewer.csv"
    with ads.open(newline="") as file:
        rows = list(csv.reader(file))
    with fewer.open("w", newline="") as file:
        csv.writer(file).writerows([rows[0], *rows[1 + N_GONE :]])
    refresh_table(CatalogueChange(fewer), Terms(releases, 2, force=True, now=DAYS[1]))
    assert len(listing(releases)) == 2
    return releases
