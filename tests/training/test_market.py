"""The made-up market is what it says: its clicks follow its truth, its truth follows its words."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import UsageError
from training.market.ads import APPEAL, QUALITY, SLOTS, make_ads
from training.market.make import MarketSize, make_market
from training.market.phrases import TYPED
from training.market.queries import make_queries
from training.market.truth import ATTRIBUTE, BRAND, LINE, SILENT, make_truth
from training.market.words import language, plural

SIZE = MarketSize(ads=800, queries=2_000, events=60_000, seed=3)


class Market(NamedTuple):
    ads: dict[str, dict[str, str]]
    events: pa.Table
    truth: dict[str, dict[str, float]]
    facts: dict[str, Any]

    def shelf(self, ad: str) -> str:
        return self.ads[ad]["url"].split("/")[3]

    def chance(self) -> np.ndarray:
        """The true probability of every event's pair."""
        pairs = zip(self.events["query"].to_pylist(), self.events["ad_id"].to_pylist(), strict=True)
        return np.array([self.truth[query].get(ad, self.facts["base_rate"]) for query, ad in pairs])

    def is_held_out(self) -> np.ndarray:
        start = datetime.fromisoformat(self.facts["held_out_start"]).timestamp() * 1000
        return np.array(self.events["time"].cast("int64")) >= start


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    out = tmp_path_factory.mktemp("market") / "shop"
    make_market(out, SIZE)
    with (out / "ads.csv").open(encoding="utf-8", newline="") as file:
        ads = {row["ad_id"]: row for row in csv.DictReader(file)}
    truth: dict[str, dict[str, float]] = defaultdict(dict)
    for row in pq.read_table(out / "truth.parquet").to_pylist():
        assert row["ad_id"] not in truth[row["query"]]
        truth[row["query"]][row["ad_id"]] = row["probability"]
    facts = json.loads((out / "market.json").read_text())
    return Market(ads, pq.read_table(out / "events.parquet"), dict(truth), facts)


def _digests(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
    size = MarketSize(ads=300, queries=400, events=5_001)
    make_market(tmp_path / "one", size)
    make_market(tmp_path / "two", size)
    make_market(tmp_path / "other", MarketSize(ads=300, queries=400, events=5_001, seed=1))
    one, two, other = (_digests(tmp_path / name) for name in ("one", "two", "other"))
    assert sorted(one) == ["ads.csv", "events.parquet", "market.json", "truth.parquet"]
    assert one == two
    assert all(one[name] != other[name] for name in one)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_sizes_are_those_asked_for(market: Market) -> None:
    assert len(market.ads) == SIZE.ads
    assert market.events.num_rows == SIZE.events
    assert set(market.events["query"].to_pylist()) == set(market.truth)
    assert len(market.truth) == SIZE.queries
    assert len(market.facts["new_ads"]) == round(SIZE.new_ads * SIZE.ads)
    assert market.facts["pairs"] == sum(len(row) for row in market.truth.values())
    assert set(market.events["ad_id"].to_pylist()) <= set(market.ads)


def test_progress_ends_at_its_total(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    make_market(tmp_path / "shop", MarketSize(ads=100, queries=50, events=200), lambda *at: seen.append(at))
    total = seen[0][1]
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_click_rates_by_position_are_examination_times_truth(market: Market) -> None:
    chance, clicked = market.chance(), np.array(market.events["clicked"])
    position = np.array(market.events["position"])
    assert set(position.tolist()) == {1, 2, 3, 4}
    for place, looked_at in enumerate(market.facts["examination"], 1):
        p = chance[position == place] * looked_at
        spread = np.sqrt((p * (1 - p)).sum())
        assert abs(clicked[position == place].sum() - p.sum()) < 4 * spread


def test_clicks_follow_the_truth_among_good_and_bad_pairs_alike(market: Market) -> None:
    expected = market.chance() * np.array(market.facts["examination"])[np.array(market.events["position"]) - 1]
    clicked = np.array(market.events["clicked"])
    for low, high in ((0.0, 0.001), (0.001, 0.02), (0.02, 0.1), (0.1, 1.0)):
        part = (expected >= low) & (expected < high)
        p = expected[part]
        assert part.sum() > 500
        assert abs(clicked[part].sum() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum()) + 1


def test_new_ads_come_only_after_the_training_period_and_then_do(market: Market) -> None:
    new, held_out = set(market.facts["new_ads"]), market.is_held_out()
    is_new = np.array([ad in new for ad in market.events["ad_id"].to_pylist()])
    assert not is_new[~held_out].any()
    assert len(set(np.array(market.events["ad_id"])[is_new])) > len(new) / 2
    old = {market.shelf(ad) for ad in market.ads if ad not in new}
    assert {market.shelf(ad) for ad in new} <= old


def test_time_rises_over_the_days_and_a_tenth_is_held_out(market: Market) -> None:
    time = np.array(market.events["time"].cast("int64"))
    assert (np.diff(time) >= 0).all()
    start, end = (datetime.fromisoformat(market.facts[name]).timestamp() * 1000 for name in ("start", "end"))
    assert start <= time[0] < start + 0.01 * (end - start)
    assert end - 0.01 * (end - start) < time[-1] <= end
    assert 0.08 < market.is_held_out().mean() < 0.2
    assert market.events.schema.field("time").type == pa.timestamp("ms", "UTC")


def test_probabilities_are_graded_and_everyone_has_somebody(market: Market) -> None:
    every = np.array([p for row in market.truth.values() for p in row.values()])
    assert market.facts["base_rate"] < market.facts["floor"] < every.min()
    assert every.max() < 0.5
    best = np.array([max(row.values()) for row in market.truth.values()])
    assert best.min() > 0.03
    assert 0.1 < np.median(best) < 0.4
    best_of_ad: dict[str, float] = defaultdict(float)
    for row in market.truth.values():
        for ad, p in row.items():
            best_of_ad[ad] = max(best_of_ad[ad], p)
    assert set(best_of_ad) == set(market.ads)
    assert min(best_of_ad.values()) > 0.03
    assert ((every > 0.01) & (every < 0.1)).mean() > 0.2


def test_an_ambiguous_query_has_relevant_ads_of_several_categories(market: Market) -> None:
    for word, shelves in {"throne": {"bathroom", "furniture", "games"}, "python": {"books", "courses"}}.items():
        good = {market.shelf(ad) for ad, p in market.truth[word].items() if p > 0.03}
        assert shelves <= good
    clear = [len({market.shelf(ad) for ad in row}) for row in market.truth.values()]
    assert np.mean(np.array(clear) > 1) < 0.1


def test_query_frequencies_have_a_head_and_a_long_tail(market: Market) -> None:
    seen = Counter(np.array(market.events["query"])[np.array(market.events["position"]) == 1].tolist())
    counts = np.sort(np.array(list(seen.values())))[::-1]
    assert np.mean(counts < 5) > 0.5
    assert np.mean(counts == 1) > 0.15
    assert counts[: len(counts) // 50].sum() > 0.25 * counts.sum()
    held_out = market.is_held_out()
    queries = np.array(market.events["query"])
    fresh = set(queries[held_out]) - set(queries[~held_out])
    assert len(fresh) >= 0.04 * SIZE.queries


def test_the_log_shows_good_and_bad_ads_and_none_twice_on_a_page(market: Market) -> None:
    chance = market.chance()
    assert (chance > 0.1).mean() > 0.2
    assert 0.05 < (chance == market.facts["base_rate"]).mean() < 0.4
    ads = np.array(market.events["ad_id"]).reshape(-1, 4)
    assert all(len(set(page)) == 4 for page in ads.tolist())


def test_ads_say_what_they_sell() -> None:
    words = language()
    ads = make_ads(words, 500, Random(0))
    for ad, page in enumerate(ads.pages):
        text = f"{page.title} {page.text}".lower()
        assert 30 <= len(page.text.split()) <= 70
        assert ads.brands[ads.brand[ad]].lower() in text
        assert ads.lines[ads.line[ad]].lower() in text
        assert any(name in text for noun in words.kinds[ads.kind[ad]].names for name in noun)
        for value in ads.attributes[ad]:
            assert value < 0 or words.attributes[value] in text
    assert len({page.url for page in ads.pages}) == len({(p.title, p.text) for p in ads.pages}) == 500


def _words(text: str) -> set[str]:
    """Plain stems, so that a plural meets its singular."""
    return {re.sub(r"(ie|e)?s$|y$", "", word) for word in re.findall(r"\w+", text.lower())}


def test_a_relevant_ad_shares_words_or_synonyms_with_the_query(market: Market) -> None:
    """Of the best ads of queries nearly all do, of random ads few: words tell what to show."""
    together = [_words(" ".join(n.one for n in kind.names)) for kind in language().kinds]
    together += [_words(f"{word} {others}") for word, others in TYPED.items()]
    stop = _words("for in to from the best a how online buy new of with and what is where free delivery on day do")

    def near(query: str, ad: str) -> bool:
        asked = _words(query) - stop
        for names in together:
            asked |= names if names & asked else set()
        return bool(asked & (_words(market.ads[ad]["title"]) - stop))

    random = Random(0)
    queries = sorted(market.truth)
    best = {query: max(row, key=row.__getitem__) for query, row in market.truth.items()}
    right = np.mean([near(query, best[query]) for query in queries])
    wrong = np.mean([near(query, random.choice(sorted(market.ads))) for query in queries])
    assert right > 0.9
    assert wrong < 0.3


def test_nothing_beats_an_ad_that_is_all_that_was_asked_for() -> None:
    words = language()
    ads = make_ads(words, 600, Random(1))
    queries = make_queries(words, ads, 800, Random(2))
    truth = make_truth(words, ads, queries, lambda: None)
    checked = 0
    for intent in np.flatnonzero((queries.kind >= 0) & (queries.brand >= 0) & (queries.weight == 1.0)):
        fits = (ads.kind == queries.kind[intent]) & (ads.brand == queries.brand[intent])
        fits &= (queries.line[intent] < 0) | (ads.line == queries.line[intent])
        for slot, value in zip(queries.slots[intent], queries.values[intent], strict=True):
            fits &= (value < 0) | (ads.attributes[:, slot] == value)
        assert fits.any()
        p = truth.of(np.full(len(fits), queries.query[intent]), np.arange(len(fits)))
        assert fits.all() or p[fits].min() > p[~fits].max()
        checked += 1
    assert checked > 100


def test_a_wish_met_is_worth_more_than_all_merit() -> None:
    merit = 2 * (APPEAL + QUALITY)
    assert min(met - not_met for met, not_met in (BRAND, LINE, ATTRIBUTE, (ATTRIBUTE[0], SILENT))) > merit


def test_words_grow_with_the_market() -> None:
    words = language()
    counts = []
    for n in (2_000, 20_000):
        ads = make_ads(words, n, Random(0))
        said = Counter(w for page in ads.pages for w in set(re.findall(r"\w+", f"{page.title} {page.text}".lower())))
        counts.append(len(said))
    assert counts[0] > 2_500
    assert counts[1] > 5_000


def test_the_vocabulary_is_sound() -> None:
    words = language()
    assert len(words.categories) >= 36
    assert len(words.kinds) >= 300
    names = [name for kind in words.kinds for noun in kind.names for name in set(noun)]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    for k, kind in enumerate(words.kinds):
        slots = words.categories[kind.category].slots
        values = [value for slot in slots for value in slot.values] + list(kind.uses)
        assert len(slots) < SLOTS
        assert len(values) == len(set(values)), [words.attributes[v] for v, n in Counter(values).items() if n > 1]
        said = {words.attributes[value] for value in values}
        typed = [other for word in said for other in TYPED.get(word, "").split("|")]
        assert not said & set(typed), f"{kind.names[0].one}: {said & set(typed)}"  # or a query would mean two things
        assert words.kin(words.kin(k)) == k
    for word, senses in words.ambiguous.items():
        assert len({sense.kind for sense in senses}) == len(senses) > 1
        assert all(word in phrase for sense in senses for phrase in sense.phrases)


@pytest.mark.parametrize(
    ("one", "many"),
    [("toilet", "toilets"), ("computer mouse", "computer mice"), ("welly", "wellies"), ("box", "boxes")],
)
def test_plurals(one: str, many: str) -> None:
    assert plural(one) == many


@pytest.mark.parametrize(
    ("size", "cause"),
    [
        (MarketSize(ads=5), "100 ads"),
        (MarketSize(queries=100, events=399), "400 events or more, got 399"),
        (MarketSize(new_ads=0.9), "new ads must be 0 … 0.5, got 0.9"),
    ],
)
def test_impossible_markets_are_refused(tmp_path: Path, size: MarketSize, cause: str) -> None:
    with pytest.raises(UsageError, match=cause):
        make_market(tmp_path / "shop", size)
    assert list(tmp_path.iterdir()) == []


def test_a_catalogue_that_has_no_more_to_ask_for_is_said_to_have_none() -> None:
    ads = make_ads(language(), 3, Random(0))
    with pytest.raises(UsageError, match=r"3 ads give \d+ distinct queries, not 20000: ask for more ads"):
        make_queries(language(), ads, 20_000, Random(0))


def test_a_directory_that_exists_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists"):
        make_market(tmp_path, MarketSize())
