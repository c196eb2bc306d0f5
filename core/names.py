"""Names: distinct strings with the ids 0 … n−1, in four flat arrays that are mapped and searched as they are.

One blob of UTF-8 and its pointers give the name of an id; the sorted 64-bit hashes and the ids in their order give the
id of a name. The text decides, the hash only leads to it: all names of one hash are walked and compared. A dict would
be faster, but every process would build and keep its own; these pages are shared, and ready when the file is mapped.
Bisecting a memoryview takes 1.3 … 1.8 µs at 1M names, like NumPy's search or a kernel, and compiles nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from core.errors import DataError, ModelError
from core.format import Arrays
from core.sparse import Int32s, Int64s

Digest = Callable[[bytes], int]
UInt64s = npt.NDArray[np.uint64]
DTYPES = {"text": "|u1", "ptr": "<i8", "hash": "<u8", "id": "<i4"}
_MOST = 2**31 - 1


class Names(NamedTuple):
    """Name i is text[ptr[i]:ptr[i+1]]; hash[j], rising, is that of name id[j]."""

    text: npt.NDArray[np.uint8]
    ptr: Int64s
    hash: UInt64s
    id: Int32s
    digest: Digest = xxh3_64_intdigest

    @property
    def count(self) -> int:  # type: ignore[override]  # len() is the tuple's; its own count() is of no use here
        return len(self.id)

    def name(self, i: int) -> str:
        if not 0 <= i < len(self.id):
            raise IndexError(f"no name {i} among {len(self.id)}")
        ptr = self.ptr.data
        return str(self.text.data[ptr[i] : ptr[i + 1]], "utf-8")

    def find(self, name: str) -> int:
        """The id of a name, −1 where it is unknown."""
        try:
            key = name.encode()
        except UnicodeEncodeError:  # a lone surrogate: no name has one
            return -1
        digest, hashes = self.digest(key), self.hash.data
        at = bisect_left(hashes, digest)
        while at < len(hashes) and hashes[at] == digest:
            i, ptr = self.id.data[at], self.ptr.data
            if self.text.data[ptr[i] : ptr[i + 1]] == key:
                return int(i)
            at += 1
        return -1

    def all(self) -> Iterator[str]:
        """Every name, in the order of the ids."""
        for raw in _raw(self):
            yield raw.decode()


def names_arrays(strings: Iterable[str], prefix: str = "", digest: Digest = xxh3_64_intdigest) -> Arrays:
    """The arrays of these names, which get their ids in the order given."""
    raw = list(_encoded(strings))
    if len(raw) > _MOST:
        raise DataError(f"{len(raw)} names; ids have 31 bits")
    hashes = np.fromiter(map(digest, raw), np.uint64, len(raw))
    ids = np.argsort(hashes, kind="stable").astype(np.int32)
    ptr = np.zeros(len(raw) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, raw), np.int64, len(raw)), out=ptr[1:])
    names = Names(np.frombuffer(b"".join(raw), np.uint8), ptr, hashes[ids], ids, digest)
    twice = _twice(names)
    if twice:
        raise DataError(f"names must be distinct: {names.name(twice[0])!r} is both {twice[0]} and {twice[1]}")
    return {prefix + field: getattr(names, field) for field in DTYPES}


def names_of(where: Path, arrays: Arrays, prefix: str = "") -> Names:
    """The names among mapped arrays; dtypes and lengths are right, `check_names` looks at the rest."""
    for field, dtype in DTYPES.items():
        array = arrays.get(prefix + field)
        if array is None:
            raise ModelError(f"{where}: {prefix}{field}.npy is missing")
        if array.dtype.str != dtype or array.ndim != 1:
            raise ModelError(f"{where}: {prefix}{field} must be one-dimensional {dtype}")
    names = Names(**{field: arrays[prefix + field] for field in DTYPES})  # type: ignore[arg-type]  # checked above
    for field, length in (("ptr", names.count + 1), ("hash", names.count)):
        if len(arrays[prefix + field]) != length:
            raise ModelError(f"{where}: {prefix}{field} has {len(arrays[prefix + field])} entries, not {length}")
    return names


def check_names(where: Path, names: Names, prefix: str = "") -> None:
    """Refuse arrays that would send a reader astray, or by which a name would not be found."""
    cause = _wrong(names)
    if cause:
        raise ModelError(f"{where}: {prefix}{cause}")


def _wrong(names: Names) -> str | None:
    if names.ptr[0] != 0 or names.ptr[-1] != len(names.text) or (np.diff(names.ptr) < 0).any():
        return f"ptr must rise from 0 to {len(names.text)}"
    if (names.hash[1:] < names.hash[:-1]).any():
        return "hash must rise"
    if not np.array_equal(np.sort(names.id), np.arange(names.count)):
        return f"id must hold each of 0 … {names.count - 1} once"
    hashes = np.empty(names.count, np.uint64)
    for i, raw in enumerate(_raw(names)):
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return f"text: name {i} is not UTF-8 ({error.reason})"
        hashes[i] = names.digest(raw)
    wrong = np.flatnonzero(hashes[names.id] != names.hash)
    if len(wrong):
        return f"hash: entry {wrong[0]} is not the hash of name {names.id[wrong[0]]}"
    twice = _twice(names)
    return f"text: names {twice[0]} and {twice[1]} are the same" if twice else None


def _encoded(strings: Iterable[str]) -> Iterator[bytes]:
    for i, string in enumerate(strings):
        try:
            yield string.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"name {i}, {string!r}, has no UTF-8 ({error.reason})") from error


def _raw(names: Names, block: int = 65536) -> Iterator[bytes]:
    """The UTF-8 of every name; memory holds a block of them."""
    for first in range(0, names.count, block):
        ptr = names.ptr[first : first + block + 1]
        text, ends = names.text[ptr[0] : ptr[-1]].tobytes(), (ptr - ptr[0]).tolist()
        for start, end in pairwise(ends):
            yield text[start:end]


def _twice(names: Names) -> tuple[int, int] | None:
    """The ids of two names that are the same."""
    seen: dict[tuple[int, str], int] = {}
    equal = names.hash[1:] == names.hash[:-1]
    for at in np.flatnonzero(np.r_[False, equal] | np.r_[equal, False])[: names.count]:
        i = int(names.id[at])
        before = seen.setdefault((int(names.hash[at]), names.name(i)), i)
        if before != i:
            return min(before, i), max(before, i)
    return None
