"""A release, opened: what may be asked of it, and that the answers keep to it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from core.merge import Merger, MergeRule
from core.releases import listing
from core.served import Served, Wanted, reach
from tests.small_releases import N_GONE, small_releases


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_releases(tmp_path_factory)


@pytest.fixture(scope="module")
def first(releases: Path) -> Served:
    return Served.open(releases / listing(releases)[0])


@pytest.fixture(scope="module")
def second(releases: Path) -> Served:
    """Lacks the first ads of the catalogue."""
    return Served.open(releases / listing(releases)[1])


def known(served: Served) -> list[str]:
    return [query for query, _ in served.table.rows()][:40]


EVERYTHING = [
    Wanted(100),
    Wanted(100, source="table"),
    Wanted(100, source="model", beam=50),
    Wanted(100, rank="revenue"),
    Wanted(100, candidates=range(300)),
    Wanted(100, exclude=range(100, 120)),
]


@pytest.mark.parametrize("wanted", EVERYTHING, ids=lambda wanted: str(wanted._asdict()))
def test_a_removed_ad_is_never_answered(second: Served, wanted: Wanted) -> None:
    assert second.catalogue.gone.tolist() == list(range(N_GONE))
    for query in known(second):
        ads = second.ask(query, wanted).merged.ads
        assert len(ads)
        assert ads.min() >= N_GONE


def test_k_answers_survive_exclusion_and_none_of_the_excluded(first: Served) -> None:
    for query in known(first):
        best = first.ask(query, Wanted(10)).merged.ads.tolist()
        found = first.ask(query, Wanted(10, exclude=best)).merged.ads.tolist()
        assert len(found) == 10
        assert not set(found) & set(best)


def test_only_candidates_are_answered_and_nobody_where_there_are_none(first: Served) -> None:
    for query in known(first):
        found = first.ask(query, Wanted(100, candidates=[5, 17, 200])).merged.ads.tolist()
        assert set(found) <= {5, 17, 200}
        nobody = first.ask(query, Wanted(candidates=[]))
        assert (len(nobody.merged.ads), nobody.reason) == (0, "nothing_found")


def test_a_candidate_that_is_excluded_is_not_answered(first: Served) -> None:
    query = known(first)[0]
    best = first.answer(query).merged.ads.tolist()
    found = first.ask(query, Wanted(candidates=best, exclude=best[:3])).merged.ads.tolist()
    assert sorted(found) == sorted(best[3:])


def test_by_revenue_ads_compete_by_probability_times_bid_times_quality(first: Served) -> None:
    value = first.catalogue.bid * first.catalogue.quality
    for query in known(first):
        found = first.ask(query, Wanted(20, 0.001, rank="revenue"))
        assert found.worth.tolist() == (found.merged.scores * value[found.merged.ads]).tolist()
        assert all(a >= b for a, b in pairwise(found.worth.tolist()))
        assert (found.merged.scores >= np.float32(0.001)).all()
        plain = first.ask(query, Wanted(20, 0.001)).merged
        assert found.worth.sum() >= 0.95 * (plain.scores * value[plain.ads]).sum()


def test_the_table_alone_speaks_by_its_own_map(first: Served) -> None:
    merger = Merger(MergeRule(1.0, {name: first.rule.maps[name] for name in first.rule.maps if name == "table"}))
    nothing = np.empty(0, np.int32), np.empty(0, np.float32)
    for query, row in list(first.table.rows())[:40]:
        found = first.ask(query, Wanted(5, source="table")).merged
        assert found.ads.tolist() == merger.merge(nothing, (row.ads, row.scores), 5).ads.tolist()
        assert set(found.sources.tolist()) == {1}
    missing = first.ask("qqqq", Wanted(source="table"))
    assert (len(missing.merged.ads), missing.reason) == (0, "not_in_table")


def test_in_a_hurry_the_table_answers_alone_where_it_has_enough(first: Served) -> None:
    hurried = Wanted(5, table_first=True)
    for query, row in list(first.table.rows())[:40]:
        alone = first.ask(query, Wanted(5, source="table" if len(row.ads) >= 5 else "auto")).merged
        assert first.ask(query, hurried).merged.ads.tolist() == alone.ads.tolist()
        best = row.ads[:3].tolist()
        left = first.ask(query, hurried._replace(exclude=best)).merged.ads.tolist()
        assert len(left) == 5
        assert not set(left) & set(best)  # k answers survive
        for wish in ({"k": len(row.ads) + 1}, {"candidates": best}, {"source": "model"}, {"threshold": 0.9}):
            usual, quick = (first.ask(query, wanted._replace(**wish)).merged for wanted in (Wanted(5), hurried))
            assert quick.ads.tolist() == usual.ads.tolist()
    word = next(iter(first.text.ids))
    assert (
        first.ask(f"{word} qqqq", hurried).merged.ads.tolist()
        == first.ask(f"{word} qqqq", Wanted(5)).merged.ads.tolist()
    )


def test_the_model_alone_speaks_as_for_a_query_that_is_not_in_the_table(first: Served) -> None:
    scale = np.float32(first.engine.model.manifest["scale"])
    for query in known(first):
        answer = first.engine.predict(*first.text.features(query), reach(10))
        expected = Merger(first.rule).merge((answer.labels, answer.scores * scale), None, 10)
        found = first.ask(query, Wanted(source="model")).merged
        assert [column.tolist() for column in found] == [column.tolist() for column in expected]


def test_features_are_answered_as_the_model_answers_their_text(first: Served) -> None:
    for query in known(first):
        by_text = first.ask(query, Wanted(7, beam=3, source="model")).merged
        by_features = first.ask_features(*first.text.features(query), Wanted(7, beam=3)).merged
        assert [column.tolist() for column in by_features] == [column.tolist() for column in by_text]


def test_an_empty_answer_says_why(first: Served) -> None:
    query = known(first)[0]
    assert first.ask("☃", Wanted()).reason == "no_words"
    assert first.ask("qqqq", Wanted()).reason == "no_known_words"
    assert first.ask(query, Wanted(threshold=1.0)).reason == "below_threshold"
    assert first.ask_features([], [], Wanted()).reason == "nothing_found"
    assert first.ask(query, Wanted()).reason is None


def test_words_are_counted_by_whether_the_model_knows_them(first: Served) -> None:
    word = next(iter(first.text.ids))
    found = first.ask(f"{word} qqqq {word}", Wanted())
    assert (found.n_words, found.n_known) == (3, 2)
