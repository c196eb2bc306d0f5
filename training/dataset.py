"""Data sets: the Extreme Classification Repository's text forms and scipy `.npz` pairs, read and checked.

    single   train.txt        `N D L`, then `label,label feature:value …`      relevance 1 each
    pairs    trn_X_Xf.txt     `N D`, then `feature:value …`
             trn_X_Y.txt      `N L`, then `label:relevance …`
    npz      trn_X.npz trn_Y.npz

Text may be gzipped. Unsorted ids are sorted; duplicate feature ids of a point are summed; of a duplicate label
the largest relevance counts; zeros are dropped. A directory means its train or its test part.
"""

from __future__ import annotations

import gzip
import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from scipy import sparse

from core.errors import DataError
from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s, take_rows, to_scipy
from training.parsing import count_lines, explain_line, parse_rows

Part = Literal["train", "test"]
_PREFIXES: dict[Part, tuple[str, ...]] = {"train": ("trn", "train"), "test": ("tst", "test")}
_MOST_IDS = 2**31 - 1
_BLOCK = 1 << 20  # bytes of text that are parsed at a time


class Dataset(NamedTuple):
    """Points and the relevance of labels for them: X is N × D, Y is N × L."""

    features: Csr
    relevance: Csr

    @property
    def n_points(self) -> int:
        return self.features.n_rows

    @property
    def n_features(self) -> int:
        return self.features.n_cols

    @property
    def n_labels(self) -> int:
        return self.relevance.n_cols

    def fingerprint(self) -> str:
        """SHA-256 over shapes and contents: two data sets with the same fingerprint train the same model."""
        digest = hashlib.sha256()
        for rows in self:
            digest.update(np.array([rows.n_rows, rows.n_cols, rows.nnz], "<i8").tobytes())
            for array in (rows.indptr, rows.indices, rows.values):
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def hold_out(data: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Split the points at random: (those kept, the held-out share)."""
    held = np.random.default_rng([seed, 2]).random(data.n_points) < share
    kept, out = np.flatnonzero(~held), np.flatnonzero(held)
    return (
        Dataset(take_rows(data.features, kept), take_rows(data.relevance, kept)),
        Dataset(take_rows(data.features, out), take_rows(data.relevance, out)),
    )


def write_dataset(directory: Path, part: Part, data: Dataset) -> None:
    """Write a part of a directory, as a scipy `.npz` pair."""
    for name, rows in zip("XY", data, strict=True):
        sparse.save_npz(directory / f"{_PREFIXES[part][0]}_{name}.npz", to_scipy(rows))


def read_dataset(path: Path, part: Part) -> Dataset:
    """Read a file, or the given part of a directory."""
    path = Path(path)
    if path.is_dir():
        path = _find_part(path, part)
    if not path.is_file():
        raise DataError(f"{path}: no such file or directory")
    if path.name.endswith(".npz"):
        return _checked(path, _read_npz(path), _read_npz(_partner(path, "_X", "_Y")))
    features, labels = _read_text(path)
    if labels is not None:
        return Dataset(features, labels)
    relevance_path = _partner(path, "_Xf", "_Y")
    relevance, labels = _read_text(relevance_path, keep_largest=True)
    if labels is not None:
        raise DataError(f"{relevance_path}, line 1: the header must be two counts, `N L`")
    return _checked(path, features, relevance)


def _find_part(directory: Path, part: Part) -> Path:
    names = [f"{p}{end}" for p in _PREFIXES[part] for end in ("_X_Xf.txt", "_X_Xf.txt.gz", "_X.npz", ".txt", ".txt.gz")]
    found = [directory / name for name in names if (directory / name).is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{directory}: more than one {part} part ({', '.join(f.name for f in found)}); name the file")
    raise DataError(f"{directory}: no {part} part; looked for {', '.join(names)}")


def _partner(path: Path, mine: str, other: str) -> Path:
    """The file with the relevances that belongs to a file of features."""
    stem, dot, ending = path.name.partition(".")
    if not stem.endswith(mine):
        raise DataError(
            f"{path}: a file of features must be named …{mine}.{ending}, so that …{other}.{ending} is found"
        )
    base = path.with_name(stem.removesuffix(mine) + other + dot + ending)
    toggled = base.with_suffix("") if base.suffix == ".gz" else base.with_name(base.name + ".gz")
    for candidate in (base, toggled):
        if candidate.is_file():
            return candidate
    raise DataError(f"{base}: missing; it holds the relevances for {path.name}")


class _Rows:
    """Rows that arrive in blocks, in arrays that grow where they are: a list of blocks would be there twice when it is
    joined, and leave holes behind."""

    def __init__(self, n_cols: int) -> None:
        self.n_cols, self.nnz = n_cols, 0
        self.lengths, self.indices, self.values = list[Int64s](), np.empty(0, np.int32), np.empty(0, np.float32)

    def add(self, rows: Csr) -> None:
        start, self.nnz = self.nnz, self.nnz + rows.nnz
        if self.nnz > len(self.indices):
            self._resize(self.nnz + self.nnz // 8)
        self.lengths.append(np.diff(rows.indptr))
        self.indices[start : self.nnz] = rows.indices
        self.values[start : self.nnz] = rows.values

    def joined(self) -> Csr:
        indptr = np.concatenate([np.zeros(1, np.int64), *self.lengths])
        np.cumsum(indptr, out=indptr)
        self._resize(self.nnz)
        return Csr(indptr, self.indices, self.values, self.n_cols)

    def _resize(self, size: int) -> None:
        self.indices.resize(size)
        self.values.resize(size)


def _read_text(path: Path, keep_largest: bool = False) -> tuple[Csr, Csr | None]:
    """Features and labels of a single file (`N D L`); the rows of one of a pair (`N D`), and None."""
    blocks = _blocks(path)
    first = next(blocks, b"")
    header = _header(path, first)
    n_rows, n_cols, n_labels = header if len(header) == 3 else (*header, 0)
    rows, labels = _Rows(n_cols), _Rows(n_labels)
    seen = 0
    for block in chain([first[first.find(b"\n") + 1 or len(first) :]], blocks):
        text = np.frombuffer(block, np.uint8)
        n = min(max(n_rows - seen, 0), count_lines(text))  # lines beyond the promised number are only counted
        some, some_labels, bad, lines = parse_rows(text, n, n_cols, n_labels)
        if bad >= 0:
            line = block.split(b"\n", bad + 1)[bad].decode("utf-8", "replace")
            raise DataError(f"{path}, line {seen + bad + 2}: {explain_line(line, n_cols, n_labels)}")
        rows.add(_tidy(path, some, seen, keep_largest))
        labels.add(_tidy(path, some_labels, seen, keep_largest=True))
        seen += lines
    if seen != n_rows:
        raise DataError(f"{path}: the header promises {n_rows} rows, the file has {seen}")
    return rows.joined(), labels.joined() if len(header) == 3 else None


def _blocks(path: Path) -> Iterator[bytes]:
    """The file's text, some whole lines at a time: all of it at once may be twice as large as the data in it."""
    rest = b""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while block := file.read(_BLOCK):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    yield whole + newline
    except (OSError, EOFError, zlib.error) as error:
        if path.suffix != ".gz":
            raise
        raise DataError(f"{path}: not a complete gzip file ({error})") from error
    if rest:
        yield rest


def _header(path: Path, text: bytes) -> tuple[int, ...]:
    """The counts of the first line: rows, columns and, in a single file, labels."""
    if not text:
        raise DataError(f"{path}: the file is empty")
    if text[:2] == b"\x1f\x8b":
        raise DataError(f"{path}: this is a gzip file; name it {path.name}.gz")
    first = text[:200].split(b"\n", 1)[0]
    words = first.split()
    if len(words) not in (2, 3) or not all(word.isdigit() and int(word) <= _MOST_IDS for word in words):
        shown = first[:60].decode("utf-8", "replace")
        raise DataError(f"{path}, line 1: the header must be counts, `N D L` or `N D`; got {shown!r}")
    return tuple(int(word) for word in words)


def _read_npz(path: Path) -> Csr:
    try:
        matrix = sparse.load_npz(path)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)  # before a conversion would follow a wrong index
        matrix = sparse.csr_matrix(matrix)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(f"{path}: not a scipy sparse matrix in .npz ({error})") from error
    if matrix.data.dtype.kind not in "fiub":
        raise DataError(f"{path}: values must be numbers, got {matrix.data.dtype}")
    if max(matrix.shape) > _MOST_IDS:
        raise DataError(f"{path}: {max(matrix.shape)} rows or columns; at most {_MOST_IDS} are possible")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is told below
        values = matrix.data.astype(np.float32, copy=False)
    for cause, bad in (("NaN", np.isnan(values)), ("infinite", np.isinf(values)), ("negative", values < 0)):
        if bad.any():
            row = int(np.searchsorted(matrix.indptr, int(np.flatnonzero(bad)[0]), "right")) - 1
            raise DataError(f"{path}, row {row}: a value is {cause}; values must be finite and 0 or more")
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
    rows = Csr(indptr, indices, values, matrix.shape[1])
    return _tidy(path, rows, 0, keep_largest=path.name.endswith("_Y.npz"))


def _checked(path: Path, features: Csr, relevance: Csr) -> Dataset:
    if features.n_rows != relevance.n_rows:
        raise DataError(f"{path}: {features.n_rows} points with features, {relevance.n_rows} with relevances")
    return Dataset(features, relevance)


def _tidy(path: Path, rows: Csr, first: int, keep_largest: bool) -> Csr:
    """Sort every row, merge duplicates (sum, or the largest), drop zeros, all in place; the file has `first` rows
    before these."""
    n = _tidy_rows(*rows[:3], keep_largest)
    rows = rows._replace(indices=rows.indices[:n], values=rows.values[:n])
    if not np.isfinite(rows.values).all():
        row = int(np.searchsorted(rows.indptr, int(np.flatnonzero(~np.isfinite(rows.values))[0]), "right")) - 1
        raise DataError(
            f"{path}, row {first + row}: the values of a duplicate id add up to more than a 32-bit float holds"
        )
    return rows


@kernel()
def _tidy_rows(indptr: Int64s, indices: Int32s, values: Floats, keep_largest: bool) -> int:
    n, stop = 0, 0
    for i in range(indptr.size - 1):
        start, stop = stop, indptr[i + 1]
        ascending = True
        for j in range(start + 1, stop):
            ascending = ascending and indices[j - 1] < indices[j]
        if not ascending:
            order = np.argsort(indices[start:stop], kind="mergesort")
            indices[start:stop] = indices[start:stop][order]
            values[start:stop] = values[start:stop][order]
        row = n
        for j in range(start, stop):  # what is written lies before what is still to be read
            index, value = indices[j], values[j]
            if value == 0.0:
                continue
            if n > row and indices[n - 1] == index:
                before = values[n - 1]
                values[n - 1] = max(before, value) if keep_largest else before + value
            else:
                indices[n] = index
                values[n] = value
                n += 1
        indptr[i + 1] = n
    return n
