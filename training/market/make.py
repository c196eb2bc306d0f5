"""A market of which we know the truth: ads, queries, what was shown and clicked, and how likely every click was.

It stands in for what an ads team has (a catalogue and a log) where evaluation wants what nobody has: the probability
behind the clicks. It reads like English, so the way from raw files is the real one; its habits (position bias, rare
queries, ambiguous words, ads that appear after training) are those a system must cope with. One seed decides all.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from core.errors import UsageError
from core.format import written_aside
from training.market.ads import Ads, make_ads
from training.market.log import EXAMINATION, PAGES, PLACES, Events, Visits, make_events, make_visits
from training.market.queries import make_queries
from training.market.truth import BASE_RATE, FLOOR, Truth, make_truth
from training.market.words import Language, language

OnProgress = Callable[[int, int], None]  # done, total
START = datetime(2026, 1, 1, tzinfo=UTC)
HELD_OUT = 0.9  # of the time: what comes later is held out
_ROWS = 1 << 18  # of a Parquet row group
_LEAST_ADS = 100


@dataclass(frozen=True)
class MarketSize:
    """How large the market is; `events` counts impressions, the shares are of ads and of queries."""

    ads: int = 2_000
    queries: int = 5_000
    events: int = 200_000
    days: int = 30
    new_ads: float = 0.1
    new_queries: float = 0.05
    seed: int = 0

    def validate(self) -> None:
        if self.ads < _LEAST_ADS or self.queries < 1 or self.days < 1 or self.seed < 0:
            raise UsageError(f"a market needs {_LEAST_ADS} ads, 1 query and 1 day at least, and a seed ≥ 0; got {self}")
        if self.events < PLACES * self.queries:
            raise UsageError(
                f"every query is shown {PLACES} ads at least once: {self.queries} queries need "
                f"{PLACES * self.queries} events or more, got {self.events}"
            )
        for name, share in (("new ads", self.new_ads), ("new queries", self.new_queries)):
            if not 0.0 <= share <= 0.5:
                raise UsageError(f"the share of {name} must be 0 … 0.5, got {share}")


def make_market(out: Path, size: MarketSize, on_progress: OnProgress | None = None) -> None:
    """Write ads.csv, events.parquet, truth.parquet and market.json into the new directory `out`."""
    size.validate()
    if out.exists():
        raise UsageError(f"{out} exists; a market is written into a new directory")
    words = language()
    n_visits = -(-size.events // PLACES)
    tick = _ticker(on_progress, 4 + len(words.categories) + -(-n_visits // PAGES))
    ads = make_ads(words, size.ads, Random(f"{size.seed} ads"))
    tick()
    queries = make_queries(words, ads, size.queries, Random(f"{size.seed} queries"))
    tick()
    truth = make_truth(words, ads, queries, tick)
    random = np.random.default_rng([size.seed, 9])
    born = _births(words, ads, size.new_ads, random)
    visits = make_visits(queries.rarity, n_visits, HELD_OUT, size.new_queries, random)
    names = pa.array([f"ad{ad:07d}" for ad in range(size.ads)])
    texts = pa.array(queries.texts)
    with written_aside(out) as aside:
        _write_ads(aside / "ads.csv", ads, names.to_pylist())
        tick()
        _write_truth(aside / "truth.parquet", truth, texts, names)
        tick()
        events = make_events(truth, ads, queries, born, visits, random)
        with pq.ParquetWriter(aside / "events.parquet", _EVENTS) as writer:
            for part in events:
                left = size.events - PLACES * int(part.visit[0])
                writer.write_table(_event_rows(part, visits, texts, names, size.days).slice(0, left))
                tick()
        new = [names[int(ad)].as_py() for ad in np.flatnonzero(born > 0.0)]
        (aside / "market.json").write_text(json.dumps(_facts(size, new, len(truth.key)), indent=2) + "\n")


_EVENTS = pa.schema(
    {
        "query": pa.string(),
        "ad_id": pa.string(),
        "position": pa.int32(),
        "clicked": pa.int32(),
        "time": pa.timestamp("ms", "UTC"),
    }
)
_TRUTH = pa.schema({"query": pa.string(), "ad_id": pa.string(), "probability": pa.float32()})


def _ticker(on_progress: OnProgress | None, total: int) -> Callable[[], None]:
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if on_progress:
            on_progress(done, total)

    return tick


def _births(words: Language, ads: Ads, share: float, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """When each ad appears: 0, or for a share of them some time in the first half of what is held out.

    The first ad of every product type is old: new ads are of the kinds that were there.
    """
    first = np.unique(ads.kind, return_index=True)[1]
    later = np.setdiff1d(np.arange(len(ads.kind)), first)
    new = random.choice(later, min(len(later), round(share * len(ads.kind))), replace=False)
    born = np.zeros(len(ads.kind))
    born[new] = HELD_OUT + random.random(len(new)) * (1.0 - HELD_OUT) / 2
    return born


def _write_ads(path: Path, ads: Ads, names: list[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("ad_id", "title", "text", "url", "bid", "quality"))
        writer.writerows((name, *page) for name, page in zip(names, ads.pages, strict=True))


def _write_truth(path: Path, truth: Truth, texts: pa.Array, names: pa.Array) -> None:
    with pq.ParquetWriter(path, _TRUTH) as writer:
        for start in range(0, len(truth.key), _ROWS):
            part = truth._replace(
                key=truth.key[start : start + _ROWS], probability=truth.probability[start : start + _ROWS]
            )
            columns = [texts.take(pa.array(part.query)), names.take(pa.array(part.ad)), pa.array(part.probability)]
            writer.write_table(pa.table(columns, schema=_TRUTH))


def _event_rows(part: Events, visits: Visits, texts: pa.Array, names: pa.Array, days: int) -> pa.Table:
    span = days * 86_400_000
    time = int(START.timestamp() * 1000) + np.rint(visits.time[part.visit] * span).astype(np.int64)
    columns = [
        texts.take(pa.array(visits.query[part.visit])),
        names.take(pa.array(part.ad)),
        pa.array(part.position),
        pa.array(part.clicked),
        pa.array(time).cast(_EVENTS.field("time").type),
    ]
    return pa.table(columns, schema=_EVENTS)


def _facts(size: MarketSize, new_ads: list[str], n_pairs: int) -> dict[str, object]:
    span = timedelta(days=size.days)
    return {
        "format": "xreg-market",
        "version": 1,
        "size": asdict(size),
        "base_rate": BASE_RATE,
        "floor": FLOOR,
        "pairs": n_pairs,
        "examination": list(EXAMINATION),
        "start": START.isoformat(),
        "held_out_start": (START + HELD_OUT * span).isoformat(),
        "end": (START + span).isoformat(),
        "new_ads": new_ads,
    }
