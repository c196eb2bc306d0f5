"""The files of a log: found, their form told from the header, read in batches with the number of every row.

    counts        query, ad_id, impressions, clicks [, position] [, time]
    impressions   query, ad_id, clicked [, position] [, time]          one row per impression
    clicks        query, ad_id [, time]                                one row per click
    judgements    query, ad_id, relevance [, time]

CSV is one row per line. A line that is not a row is set apart with its number, and never takes its neighbours with it:
text is cut into blocks of whole lines, pyarrow parses a block, and a block in which anything is odd is looked at line
by line. All columns stay bytes here: what they mean is for `training.ingest.events`.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from core.errors import DataError
from core.sparse import Int64s

Form = Literal["counts", "impressions", "clicks", "judgements"]
OnBytes = Callable[[int], None]  # bytes of the file that were read since the last call

ACCEPTED = (
    "accepted are query, ad_id, impressions, clicks [, position] [, time]; query, ad_id, clicked [, position] "
    "[, time]; query, ad_id [, time] (clicks only); query, ad_id, relevance [, time]"
)
_FORMS: dict[Form, tuple[str, ...]] = {
    "counts": ("impressions", "clicks"),
    "impressions": ("clicked",),
    "judgements": ("relevance",),
    "clicks": (),
}
_BLOCK = 1 << 23  # bytes of text that are parsed at a time
_LONGEST = 1 << 26  # bytes of a line at most
_BATCH = 1 << 18  # rows of Parquet at a time
_ENDINGS = (".csv", ".csv.gz", ".parquet")


class Layout(NamedTuple):
    """The form of a log and the columns it has of those that are read."""

    form: Form
    columns: tuple[str, ...]


class Raw(NamedTuple):
    """Some rows as they are in the file: columns as bytes (CSV) or as Parquet has them, the number of each row (CSV:
    its line, the header being 1; Parquet: from 1), and lines that are no rows."""

    columns: dict[str, pa.Array]
    rows: Int64s
    malformed: list[tuple[int, bytes]]


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files named, and those of directories by name; hidden ones (`.` or `_` first) are passed over."""
    files = list[Path]()
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and p.name[0] not in "._")
            if not inside:
                raise DataError(f"{path}: the directory holds no files; events are {', '.join(_ENDINGS)}")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise DataError(f"{path}: no such file or directory")
    seen = set[Path]()
    for file in files:
        if not file.name.endswith(_ENDINGS):
            raise DataError(f"{file}: events must be in files named {', '.join(_ENDINGS)}")
        if file.resolve() in seen:
            raise DataError(f"{file}: named twice; its events would count twice")
        seen.add(file.resolve())
    if not files:
        raise DataError("events must be given: no file was named")
    return files


def layout_of(files: Sequence[Path]) -> Layout:
    """The layout of all files, which must have the same one."""
    first = _layout(files[0])
    for file in files[1:]:
        other = _layout(file)
        if other != first:
            raise DataError(
                f"{file}: columns {', '.join(other.columns)}; {files[0]} has {', '.join(first.columns)}: "
                "all files of a log must have the same"
            )
    return first


def _layout(path: Path) -> Layout:
    names = column_names(path)
    found = f"{path}: columns {', '.join(names)}; {ACCEPTED}"
    if len(set(names)) < len(names) or not {"query", "ad_id"} <= set(names):
        raise DataError(found)
    forms = [form for form, needed in _FORMS.items() if needed and set(needed) & set(names)]
    form: Form = forms[0] if forms else "clicks"
    if len(forms) > 1 or not set(_FORMS[form]) <= set(names):
        raise DataError(found)
    optional = ("position", "time") if form in ("counts", "impressions") else ("time",)
    columns = ("query", "ad_id", *_FORMS[form], *(name for name in optional if name in names))
    if form == "clicks" and set(names) != set(columns):  # a misspelt `clicked` must not make every row a click
        raise DataError(found)
    return Layout(form, columns)


def column_names(path: Path) -> list[str]:
    if path.name.endswith(".parquet"):
        with _parquet(path) as file:
            return list(file.schema_arrow.names)
    try:
        with _opened(path) as (text, _):
            return _header(path, text.readline(_LONGEST))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def read_raw(path: Path, columns: Sequence[str], on_bytes: OnBytes) -> Iterator[Raw]:
    """The file's rows, some at a time."""
    return (_read_parquet if path.name.endswith(".parquet") else _read_csv)(path, columns, on_bytes)


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a Parquet file ({error})") from error


def _read_parquet(path: Path, columns: Sequence[str], on_bytes: OnBytes) -> Iterator[Raw]:
    size, start = path.stat().st_size, 0
    with _parquet(path) as file:
        total = max(file.metadata.num_rows, 1)
        try:
            for batch in file.iter_batches(_BATCH, columns=list(columns)):
                n = batch.num_rows
                named = {name: batch.column(name) for name in columns}
                yield Raw(named, np.arange(start + 1, start + n + 1), [])
                on_bytes(size * (start + n) // total - size * start // total)
                start += n
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: Parquet that cannot be read ({error})") from error
    if start == 0:
        on_bytes(size)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[gzip.GzipFile | BufferedReader, BufferedReader]]:
    """The file's text, and the file itself, which tells how much of it is read."""
    with path.open("rb") as file:
        yield (gzip.GzipFile(fileobj=file) if path.name.endswith(".gz") else file), file


def _header(path: Path, line: bytes) -> list[str]:
    if line[:2] == b"\x1f\x8b" or line[:4] == b"PAR1":
        raise DataError(f"{path}: this is no text; name a gzip file .csv.gz and a Parquet file .parquet")
    if not line.strip():
        raise DataError(f"{path}: the file is empty; {ACCEPTED}")
    try:
        return [name.strip() for name in next(csv.reader([line.decode("utf-8-sig", "replace")]))]
    except csv.Error as error:
        raise DataError(f"{path}: the header cannot be read ({error}); lines must end in LF or CR LF") from error


def _blocks(path: Path, on_bytes: OnBytes) -> Iterator[bytes]:
    """The file's text, some whole lines at a time."""
    rest, at = b"", 0
    try:
        with _opened(path) as (text, file):
            while block := text.read(_BLOCK):
                at, before = file.tell(), at
                on_bytes(at - before)
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    yield whole + newline
                elif len(rest) > _LONGEST:
                    raise DataError(f"{path}: a line of more than {_LONGEST} bytes; this is no CSV")
    except (OSError, EOFError, zlib.error) as error:
        if not path.name.endswith(".gz"):
            raise
        raise DataError(f"{path}: not a complete gzip file ({error})") from error
    if rest:
        yield rest + b"\n"


def _read_csv(path: Path, columns: Sequence[str], on_bytes: OnBytes) -> Iterator[Raw]:
    names, line = list[str](), 1
    for block in _blocks(path, on_bytes):
        if not names:
            head, _, block = block.partition(b"\n")
            names, line = _header(path, head), 2
        n_lines = block.count(b"\n")
        table = _parse(block, names, columns) if _is_plain(block, len(names)) else None
        if table is not None and table.num_rows == n_lines:
            rows, malformed = np.arange(line, line + n_lines), list[tuple[int, bytes]]()
        else:
            rows, malformed, good = _line_by_line(block, line, len(names))
            table = _parse(good, names, columns)
            if table is None or table.num_rows != len(rows):
                raise DataError(f"{path}: lines {line} to {line + n_lines - 1} cannot be read as CSV")
        yield Raw({name: table.column(name).combine_chunks() for name in columns}, rows, malformed)
        line += n_lines


def _is_plain(block: bytes, n_fields: int) -> bool:
    """Whether pyarrow takes as many lines for rows as there are, unless a quote leads it over the end of one: no line
    ends within a line, and no quote is left open at the end of all."""
    last = block[block.rfind(b"\n", 0, -1) + 1 : -1].removesuffix(b"\r")
    return block.count(b"\r") == block.count(b"\r\n") and _as_row(last, n_fields) is not None


def _parse(block: bytes, names: list[str], columns: Sequence[str]) -> pa.Table | None:
    """The block's columns as bytes; None where a line is not a row of as many fields as there are names."""
    if not block:
        return pa.table({name: pa.array([], pa.binary()) for name in columns})
    try:
        return pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
            pa_csv.ParseOptions(newlines_in_values=True),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()), include_columns=list(columns), check_utf8=False
            ),
        )
    except pa.ArrowInvalid:
        return None


def _line_by_line(block: bytes, first: int, n_fields: int) -> tuple[Int64s, list[tuple[int, bytes]], bytes]:
    """Numbers of the lines that are rows, the other lines with their numbers, and the text of the rows."""
    rows, malformed, good = list[int](), list[tuple[int, bytes]](), list[bytes]()
    for number, line in enumerate(block.split(b"\n")[:-1], first):
        line = line.removesuffix(b"\r")
        if not line:
            continue
        row = _as_row(line, n_fields)
        if row is None:
            malformed.append((number, line))
        else:
            rows.append(number)
            good.append(row)
    good.append(b"")
    return np.array(rows, np.int64), malformed, b"\n".join(good)


def _as_row(line: bytes, n_fields: int) -> bytes | None:
    """The line as a row with plain quotes; None where it has another number of fields, or a quote is left open."""
    if b'"' not in line and b"\r" not in line:
        return line if line.count(b",") + 1 == n_fields else None
    try:
        parsed = list(csv.reader([line.decode("latin-1"), "end"]))
    except csv.Error:
        return None
    if len(parsed) != 2 or len(parsed[0]) != n_fields:
        return None
    quoted = ('"' + field.replace('"', '""') + '"' for field in parsed[0])
    return ",".join(quoted).encode("latin-1")
