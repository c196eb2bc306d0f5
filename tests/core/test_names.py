"""Names are found by their text alone, whatever the hash does; arrays that lie are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DataError, ModelError
from core.format import Arrays, create_array, map_arrays, write_manifest
from core.names import Digest, Names, check_names, names_arrays, names_of

HERE = Path("here")
WORDS = ["running shoes", "", "größe 42", "跑鞋", "🏃", "a", "b", "ab"]


def weak(raw: bytes) -> int:
    return len(raw) % 3


def bad(raw: bytes) -> int:
    return 2**64 - 1


texts = st.text(st.characters(codec="utf-8"), max_size=8)


@pytest.mark.parametrize("digest", [None, weak, bad])
@given(strings=st.lists(texts, unique=True, max_size=30), others=st.lists(texts, max_size=10))
def test_every_name_has_its_id_and_no_other_string_has_one(
    digest: Digest | None, strings: list[str], others: list[str]
) -> None:
    names = made(strings, digest)
    check_names(HERE, names)
    known = {name: i for i, name in enumerate(strings)}
    assert names.count == len(strings)
    assert list(names.all()) == strings
    assert [names.name(i) for i in range(names.count)] == strings
    for name in strings + others:
        assert names.find(name) == known.get(name, -1)


def made(strings: list[str], digest: Digest | None = None) -> Names:
    if digest is None:
        return names_of(HERE, names_arrays(strings))
    return names_of(HERE, names_arrays(strings, digest=digest))._replace(digest=digest)


def test_what_is_not_utf_8_is_not_found_and_not_written() -> None:
    assert made(WORDS).find("\ud800") == -1
    with pytest.raises(DataError, match=r"name 1, '\\ud800', has no UTF-8"):
        names_arrays(["a", "\ud800"])


@pytest.mark.parametrize("digest", [None, weak, bad])
def test_a_name_that_comes_twice_is_refused(digest: Digest | None) -> None:
    with pytest.raises(DataError, match="names must be distinct: 'ab' is both 7 and 8"):
        made([*WORDS, "ab"], digest)


def test_an_id_out_of_range_has_no_name() -> None:
    for i in (-1, len(WORDS)):
        with pytest.raises(IndexError, match=f"no name {i} among 8"):
            made(WORDS).name(i)


def test_hashes_are_those_of_xxh3_and_arrays_of_the_documented_kinds() -> None:
    arrays = names_arrays(["a"], prefix="query_")
    assert {name: array.dtype.str for name, array in arrays.items()} == {
        "query_text": "|u1",
        "query_ptr": "<i8",
        "query_hash": "<u8",
        "query_id": "<i4",
    }
    assert hex(arrays["query_hash"][0]) == "0xe6c632b61e964e1f"  # XXH3_64bits("a"), from the xxHash test vectors


def test_mapped_names_are_those_in_memory(tmp_path: Path) -> None:
    for name, array in names_arrays(WORDS, "w_").items():
        create_array(tmp_path, name, array.dtype, len(array))[:] = array
    write_manifest(tmp_path, {})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    names = names_of(tmp_path, map_arrays(tmp_path, manifest, checksums=True), "w_")
    check_names(tmp_path, names)
    assert [names.find(word) for word in WORDS] == list(range(len(WORDS)))


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("ptr", lambda a: a.__setitem__(0, 1), "ptr must rise from 0"),
        ("ptr", lambda a: a.__setitem__(2, 10**6), "ptr must rise from 0"),
        ("ptr", lambda a: a.__setitem__(-1, a[-1] - 1), "ptr must rise from 0"),
        ("ptr", lambda a: a.__setitem__(4, a[4] - 1), r"name 3 is not UTF-8 \(unexpected end of data\)"),
        ("hash", lambda a: a.__setitem__(0, 2**64 - 1), "hash must rise"),
        ("hash", lambda a: a.__setitem__(0, 0), "hash: entry 0 is not the hash of name"),
        ("id", lambda a: a.__setitem__(0, a[1]), "id must hold each of 0 … 7 once"),
        ("id", lambda a: a.__setitem__(0, -1), "id must hold each of 0 … 7 once"),
        ("id", lambda a: a.__setitem__(slice(0, 2), a[:2][::-1].copy()), "hash: entry 0 is not the hash of name"),
        ("text", lambda a: a.__setitem__(0, 0xFF), r"name 0 is not UTF-8 \(invalid start byte\)"),
        ("text", lambda a: a.__setitem__(0, ord("R")), "is not the hash of name 0"),
    ],
)
def test_arrays_that_lie_are_refused(field: str, change: Callable[[Any], None], message: str) -> None:
    arrays = writeable(names_arrays(WORDS, "w_"))
    change(arrays["w_" + field])
    with pytest.raises(ModelError, match=f"here: w_.*{message}"):
        check_names(HERE, names_of(HERE, arrays, "w_"), "w_")


def test_two_ids_of_one_text_are_refused() -> None:
    arrays = writeable(names_arrays(["aa", "ab"], digest=bad))
    arrays["text"][3] = ord("a")
    with pytest.raises(ModelError, match="text: names 0 and 1 are the same"):
        check_names(HERE, names_of(HERE, arrays)._replace(digest=bad))


def writeable(arrays: Arrays) -> Arrays:
    return {name: array.copy() for name, array in arrays.items()}


def test_arrays_of_other_kinds_or_lengths_are_refused() -> None:
    arrays = names_arrays(WORDS)
    with pytest.raises(ModelError, match=r"here: hash.npy is missing"):
        names_of(HERE, {name: array for name, array in arrays.items() if name != "hash"})
    with pytest.raises(ModelError, match="hash must be one-dimensional <u8"):
        names_of(HERE, arrays | {"hash": arrays["hash"].astype(np.int64)})
    with pytest.raises(ModelError, match="ptr has 8 entries, not 9"):
        names_of(HERE, arrays | {"ptr": arrays["ptr"][:-1]})
