"""A table: query → the ads worth showing for it, best first, computed before anybody asks.

One small interface, two stores. The default is here: the immutable table inside a release, mapped, so that processes
share its pages and a lookup is a search in place without a copy. `core.redis_table` is the other, for nodes that should
not each hold it. Keys are normalised queries (`core.text.normalise`); ads are positions in the release's catalogue.
docs/tables.md is the specification of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from core import __version__
from core.errors import DataError, ModelError
from core.format import Arrays, create_array, map_arrays, read_manifest, write_manifest
from core.names import DTYPES as NAMES
from core.names import Names, check_names, names_arrays, names_of
from core.sparse import Floats, Int32s, Int64s

FORMAT, VERSION = "xreg-table", 1
_PREFIX = "query_"
_DTYPES = {"row_ptr": "<i8", "row_ad": "<i4", "row_score": "<f4"}
_BLOCK = 1 << 20  # entries checked at a time


class Row(NamedTuple):
    """The ads of one query, best first."""

    ads: Int32s
    scores: Floats


class Table(Protocol):
    """Read-only. A query without ads is not in the table; nor is a string that has no UTF-8."""

    def __len__(self) -> int: ...

    def get(self, query: str) -> Row | None: ...

    def get_many(self, queries: Sequence[str]) -> list[Row | None]: ...

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Every query with its row, in the store's own order."""
        ...

    def close(self) -> None: ...


class MappedTable:
    """The table of a directory, mapped. Rows are views of the file: read-only, good for as long as they are held."""

    def __init__(self, names: Names, rows: Arrays) -> None:
        self._names = names
        self._ptr: Int64s = rows["row_ptr"]
        self._ads: Int32s = rows["row_ad"]
        self._scores: Floats = rows["row_score"]

    @classmethod
    def open(cls, directory: Path, verify: bool = True) -> Self:
        """Map a table. `verify` also checks every checksum, name and row; without it only sizes, dtypes and shapes are
        checked, which is for directories that were verified before."""
        directory = Path(directory)
        manifest = read_manifest(directory, FORMAT, VERSION)
        arrays = map_arrays(directory, manifest, checksums=verify)
        names = names_of(directory, arrays, _PREFIX)
        cause = _wrong_arrays(manifest, arrays, names.count)
        if cause:
            raise ModelError(f"{directory}: {cause}")
        if verify:
            check_names(directory, names, _PREFIX)
            cause = wrong_rows(arrays["row_ptr"], arrays["row_ad"], arrays["row_score"], least=1)
            if cause:
                raise ModelError(f"{directory}: {cause}")
        return cls(names, arrays)

    def __len__(self) -> int:
        return self._names.count

    @property
    def most_ad(self) -> int:
        """The highest ad that a row names, −1 in an empty table."""
        return int(self._ads.max(initial=-1))

    def get(self, query: str) -> Row | None:
        i = self._names.find(query)
        return None if i < 0 else self._row(i)

    def get_many(self, queries: Sequence[str]) -> list[Row | None]:
        return [self.get(query) for query in queries]

    def rows(self) -> Iterator[tuple[str, Row]]:
        for i, query in enumerate(self._names.all()):
            yield query, self._row(i)

    def close(self) -> None:
        """Nothing to give back: the mapping ends when the table and the last row of it are gone."""

    def _row(self, i: int) -> Row:
        ptr = self._ptr.data
        start, stop = ptr[i], ptr[i + 1]
        return Row(self._ads[start:stop], self._scores[start:stop])


def write_table(
    directory: Path,
    queries: Sequence[str],
    indptr: npt.NDArray[Any],
    ads: npt.NDArray[Any],
    scores: npt.NDArray[Any],
) -> None:
    """Write a table into an existing directory: query i has ads[indptr[i]:indptr[i+1]], best first, with their scores.
    Queries without ads are left out. The caller writes aside (`core.format.written_aside`)."""
    if len(indptr) != len(queries) + 1:
        raise DataError(f"{len(queries)} queries need {len(queries) + 1} pointers; there are {len(indptr)}")
    if len(ads) and not 0 <= int(ads.min()) <= int(ads.max()) < 2**31:
        raise DataError(f"ads must be in 0 … {2**31 - 1}; they are in {ads.min()} … {ads.max()}")
    with np.errstate(over="ignore"):  # becomes infinite, which is refused below
        rows = Row(ads.astype(np.int32, copy=False), scores.astype(np.float32, copy=False))
    cause = wrong_rows(indptr, *rows)
    if cause:
        raise DataError(f"a table's rows: {cause}")
    kept = np.diff(indptr) > 0
    arrays = names_arrays((query for query, keep in zip(queries, kept, strict=True) if keep), _PREFIX)
    arrays |= {"row_ptr": np.append(0, indptr[1:][kept]), "row_ad": rows.ads, "row_score": rows.scores}
    for name, dtype in _kinds().items():
        create_array(directory, name, dtype, len(arrays[name]))[:] = arrays[name]
    sizes = {"queries": int(kept.sum()), "entries": len(ads)}
    about = {"format": FORMAT, "version": VERSION, "xreg": __version__, "numpy": np.__version__, "sizes": sizes}
    write_manifest(directory, about)


def _kinds() -> dict[str, str]:
    return {_PREFIX + field: dtype for field, dtype in NAMES.items()} | _DTYPES


def _wrong_arrays(manifest: dict[str, Any], arrays: Arrays, n_queries: int) -> str | None:
    """Which array is missing, does not belong here, or is of another kind or length."""
    for name in _kinds().keys() ^ arrays.keys():
        return f"{name}.npy " + ("does not belong to a table" if name in arrays else "is missing")
    for name, dtype in _DTYPES.items():
        if arrays[name].dtype.str != dtype or arrays[name].ndim != 1:
            return f"{name} must be one-dimensional {dtype}"
    n_entries = len(arrays["row_ad"])
    if manifest.get("sizes") != {"queries": n_queries, "entries": n_entries}:
        return f"the manifest's sizes are {manifest.get('sizes')}, the arrays' {n_queries} queries, {n_entries} entries"
    for name, length in (("row_ptr", n_queries + 1), ("row_score", n_entries)):
        if len(arrays[name]) != length:
            return f"{name} has {len(arrays[name])} entries, {length} were expected"
    return None


def wrong_rows(ptr: npt.NDArray[Any], ads: Int32s, scores: Floats, least: int = 0) -> str | None:
    """What is wrong with rows that should be finite, best first and without an ad twice, with `least` entries each."""
    if len(ads) != len(scores):
        return f"{len(ads)} ads have {len(scores)} scores"
    if ptr[0] != 0 or ptr[-1] != len(ads) or (np.diff(ptr) < least).any():
        return f"row_ptr must rise from 0 to {len(ads)}" + (", without empty rows" if least else "")
    first, n_rows = 0, len(ptr) - 1
    while first < n_rows:
        last = max(first + 1, int(np.searchsorted(ptr, ptr[first] + _BLOCK, side="right")) - 1)
        start, stop = ptr[first], ptr[last]
        row = np.repeat(np.arange(first, last), np.diff(ptr[first : last + 1]))
        cause = _wrong_block(row, ads[start:stop], scores[start:stop])
        if cause:
            return cause
        first = last
    return None


def _wrong_block(row: Int64s, ads: Int32s, scores: Floats) -> str | None:
    same = row[1:] == row[:-1]
    pairs = np.sort((row << 32) | ads)
    for what, wrong in (
        ("an ad is negative", ads < 0),
        ("a score is not finite", ~np.isfinite(scores)),
        ("scores must fall, best first", same & (scores[1:] > scores[:-1])),
    ):
        if wrong.any():
            return f"row {row[wrong.argmax()]}: {what}"
    twice = np.flatnonzero(pairs[1:] == pairs[:-1])
    return f"row {pairs[twice[0]] >> 32}: ad {pairs[twice[0]] & (2**32 - 1)} comes twice" if len(twice) else None
