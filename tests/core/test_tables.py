"""One contract for every store: what was written is what is read. And: a mapped table that was changed is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import tables
from core.errors import DataError, ModelError
from core.format import MANIFEST, checksum
from core.tables import MappedTable, Table, write_table
from tests.core.tables import Make, contents, mapped, plain, shared, write
from tests.strategies import TableRows, table_rows

SHOES: TableRows = {"running shoes": [(7, 0.5), (3, 0.25)], "größe 42": [(0, 0.125)], "跑鞋": [(2**31 - 1, 1.0)]}


@pytest.fixture(params=["mapped", "redis", "redis cluster"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a table of the given rows in one of the stores."""
    made: list[Table] = []
    url = {"redis": "single", "redis cluster": "cluster"}.get(request.param)
    server = None if url is None else request.getfixturevalue(url)

    def build(rows: TableRows) -> Table:
        table: Table = mapped(tmp_path, rows) if server is None else shared(server, rows)
        made.append(table)
        return table

    yield build
    for table in made:
        table.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=table_rows(), others=st.lists(st.text(max_size=3), max_size=5))
def test_what_was_written_is_what_is_read(make: Make, rows: TableRows, others: list[str]) -> None:
    table, truth = make(rows), {query: row for query, row in rows.items() if row}
    asked = [*others, *rows, *others]
    assert contents(table) == truth
    assert [plain(table.get(query)) for query in asked] == [truth.get(query) for query in asked]
    assert [plain(row) for row in table.get_many(asked)] == [truth.get(query) for query in asked]


def test_an_empty_table_has_no_rows(make: Make) -> None:
    nothing: list[TableRows] = [{}, {"a": []}]
    for rows in nothing:
        table = make(rows)
        assert (len(table), contents(table), table.get(""), table.get_many([])) == (0, {}, None, [])


def test_a_string_without_utf_8_is_not_found(make: Make) -> None:
    table = make(SHOES)
    assert table.get("\ud800") is None
    assert [row is None for row in table.get_many(["\ud800", "跑鞋", "\udfff"])] == [True, False, True]


def test_thousands_of_queries_and_a_long_row_are_all_there(make: Make) -> None:
    rows: TableRows = {f"query {i}": [(i, i / 8), (i + 1, 0.0)] for i in range(3000)}
    rows["long"] = [(ad, -float(ad)) for ad in range(5000)]
    assert contents(make(rows)) == rows


def test_rows_are_of_the_promised_kinds_and_cannot_be_changed(make: Make) -> None:
    row = make(SHOES).get("running shoes")
    assert row is not None
    assert (row.ads.dtype.str, row.scores.dtype.str) == ("<i4", "<f4")
    assert not row.ads.flags.writeable
    assert not row.scores.flags.writeable


def test_many_threads_read_what_one_does(make: Make) -> None:
    rows: TableRows = {str(i): [(i, 1.0)] for i in range(500)}
    table = make(rows)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: table.get_many(list(rows)), range(8)):
            assert [plain(row) for row in found] == list(rows.values())


# The mapped store alone.


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write(tmp_path, SHOES)
    return tmp_path


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, SHOES)
    assert {f.name: f.read_bytes() for f in (tmp_path / "a").iterdir()} == {
        f.name: f.read_bytes() for f in (tmp_path / "b").iterdir()
    }


def test_a_row_outlives_its_table(written: Path) -> None:
    table = MappedTable.open(written)
    row = table.get("running shoes")
    table.close()
    del table
    assert plain(row) == SHOES["running shoes"]


def test_a_changed_byte_is_refused(written: Path) -> None:
    """In an array always; in the manifest it is refused or changes nothing that is read."""
    for file in sorted(written.iterdir()):
        good = file.read_bytes()
        for at in range(len(good)):
            file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            if file.name != MANIFEST:
                with pytest.raises(ModelError):
                    MappedTable.open(written)
                continue
            with suppress(ModelError):
                assert contents(MappedTable.open(written)) == SHOES
        file.write_bytes(good)


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_file_is_refused(written: Path, verify: bool) -> None:
    for file in sorted(written.iterdir()):
        good = file.read_bytes()
        for length in (0, 1, len(good) // 2, len(good) - 2):
            file.write_bytes(good[:length])
            with pytest.raises(ModelError):
                MappedTable.open(written, verify)
        file.unlink()
        with pytest.raises(ModelError):
            MappedTable.open(written, verify)
        file.write_bytes(good)


def lie(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change an array and make the manifest agree, as a faulty writer would."""
    file = path / f"{name}.npy"
    array = np.load(file) if file.exists() else np.zeros(1)
    replaced = change(array)
    np.save(file, array if replaced is None else replaced)
    manifest, array = json.loads((path / MANIFEST).read_text()), np.load(file)
    about = {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": file.stat().st_size}
    manifest["arrays"][name] = about | {"sha256": checksum(file)}
    (path / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("row_ptr", lambda a: a.__setitem__(1, 10**6), "row_ptr must rise from 0 to 4, without empty rows"),
        ("row_ptr", lambda a: a.__setitem__(1, 0), "row_ptr must rise from 0 to 4, without empty rows"),
        ("row_ptr", lambda a: a[:-1], "row_ptr has 3 entries, 4 were expected"),
        ("row_ptr", lambda a: a.astype(np.int32), "row_ptr must be one-dimensional <i8"),
        ("row_ad", lambda a: a.__setitem__(1, -1), "row 0: an ad is negative"),
        ("row_ad", lambda a: a.__setitem__(1, 7), "row 0: ad 7 comes twice"),
        ("row_ad", lambda a: a[:-1], "the manifest's sizes are"),
        ("row_score", lambda a: a.__setitem__(1, np.nan), "row 0: a score is not finite"),
        ("row_score", lambda a: a.__setitem__(1, 0.75), "row 0: scores must fall, best first"),
        ("row_score", lambda a: a.reshape(2, 2), "row_score must be one-dimensional <f4"),
        ("query_ptr", lambda a: a.__setitem__(1, -1), "query_ptr must rise"),
        ("query_hash", lambda a: a.__setitem__(0, 1), "query_hash: entry 0 is not the hash of name"),
        ("query_id", lambda a: a.astype(np.int64), "query_id must be one-dimensional <i4"),
        ("other", lambda a: None, r"other.npy does not belong to a table"),
    ],
)
def test_a_table_that_lies_is_refused(written: Path, name: str, change: Callable[[Any], Any], message: str) -> None:
    lie(written, name, change)
    with pytest.raises(ModelError, match=message):
        MappedTable.open(written)


def test_rows_that_lie_far_from_the_first_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks go block by block, and no row is cut."""
    monkeypatch.setattr(tables, "_BLOCK", 3)
    good: TableRows = {str(i): [(ad, -float(ad)) for ad in range(i % 5)] for i in range(40)}
    assert contents(mapped(tmp_path, good)) == {query: row for query, row in good.items() if row}
    for i in (4, 17, 39):
        with pytest.raises(DataError, match=f"row {i}: ad 0 comes twice"):
            mapped(tmp_path, good | {str(i): [(0, 3.0), (1, 2.0), (2, 1.0), (0, 0.0)]})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((["a"], [0, 1], [1], [np.nan]), "row 0: a score is not finite"),
        ((["a"], [0, 1], [1], [1e300]), "row 0: a score is not finite"),
        ((["a"], [0, 1], [-1], [0.5]), "ads must be in 0 … 2147483647; they are in -1 … -1"),
        ((["a"], [0, 1], [2**31], [0.5]), "they are in 2147483648"),
        ((["a", "b"], [0, 1, 3], [5, 5, 5], [0.5, 0.5, 0.5]), "row 1: ad 5 comes twice"),
        ((["a"], [0, 2], [1, 2], [0.25, 0.5]), "row 0: scores must fall"),
        ((["a"], [0, 1], [1, 2], [0.5, 0.25]), "row_ptr must rise from 0 to 2"),
        ((["a"], [0, 2], [1, 2], [0.5]), "2 ads have 1 scores"),
        ((["a", "b"], [0, 1], [1], [0.5]), "2 queries need 3 pointers; there are 2"),
        ((["a", "a"], [0, 1, 2], [1, 1], [0.5, 0.5]), "names must be distinct: 'a' is both 0 and 1"),
        ((["\ud800"], [0, 1], [1], [0.5]), "has no UTF-8"),
    ],
)
def test_rows_that_cannot_be_a_table_are_refused(tmp_path: Path, rows: Any, message: str) -> None:
    queries, indptr, ads, scores = rows
    with pytest.raises(DataError, match=message):
        write_table(tmp_path, queries, np.array(indptr), np.array(ads), np.array(scores))
    assert not (tmp_path / MANIFEST).exists()


def test_another_format_or_version_is_refused(written: Path) -> None:
    manifest = json.loads((written / MANIFEST).read_text())
    (written / MANIFEST).write_text(json.dumps(manifest | {"format": "xreg-model"}))
    with pytest.raises(ModelError, match="not the manifest of an xreg-table"):
        MappedTable.open(written)
    (written / MANIFEST).write_text(json.dumps(manifest | {"version": 2}))
    with pytest.raises(ModelError, match="format version 2; this xreg reads 1"):
        MappedTable.open(written)
