"""The catalogue of ads: read, checked, sorted by id; the row number is what the rest of xreg calls an ad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from core.errors import DataError
from core.text import ad_document
from training.ingest.events import numbers
from training.ingest.logs import column_names

_TEXTS = ("ad_id", "title", "text", "url")
_NUMBERS = ("bid", "quality")


def read_catalogue(path: Path) -> pa.Table:
    """ad_id, title, text, url (text), bid, quality (numbers, 1 where there is none), then all further columns."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise DataError(f"{path}: ads must be in a file named .csv, .csv.gz or .parquet")
    names = column_names(path)
    if len(set(names)) < len(names) or not set(_TEXTS) <= set(names):
        raise DataError(
            f"{path}: columns {', '.join(names)}; needed are {', '.join(_TEXTS)}, each once, and optional "
            f"{', '.join(_NUMBERS)}"
        )
    table = _read(path, names)
    if table.num_rows == 0:
        raise DataError(f"{path}: the catalogue holds no ads")
    columns = {name: _text(path, name, table.column(name)) for name in _TEXTS}
    for name in _NUMBERS:
        columns[name] = _weight(path, name, table)
    for name in names:
        if name not in columns:
            column = table.column(name).combine_chunks()
            columns[name] = _text(path, name, column) if pa.types.is_binary(column.type) else column
    ads = pa.table(columns)
    _check_ids(path, ads.column("ad_id").combine_chunks())
    return ads.take(pc.sort_indices(ads.column("ad_id").cast(pa.binary()))).combine_chunks()


def documents(ads: pa.Table) -> list[str]:
    """What every ad says, normalised."""
    titles, texts = ads.column("title").to_pylist(), ads.column("text").to_pylist()
    return [ad_document(title, text) for title, text in zip(titles, texts, strict=True)]


def _read(path: Path, names: list[str]) -> pa.Table:
    try:
        if path.name.endswith(".parquet"):
            return pq.read_table(path)
        return pa_csv.read_csv(
            path,
            pa_csv.ReadOptions(column_names=names, skip_rows=1),
            pa_csv.ParseOptions(newlines_in_values=True),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()), check_utf8=False),
        )
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def _text(path: Path, name: str, column: pa.ChunkedArray) -> pa.Array:
    """A column as text. Broken bytes in a text are replaced, since an ad is more than its worst letter; in an id they
    are refused."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        text = column.cast(pa.string()).fill_null("")
    except pa.ArrowInvalid as error:
        if name == "ad_id" or not pa.types.is_binary(column.type):
            raise DataError(f"{path}: {name} must be UTF-8 text ({error})") from error
        text = pa.array([(raw or b"").decode("utf-8", "replace") for raw in column.to_pylist()], pa.string())
    return text


def _weight(path: Path, name: str, table: pa.Table) -> pa.Array:
    """A column of numbers, each 1 where the file has none."""
    if name not in table.column_names:
        return pa.array(np.ones(table.num_rows))
    column = table.column(name).combine_chunks()
    values = numbers(column)
    none = np.asarray(pc.is_null(column))
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        none |= np.asarray(pc.equal(pc.binary_length(column), 0).fill_null(True))
    values = np.where(none, 1.0, values)
    bad = np.flatnonzero(~((values >= 0) & (values <= np.finfo(np.float32).max)))
    if len(bad):
        ad = table.column("ad_id")[int(bad[0])].as_py()
        got = column[int(bad[0])].as_py()
        raise DataError(
            f"{path}, row {bad[0] + 1} (ad {ad!r}): {name} must be a number, 0 or more and at most 3.4e38; got {got!r}"
        )
    return pa.array(values)


def _check_ids(path: Path, ids: pa.Array) -> None:
    counts = pc.value_counts(ids)
    again = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(again):
        first = again[0].as_py()
        raise DataError(f"{path}: ad_id {first['values']!r} occurs {first['counts']} times; ids must be unique")
    empty = pc.index(ids, "").as_py()
    if empty >= 0:
        raise DataError(f"{path}, row {empty + 1}: the ad_id is empty")
