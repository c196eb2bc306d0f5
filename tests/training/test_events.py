"""Events: columns of any type are read alike; long rows are told short."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.ingest.events import NO_TIME, clean, numbers, times
from training.ingest.logs import Layout, Raw
from training.ingest.options import parse_time, time_as_text

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
AT = 1_767_355_200_000_000


@pytest.mark.parametrize(
    "column",
    [
        pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("ns")),
        pa.array([NOON, None], pa.timestamp("s", "Asia/Tokyo")),
        pa.array([AT // 10**6, None]),
        pa.array([AT / 1e6, float("nan")]),
        pa.array([Decimal(AT // 10**6), None]),
        pa.array(["2026-01-02T12:00:00Z", "noon"]),
        pa.array(["2026-01-02 21:00:00+09:00", "1767355200000"], pa.large_string()),
        pa.array([b"1767355200", b"\xff"]).dictionary_encode(),
        pa.array(["20260102T120000", ""], pa.string_view()),
    ],
    ids=lambda column: str(column.type),
)
def test_times_of_any_type_are_microseconds(column: pa.Array) -> None:
    assert times(column).tolist() == [AT, NO_TIME]


def test_a_date_is_its_first_moment() -> None:
    midnight = AT - 12 * 3600 * 10**6
    assert times(pa.array([date(2026, 1, 2)])).tolist() == [midnight]
    assert times(pa.array(["2026-01-02"])).tolist() == [midnight]


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_from_its_text(time: datetime) -> None:
    parsed = parse_time(time.isoformat().encode())
    assert parsed is not None
    assert datetime.fromisoformat(time_as_text(parsed)) == time


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None]), [1.0, np.nan]),
        (pa.array([True, False, None]), [1.0, 0.0, np.nan]),
        (pa.array([Decimal("1.5")]), [1.5]),
        (pa.array(["1", " 2 ", "", "x", "1e3", None]), [1.0, 2.0, np.nan, np.nan, 1000.0, np.nan]),
        (pa.array([b"\xff", b"7"]), [np.nan, 7.0]),
        (pa.array([None, None]), [np.nan, np.nan]),
    ],
)
def test_numbers_of_any_type(column: pa.Array, expected: list[float]) -> None:
    assert np.array_equal(numbers(column), expected, equal_nan=True)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()])
def test_text_of_any_layout_is_read_alike(kind: pa.DataType) -> None:
    texts = ["Red", "red ", "blå", None]
    as_kind = pa.array(texts if "string" in str(kind) else [t and t.encode() for t in texts], kind)
    ids = pa.array(["a"] * 4, pa.string()).cast(kind) if "view" not in str(kind) else pa.array(["a"] * 4, kind)
    raw = Raw({"query": as_kind, "ad_id": ids}, np.arange(4), [])
    events, rejects = clean(raw, Layout("clicks", ("query", "ad_id")), pa.array([b"a"]), 20)
    assert events.texts == ["red", "blå"]
    assert events.query.tolist() == [0, 0, 1]
    assert rejects.counted() == {"empty query": 1}


def test_ids_that_are_numbers_are_their_digits() -> None:
    raw = Raw({"query": pa.array(["q", "q"]), "ad_id": pa.array([7, 8])}, np.arange(2), [])
    events, rejects = clean(raw, Layout("clicks", ("query", "ad_id")), pa.array([b"7"]), 20)
    assert events.ad.tolist() == [0]
    assert rejects.first(10) == [(1, "unknown ad", "q,8")]


def test_a_long_row_is_cut_and_only_as_many_told_as_asked_for() -> None:
    queries = pa.array([b"x" * 10_000, b"y, z", b"\xff" * 10_000])
    raw = Raw({"query": queries, "ad_id": pa.array([b"?"] * 3)}, np.arange(2, 5), [(9, b"z" * 10_000)])
    _, rejects = clean(raw, Layout("clicks", ("query", "ad_id")), pa.array([b"a"]), 20)
    told = rejects.first(10)
    assert [(row, reason) for row, reason, _ in told] == [
        (2, "unknown ad"),
        (3, "unknown ad"),
        (4, "broken encoding"),
        (9, "wrong number of fields"),
    ]
    assert [len(text) for _, _, text in told] == [500, 8, 500, 500]
    assert told[1][2] == '"y, z",?'
    assert rejects.first(2) == told[:2]
    assert rejects.counted().total() == 4


def test_positions_beyond_the_last_share_one() -> None:
    columns = {"query": ["q"] * 4, "ad_id": ["a"] * 4, "clicked": [0, 1, 0, 1], "position": [1, 3, 4, 99]}
    raw = Raw({name: pa.array(values) for name, values in columns.items()}, np.arange(4), [])
    events, _ = clean(raw, Layout("impressions", tuple(columns)), pa.array([b"a"]), 3)
    assert events.position.tolist() == [1, 3, 4, 4]
