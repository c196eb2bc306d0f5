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
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from scipy import sparse

from core.errors import DataError
from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s, take_rows
from training.parsing import Bytes, explain_line, parse_rows

Part = Literal["train", "test"]
_PREFIXES: dict[Part, tuple[str, ...]] = {"train": ("trn", "train"), "test": ("tst", "test")}
_MOST_IDS = 2**31 - 1


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


def read_dataset(path: Path, part: Part) -> Dataset:
    """Read a file, or the given part of a directory."""
    path = Path(path)
    if path.is_dir():
        path = _find_part(path, part)
    if not path.is_file():
        raise DataError(f"{path}: no such file or directory")
    if path.name.endswith(".npz"):
        return _checked(path, _read_npz(path), _read_npz(_partner(path, "_X", "_Y")))
    text = _read_bytes(path)
    header, start = _header(path, text)
    if len(header) == 3:
        return Dataset(*_read_single(path, text, header, start))
    relevance_path = _partner(path, "_Xf", "_Y")
    relevance_text = _read_bytes(relevance_path)
    relevance_header, relevance_start = _header(relevance_path, relevance_text)
    if len(relevance_header) != 2:
        raise DataError(f"{relevance_path}, line 1: the header must be two counts, `N L`")
    features = _read_pairs(path, text, header, start)
    relevance = _read_pairs(relevance_path, relevance_text, relevance_header, relevance_start)
    return _checked(
        path, _tidy(path, features, keep_largest=False), _tidy(relevance_path, relevance, keep_largest=True)
    )


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


def _read_bytes(path: Path) -> Bytes:
    try:
        raw = path.read_bytes() if path.suffix == ".gz" else None
        text = gzip.decompress(raw) if raw is not None else None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a complete gzip file ({error})") from error
    if text is not None:
        buffer = np.frombuffer(text, np.uint8)
    else:
        buffer = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    if buffer.size == 0:
        raise DataError(f"{path}: the file is empty")
    if bytes(buffer[:2]) == b"\x1f\x8b":
        raise DataError(f"{path}: this is a gzip file; name it {path.name}.gz")
    return buffer


def _header(path: Path, text: Bytes) -> tuple[list[int], int]:
    """The counts of the first line and the offset of the second."""
    first = bytes(text[:200]).split(b"\n", 1)[0]
    words = first.split()
    if len(words) not in (2, 3) or not all(word.isdigit() and int(word) <= _MOST_IDS for word in words):
        shown = first[:60].decode("utf-8", "replace")
        raise DataError(f"{path}, line 1: the header must be counts, `N D L` or `N D`; got {shown!r}")
    counts = [int(word) for word in words]
    if counts[0] > text.size:  # a row takes at least its newline
        raise DataError(f"{path}: the header promises {counts[0]} rows, the file has only {text.size} bytes")
    return counts, len(first) + 1


def _read_single(path: Path, text: Bytes, header: list[int], start: int) -> tuple[Csr, Csr]:
    features, labels = _parsed(path, text, header, start)
    return _tidy(path, features, keep_largest=False), _tidy(path, labels, keep_largest=True)


def _read_pairs(path: Path, text: Bytes, header: list[int], start: int) -> Csr:
    return _parsed(path, text, [*header, 0], start)[0]


def _parsed(path: Path, text: Bytes, header: list[int], start: int) -> tuple[Csr, Csr]:
    n_rows, n_features, n_labels = header
    features, labels, bad, seen = parse_rows(text, start, n_rows, n_features, n_labels)
    if bad >= 0:
        line = bytes(text[start:]).split(b"\n", bad + 1)[bad].decode("utf-8", "replace")
        raise DataError(f"{path}, line {bad + 2}: {explain_line(line, n_features, n_labels)}")
    if seen != n_rows:
        raise DataError(f"{path}: the header promises {n_rows} rows, the file has {seen}")
    return features, labels


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
        values = matrix.data.astype(np.float32)
    for cause, bad in (("NaN", np.isnan(values)), ("infinite", np.isinf(values)), ("negative", values < 0)):
        if bad.any():
            row = int(np.searchsorted(matrix.indptr, int(np.flatnonzero(bad)[0]), "right")) - 1
            raise DataError(f"{path}, row {row}: a value is {cause}; values must be finite and 0 or more")
    rows = Csr(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), values, matrix.shape[1])
    return _tidy(path, rows, keep_largest=path.name.endswith("_Y.npz"))


def _checked(path: Path, features: Csr, relevance: Csr) -> Dataset:
    if features.n_rows != relevance.n_rows:
        raise DataError(f"{path}: {features.n_rows} points with features, {relevance.n_rows} with relevances")
    return Dataset(features, relevance)


def _tidy(path: Path, rows: Csr, keep_largest: bool) -> Csr:
    """Sort every row, merge duplicates (sum, or the largest), drop zeros."""
    indptr = np.zeros_like(rows.indptr)
    indices, values = np.empty_like(rows.indices), np.empty_like(rows.values)
    n = _tidy_rows(rows.indptr, rows.indices, rows.values, keep_largest, indptr, indices, values)
    if not np.isfinite(values[:n]).all():
        row = int(np.searchsorted(indptr, int(np.flatnonzero(~np.isfinite(values[:n]))[0]), "right")) - 1
        raise DataError(f"{path}, row {row}: the values of a duplicate id add up to more than a 32-bit float holds")
    return Csr(indptr, indices[:n], values[:n], rows.n_cols)


@kernel()
def _tidy_rows(
    indptr: Int64s,
    indices: Int32s,
    values: Floats,
    keep_largest: bool,
    out_indptr: Int64s,
    out_indices: Int32s,
    out_values: Floats,
) -> int:
    n = 0
    for i in range(indptr.size - 1):
        start, stop = indptr[i], indptr[i + 1]
        ascending = True
        for j in range(start + 1, stop):
            ascending = ascending and indices[j - 1] < indices[j]
        order = np.arange(stop - start) if ascending else np.argsort(indices[start:stop], kind="mergesort")
        row = n
        for o in order:
            index, value = indices[start + o], values[start + o]
            if value == 0.0:
                continue
            if n > row and out_indices[n - 1] == index:
                before = out_values[n - 1]
                out_values[n - 1] = max(before, value) if keep_largest else before + value
            else:
                out_indices[n] = index
                out_values[n] = value
                n += 1
        out_indptr[i + 1] = n
    return n
