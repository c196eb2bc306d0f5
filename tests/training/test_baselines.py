"""Baselines against plain Python that shares no code with them."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UsageError
from core.sparse import Csr
from training.clicks import Clicks, Pairs
from training.release import baselines
from training.release.baselines import BASELINES, bm25, memory, popular

WORDS = ("red", "blue", "shoe", "boot", "sale", "new")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
Answer = dict[int, float]


def make_clicks(ads: list[tuple[str | None, str | None]], queries: list[str], pairs: list[tuple[Any, ...]]) -> Clicks:
    """pairs: (query, ad, impressions, clicks, relevance)."""
    columns = list(zip(*sorted(pairs), strict=True)) if pairs else [()] * 5
    types: list[Any] = [np.int32, np.int32, np.float32, np.float32, np.float32]
    train = Pairs(*(np.array(column, kind) for column, kind in zip(columns, types, strict=True)))
    names = ["title", "text"]
    table = pa.table({n: pa.array([ad[i] for ad in ads], pa.string()) for i, n in enumerate(names)})
    nothing = Pairs(*(np.empty(0, kind) for kind in types))
    none: Any = None
    return Clicks(Path(), table, queries, len(queries), train, nothing, none, none, {})


@st.composite
def markets(draw: st.DrawFn) -> Clicks:
    ads = draw(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=9))
    queries = sorted(draw(st.sets(TEXTS, max_size=5)))
    pairs = []
    for query in range(len(queries)):
        for ad in draw(st.sets(st.integers(0, len(ads) - 1))):
            clicks, relevance = draw(st.integers(0, 3)), draw(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]))
            pairs.append((query, ad, 5, clicks, relevance))
    return make_clicks(list(ads), queries, pairs)


def answers(scores: Csr) -> list[Answer]:
    rows = []
    for i in range(scores.n_rows):
        at = slice(int(scores.indptr[i]), int(scores.indptr[i + 1]))
        ids = scores.indices[at].tolist()
        assert ids == sorted(set(ids))
        rows.append(dict(zip(ids, scores.values[at].tolist(), strict=True)))
    return rows


def best(scores: Answer, k: int) -> list[int]:
    return sorted(scores, key=lambda ad: (-scores[ad], ad))[:k]


def popular_oracle(clicks: Clicks) -> Answer:
    total: Counter[int] = Counter()
    for ad, n in zip(clicks.train.ad.tolist(), clicks.train.clicks.tolist(), strict=True):
        total[ad] += n
    whole = sum(total.values())
    return {ad: n / whole for ad, n in total.items() if n > 0}


def bm25_oracle(clicks: Clicks, query: str) -> Answer:
    """Raw scores of every ad that shares a word with the query."""
    ads = [f"{a} {b}".split() for a, b in zip(*(clicks.ads[c].to_pylist() for c in ("title", "text")), strict=True)]
    mean = sum(map(len, ads)) / len(ads)
    scores: Answer = {}
    for ad, text in enumerate(ads):
        for word in query.split():
            tf, df = text.count(word), sum(word in other for other in ads)
            if tf:
                idf = math.log(1 + (len(ads) - df + 0.5) / (df + 0.5))
                part = idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(text) / mean))
                scores[ad] = scores.get(ad, 0.0) + part
    return scores


@given(markets(), st.lists(TEXTS, max_size=4), st.integers(1, 12))
def test_popular_gives_every_query_the_ads_with_most_clicks(clicks: Clicks, queries: list[str], k: int) -> None:
    expected = popular_oracle(clicks)
    for answer in answers(popular(clicks, queries, k)):
        assert best(answer, k) == best(expected, k)
        assert answer == pytest.approx({ad: expected[ad] for ad in answer})


@given(markets(), st.lists(TEXTS, max_size=4), st.integers(1, 12))
def test_bm25_ranks_as_the_formula_does(clicks: Clicks, queries: list[str], k: int) -> None:
    for query, answer in zip(queries, answers(bm25(clicks, queries, k)), strict=True):
        raw = bm25_oracle(clicks, query)
        assert len(answer) == min(k, len(raw))
        got = [raw[ad] for ad in best(answer, k)]
        assert got == pytest.approx([raw[ad] for ad in best(raw, k)], rel=1e-5)
        halves = [raw[ad] * (1 / score - 1) for ad, score in answer.items()]
        assert halves == pytest.approx([halves[0]] * len(halves), rel=1e-3) if halves else not raw
        assert all(0 < score < 1 for score in answer.values())


def test_bm25_breaks_ties_by_lower_ad() -> None:
    ads: list[tuple[str | None, str | None]] = [("boot", "sale"), ("shoe", "new"), ("new", "shoe"), (None, None)]
    clicks = make_clicks([*ads, ("shoe", "red"), ("shoe shoe", None)], [], [])
    assert [sorted(a) for a in answers(bm25(clicks, ["shoe", "hat", ""], 2))] == [[1, 5], [], []]
    assert answers(bm25(clicks, ["shoe"], 4))[0].keys() == {1, 2, 4, 5}


def test_bm25_gives_one_average_match_a_half() -> None:
    clicks = make_clicks([("shoe", ""), ("boot", "")], [], [])
    assert answers(bm25(clicks, ["boot"], 1)) == [{1: pytest.approx(0.5)}]


@given(markets(), st.lists(TEXTS, max_size=4), st.integers(1, 12))
def test_memory_has_the_querys_own_clicked_ads_before_popular_ones(clicks: Clicks, asked: list[str], k: int) -> None:
    queries = [*clicks.queries, *asked]
    crowd = popular_oracle(clicks)
    for query, answer in zip(queries, answers(memory(clicks, queries, k)), strict=True):
        pairs = zip(*(column.tolist() for column in clicks.train), strict=True)
        own = {ad: y for q, ad, _, n, y in pairs if clicks.queries[q] == query and n > 0 and y > 0}
        others = best({ad: share for ad, share in crowd.items() if ad not in own}, k)
        assert best(answer, k) == [*best(own, k), *others][:k]
        assert {ad: s for ad, s in answer.items() if ad in own} == {ad: own[ad] for ad in best(own, k)}
        if own:
            assert all(s < min(own.values()) for ad, s in answer.items() if ad not in own)
        else:
            assert answer == pytest.approx({ad: crowd[ad] for ad in answer})


@pytest.mark.parametrize("name", BASELINES)
@given(clicks=markets(), queries=st.lists(TEXTS, max_size=7), block=st.integers(1, 4))
def test_a_batch_equals_single_queries_in_blocks_of_any_size(
    name: str, clicks: Clicks, queries: list[str], block: int
) -> None:
    together = BASELINES[name](clicks, queries, 3)
    usual = baselines._BLOCK
    baselines._BLOCK = block
    try:
        again = BASELINES[name](clicks, queries, 3)
    finally:
        baselines._BLOCK = usual
    assert answers(together) == answers(again)
    assert answers(together) == [answers(BASELINES[name](clicks, [query], 3))[0] for query in queries]


@pytest.mark.parametrize("name", BASELINES)
def test_no_queries_or_no_ads_give_no_answers_of_the_right_shape(name: str) -> None:
    none = BASELINES[name](make_clicks([("shoe", "")], [], []), [], 5)
    assert (none.n_rows, none.n_cols, none.nnz) == (0, 1, 0)
    empty = BASELINES[name](make_clicks([], [], []), ["shoe"], 5)
    assert (empty.n_rows, empty.n_cols, empty.nnz) == (1, 0, 0)
    assert [array.dtype.str for array in empty[:3]] == ["<i8", "<i4", "<f4"]


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_refuses_to_return_no_ads(name: str) -> None:
    with pytest.raises(UsageError, match="k is 0"):
        BASELINES[name](make_clicks([("shoe", "")], [], []), ["shoe"], 0)


def test_baselines_do_not_look_at_the_held_out_part() -> None:
    clicks = make_clicks([("shoe", ""), ("boot", "")], ["shoe"], [(0, 0, 5, 1, 0.5)])
    one, many = np.ones(1, np.int32), np.ones(1, np.float32)
    held_out = Pairs(one, one, many, many, many)
    for name, baseline in BASELINES.items():
        seen = baseline(clicks._replace(test=held_out), ["shoe", "boot"], 2)
        assert answers(seen) == answers(baseline(clicks, ["shoe", "boot"], 2)), name
