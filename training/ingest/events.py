"""Rows of a log, cleaned: each is an event that can be counted, or a reject with its reason.

A row with several faults is counted once, under the first reason of the list. Sums must not depend on how a log is cut
into files and batches, so what is added up is kept to multiples of a power of two, which floating point adds exactly.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from core.sparse import Int32s, Int64s
from core.text import normalise
from training.ingest.logs import Form, Layout, Raw
from training.ingest.options import LATEST, parse_time

Doubles = npt.NDArray[np.float64]
REASONS = (
    "wrong number of fields",
    "broken encoding",
    "empty query",
    "unknown ad",
    "not a number",
    "negative count",
    "count too large",
    "clicks > impressions",
    "clicked not 0 or 1",
    "relevance outside 0 … 1",
    "bad position",
    "bad time",
)
NO_TIME = np.iinfo(np.int64).min
_LARGEST = 2.0**40
_COUNT_UNIT, _RELEVANCE_UNIT = 2.0**-10, 2.0**-30
_RAW_LENGTH = 500  # characters of a row in the file of rejects


class Events(NamedTuple):
    """Rows that count: `query` numbers `texts` (distinct, normalised); `position` is 0 where the log has none, `time`
    in microseconds since 1970. One row of clicks only, or one judgement, counts as one impression."""

    texts: list[str]
    query: Int32s
    ad: Int32s
    position: Int64s
    time: Int64s | None
    impressions: Doubles
    clicks: Doubles


class Rejects(NamedTuple):
    """Rows that cannot be used: `code` is the number of a row's reason, −1 where there is none."""

    raw: Raw
    layout: Layout
    code: npt.NDArray[np.int8]

    def counted(self) -> Counter[str]:
        counts = np.bincount(self.code[self.code >= 0], minlength=len(REASONS))
        found = Counter({reason: int(n) for reason, n in zip(REASONS, counts, strict=True) if n})
        return found + Counter({REASONS[0]: len(self.raw.malformed)})

    def first(self, most: int) -> list[tuple[int, str, str]]:
        """(number, reason, the row as CSV, cut where it is long) of the first rows."""
        where = np.flatnonzero(self.code >= 0)[:most]
        told = [(number, REASONS[0], _shown(line)) for number, line in self.raw.malformed[:most]]
        at = pa.array(where, pa.int64())
        columns = [self.raw.columns[name].take(at).to_pylist() for name in self.layout.columns]
        for i, fields in zip(where, zip(*columns, strict=True), strict=True):
            told.append((int(self.raw.rows[i]), REASONS[self.code[i]], _as_csv(fields)))
        return sorted(told)[:most]


def clean(raw: Raw, layout: Layout, ads: pa.Array, positions: int) -> tuple[Events, Rejects]:
    """The events among raw rows, and the others; `ads` are the ids of the catalogue, as binary."""
    fault = _Faults(len(raw.rows))
    texts, query, broken = _queries(_as_bytes(raw.columns["query"]))
    ad, broken_ad = _ads(_as_bytes(raw.columns["ad_id"]), ads)
    fault.mark("broken encoding", broken | broken_ad)
    fault.mark("empty query", query < 0)
    fault.mark("unknown ad", ad < 0)
    impressions, clicks = _counts(raw, layout.form, fault)
    position = np.zeros(len(ad), np.int64)
    if "position" in layout.columns:
        place = numbers(raw.columns["position"])
        fault.mark("bad position", ~((place >= 1) & (place == np.floor(place)) & np.isfinite(place)))
        position = np.where(fault.none, np.minimum(place, positions + 1), 0).astype(np.int64)
    time = None
    if "time" in layout.columns:
        time = times(raw.columns["time"])
        fault.mark("bad time", time == NO_TIME)
    good = np.flatnonzero(fault.none)
    kept = Events(
        texts,
        query[good],
        ad[good],
        position[good],
        None if time is None else time[good],
        impressions[good],
        clicks[good],
    )
    return kept, Rejects(raw, layout, fault.code)


class _Faults:
    """The first reason of every row, by the order in which they are marked."""

    def __init__(self, n: int) -> None:
        self.code = np.full(n, -1, np.int8)

    @property
    def none(self) -> npt.NDArray[np.bool_]:
        return self.code < 0

    def mark(self, reason: str, where: npt.NDArray[np.bool_]) -> None:
        self.code[where & self.none] = REASONS.index(reason)


def _counts(raw: Raw, form: Form, fault: _Faults) -> tuple[Doubles, Doubles]:
    """Impressions and clicks of every row; for judgements their number and their relevance."""
    ones = np.ones(len(raw.rows))
    if form == "clicks":
        return ones, ones
    if form == "counts":
        impressions, clicks = numbers(raw.columns["impressions"]), numbers(raw.columns["clicks"])
        fault.mark("not a number", ~(np.isfinite(impressions) & np.isfinite(clicks)))
        fault.mark("negative count", (impressions < 0) | (clicks < 0))
        fault.mark("count too large", (impressions > _LARGEST) | (clicks > _LARGEST))
        fault.mark("clicks > impressions", clicks > impressions)
        return _rounded(impressions, _COUNT_UNIT, fault), _rounded(clicks, _COUNT_UNIT, fault)
    degree = numbers(raw.columns["clicked" if form == "impressions" else "relevance"])
    fault.mark("not a number", ~np.isfinite(degree))
    if form == "impressions":
        fault.mark("clicked not 0 or 1", (degree != 0) & (degree != 1))
        return ones, degree
    fault.mark("relevance outside 0 … 1", (degree < 0) | (degree > 1))
    return ones, _rounded(degree, _RELEVANCE_UNIT, fault)


def _rounded(values: Doubles, unit: float, fault: _Faults) -> Doubles:
    return np.rint(np.where(fault.none, values, 0.0) / unit) * unit


_BYTES_OF = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())


def _as_bytes(column: pa.Array) -> pa.Array:
    """Text or bytes of any layout as bytes, unchecked; other values as they are written."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type not in _BYTES:
        column = column.cast(_BYTES_OF[column.type]) if column.type in _BYTES_OF else column.cast(pa.string())
    return column.cast(pa.binary())


def _by_distinct(column: pa.Array, value_of: Callable[[bytes], Any], dtype: npt.DTypeLike, missing: Any) -> Any:
    """A function of bytes over a column, called once for each distinct value."""
    encoded = _as_bytes(column).dictionary_encode()
    values = np.array([*map(value_of, encoded.dictionary.to_pylist()), missing], dtype)
    codes = encoded.indices.fill_null(len(encoded.dictionary))
    return values[codes.to_numpy(zero_copy_only=False)]


def _queries(column: pa.Array) -> tuple[list[str], Int32s, npt.NDArray[np.bool_]]:
    """Distinct normalised queries, the number of every row's (−1: empty), and which rows are not UTF-8."""
    ids = dict[str, int]()

    def number(raw: bytes) -> int:
        try:
            text = normalise(raw.decode())
        except UnicodeDecodeError:
            return -2
        return ids.setdefault(text, len(ids)) if text else -1

    query = _by_distinct(column, number, np.int32, -1)
    return list(ids), query, query == -2


def _ads(column: pa.Array, ads: pa.Array) -> tuple[Int32s, npt.NDArray[np.bool_]]:
    """Row numbers in the catalogue (−1: unknown), and which of the unknown are not UTF-8."""
    ad = pc.index_in(column, value_set=ads).fill_null(-1).to_numpy(zero_copy_only=False)
    broken = np.zeros(len(ad), bool)
    unknown = np.flatnonzero(ad < 0)
    if len(unknown):
        broken[unknown] = _by_distinct(column.take(pa.array(unknown)), _is_broken, bool, False)
    return ad, broken


def _is_broken(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return False


def numbers(column: pa.Array) -> Doubles:
    """A column as numbers, NaN where it has none."""
    if _is_numeric(column.type):
        return np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan))
    found: Doubles = _by_distinct(column, _number, np.float64, np.nan)
    return found


def _is_numeric(kind: pa.DataType) -> bool:
    is_one = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(check(kind) for check in is_one)


def _number(raw: bytes) -> float:
    try:
        return float(raw)
    except ValueError:
        return np.nan


def times(column: pa.Array) -> Int64s:
    """A column of times in microseconds since 1970, NO_TIME where it has none."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        micro = column.cast(pa.timestamp("us"), safe=False) if pa.types.is_date(kind) else column
        micro = micro.cast(pa.timestamp("us", micro.type.tz), safe=False)
        return np.asarray(micro.cast(pa.int64()).fill_null(NO_TIME))
    if _is_numeric(kind):
        seconds = numbers(column)
        fits = np.abs(seconds) < LATEST
        return np.where(fits, np.rint(np.where(fits, seconds, 0.0) * 1e6), NO_TIME).astype(np.int64)

    def time_of(raw: bytes) -> int:
        time = parse_time(raw)
        return NO_TIME if time is None else time

    found: Int64s = _by_distinct(column, time_of, np.int64, NO_TIME)
    return found


def _as_csv(fields: tuple[Any, ...]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        _shown(f) if isinstance(f, bytes) else "" if f is None else str(f)[: _RAW_LENGTH + 1] for f in fields
    )
    return _cut(text.getvalue())


def _shown(raw: bytes) -> str:
    return _cut(raw[: 4 * _RAW_LENGTH].decode("utf-8", "backslashreplace"))


def _cut(text: str) -> str:
    return text if len(text) <= _RAW_LENGTH else text[: _RAW_LENGTH - 1] + "…"
