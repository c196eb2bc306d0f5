"""A release that answers: many as one, no more than there is, and why where there is nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from core.errors import ModelError, ReleaseError
from core.merge import Merger
from core.releases import current
from core.served import RULE, Served
from training.clicks import Clicks, open_clicks


@pytest.fixture(scope="module")
def release(night: Path) -> Path:
    return night / str(current(night))


@pytest.fixture(scope="module")
def served(release: Path) -> Served:
    return Served.open(release)


@pytest.fixture(scope="module")
def clicks(market: Path) -> Clicks:
    return open_clicks(market / "clicks")


@pytest.mark.parametrize(
    ("query", "reason"),
    [("", "no_words"), (" !? ", "no_words"), ("xqzt qqzz", "no_known_words"), ("\u0301", "no_words")],
)
def test_an_empty_answer_says_why(served: Served, query: str, reason: str) -> None:
    found = served.answer(query)
    assert (len(found.merged.ads), found.reason) == (0, reason)
    assert served.ids(query) == []


def test_answers_below_the_threshold_are_not_shown_and_it_is_said(served: Served, clicks: Clicks) -> None:
    for query in clicks.queries[:20]:
        everything = served.answer(query).merged
        cut = float(everything.scores[3])
        found = served.answer(query, threshold=cut)
        assert found.reason is None
        assert found.merged.scores.tolist() == [score for score in everything.scores.tolist() if score >= cut]
        found = served.answer(query, threshold=1.01)
        assert (len(found.merged.ads), found.reason) == (0, "below_threshold")


def test_known_words_that_lead_nowhere_are_told_from_unknown_ones(served: Served, clicks: Clicks) -> None:
    query = clicks.queries[clicks.known]  # not in the table
    everybody = np.zeros(len(served.catalogue.live), np.uint8)
    nobody = Served(served.catalogue._replace(live=everybody), served.text, served.engine, served.table, served.rule)
    assert nobody.answer(query).reason == "nothing_found"
    assert nobody.answer("xqzt").reason == "no_known_words"


def test_a_query_is_answered_as_it_was_typed(served: Served, clicks: Clicks) -> None:
    for query in clicks.queries[:20]:
        assert served.ids(f"  {query.upper()} !") == served.ids(query) != []


@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_many_queries_are_the_answers_of_each(served: Served, clicks: Clicks, k: int, threads: int) -> None:
    queries = [*clicks.queries[:40], "xqzt", "", *clicks.queries[clicks.known :][:20]]
    rows = Merger(served.rule).merge_rows(*served.rows(queries, k, threads), k)
    assert (rows.n_rows, rows.n_cols) == (len(queries), 300)
    for i, query in enumerate(queries):
        one, part = served.answer(query, k).merged, slice(rows.indptr[i], rows.indptr[i + 1])
        order = np.argsort(one.ads)
        assert rows.indices[part].tolist() == one.ads[order].tolist()
        assert rows.values[part].tolist() == one.scores[order].tolist()


def test_more_than_there_is_gives_what_there_is(served: Served, clicks: Clicks) -> None:
    for query in (clicks.queries[0], clicks.queries[clicks.known]):
        found = served.answer(query, k=1000).merged
        assert 10 < len(found.ads) <= 300
        assert len(set(found.ads.tolist())) == len(found.ads)
        assert (np.diff(found.scores) <= 0).all()
        few = served.answer(query, k=3).merged
        assert len(few.ads) == 3


def test_parts_that_do_not_go_together_are_refused(served: Served, market: Path) -> None:
    other = open_clicks(market / "clicks").ad_text
    with pytest.raises(ModelError, match=r"the online model has \d+ features, its words \d+"):
        Served(served.catalogue, other, served.engine, served.table, served.rule)


@pytest.mark.parametrize("file", [RULE, "online/manifest.json", "text/ads/manifest.json", "table/row_ad.npy"])
def test_a_release_with_a_damaged_file_is_not_opened(release: Path, tmp_path: Path, file: str) -> None:
    copy = Path(shutil.copytree(release, tmp_path / release.name))
    data = bytearray((copy / file).read_bytes())
    data[-2] ^= 1
    (copy / file).write_bytes(data)
    with pytest.raises(ModelError, match="SHA-256 differs"):
        Served.open(copy)
    (copy / file).unlink()
    with pytest.raises(ModelError, match="missing"):
        Served.open(copy, verify=False)


def test_a_release_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="no such release"):
        Served.open(tmp_path / "none")
