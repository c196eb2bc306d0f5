"""Logs: every line is a row or is set apart, whatever its neighbours are."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.errors import DataError
from training.ingest.logs import Layout, layout_of, read_raw

LINE = st.one_of(
    st.lists(st.sampled_from([b"a", b",", b",", b'"', b'""', b"\r", b"\xff", b" ", b"\x00"]), max_size=7).map(b"".join),
    st.lists(st.sampled_from(["x", "q,r", 'say "hi"', "é", ""]), min_size=2, max_size=2).map(
        lambda fields: ",".join('"' + f.replace('"', '""') + '"' for f in fields).encode()
    ),
)


def read(text: bytes, block: int) -> tuple[list[tuple[int, bytes, bytes]], list[tuple[int, bytes]]]:
    """Rows with their numbers and lines set apart, read in blocks of a size."""
    with tempfile.TemporaryDirectory() as directory, patch("training.ingest.logs._BLOCK", block):
        path = Path(directory) / "log.csv"
        path.write_bytes(text)
        rows, malformed = list[tuple[int, bytes, bytes]](), list[tuple[int, bytes]]()
        for raw in read_raw(path, ["query", "ad_id"], lambda n: None):
            columns = [raw.columns[name].to_pylist() for name in ("query", "ad_id")]
            rows += zip(raw.rows.tolist(), *columns, strict=True)
            malformed += raw.malformed
    return rows, malformed


@given(st.lists(LINE, max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
@example([b'"a', b"b,c", b'd",e'], b"\n", True)
@example([b'a"b,"c', b"d,e"], b"\n", False)
@example([b'"a', b'b",c', b"d,e\rf,g"], b"\n", True)
@settings(max_examples=300)
def test_every_line_is_a_row_or_set_apart_whatever_its_neighbours(
    lines: list[bytes], newline: bytes, ends: bool
) -> None:
    text = newline.join([b"query,ad_id", *lines]) + (newline if ends else b"")
    rows, malformed = read(text, 1 << 20)
    assert (rows, malformed) == read(text, 40)
    told = sorted([row[0] for row in rows] + [number for number, _ in malformed])
    stripped = [line.removesuffix(b"\r") for line in text.split(b"\n")]
    assert told == [number for number, line in enumerate(stripped, 1) if line and number > 1]
    for number, *fields in rows:
        alone = next(csv.reader([stripped[number - 1].decode("latin-1")]))
        assert alone == [field.decode("latin-1") for field in fields]


def test_a_byte_order_mark_and_a_quoted_header_are_read(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(b'\xef\xbb\xbf"query","ad_id" ,time\r\na,b,1\r\n')
    layout = layout_of([tmp_path / "log.csv"])
    assert layout == Layout("clicks", ("query", "ad_id", "time"))
    (raw,) = read_raw(tmp_path / "log.csv", layout.columns, lambda n: None)
    assert {name: column.to_pylist() for name, column in raw.columns.items()} == {
        "query": [b"a"],
        "ad_id": [b"b"],
        "time": [b"1"],
    }


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(b"query,ad_id\n" + b"x" * 5000)
    with (
        patch("training.ingest.logs._BLOCK", 100),
        patch("training.ingest.logs._LONGEST", 1000),
        pytest.raises(DataError, match="a line of more than 1000 bytes"),
    ):
        list(read_raw(tmp_path / "log.csv", ["query", "ad_id"], lambda n: None))
