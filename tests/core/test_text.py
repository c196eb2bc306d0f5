"""Text: one canonical form, words in any script, the same features offline and online."""

from __future__ import annotations

import math
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.errors import ModelError, UsageError
from core.format import write_manifest
from core.text import (
    VocabularyLimits,
    ad_document,
    build_vocabulary,
    normalise,
    open_vocabulary,
    words,
    write_vocabulary,
)

# Every plane, lone surrogates, and more of what is hard: marks, apostrophes, invisible characters, unspaced scripts.
HARD = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cs", "Mn", "Mc", "Lm", "No"]),
        st.sampled_from("aB1'’ʼ+# \u00ad\u200b\u200d\u0345\u0301ßİſǅﬁ漢字かナーไทย한"),
    ),
    max_size=12,
)


@given(HARD)
@example("a'\u0301")
@example("\u0390\u1fd3 ΐ İ ŉ ᾳ")
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


@given(HARD)
def test_composed_and_decomposed_texts_have_one_form(text: str) -> None:
    forms = {normalise(unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")}
    assert forms == {normalise(text)}


@given(HARD)
def test_a_normalised_text_is_utf8_with_single_spaces(text: str) -> None:
    form = normalise(text)
    assert form.encode().decode() == form
    assert form == " ".join(form.split())


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_takes_a_short_way_to_the_same_form(text: str) -> None:
    long_way = normalise(text + " é")
    assert long_way.split() == [*normalise(text).split(), "é"]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Men's  RUNNING-shoes, size 10+", "mens running shoes size 10+"),
        ("L’Oréal d'été 'quoted'", "loréal dété quoted"),
        ("C++ vs. C#; a+b #1", "c++ vs c# a b 1"),
        ("Straße ＦＵＬＬ ｗｉｄｔｈ ﬁne ①", "strasse full width fine 1"),
        ("हिन्दी किताब", "हिन्दी किताब"),
        ("soft\u00adhyphen zero\u200bwidth joi\u200dner", "softhyphen zero width joiner"),
        ("\ud800abc\udfff def", "abc def"),
        ("!? -- ❤️ \t", ""),
        ("", ""),
    ],
)
def test_the_canonical_form(text: str, form: str) -> None:
    assert normalise(text) == form


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("red shoes", ["red", "shoes"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("iphone手机 壳 c++", ["iphone", "手机", "壳", "c++"]),
        ("手机+", ["手机"]),
        ("ที่นี่ไทย", ["ที่นี่", "นี่ไ", "ไท", "ทย"]),
        ("ການ", ["ກາ", "ານ"]),
        ("한국어 책", ["한국어", "책"]),
        ("हिन्दी", ["हिन्दी"]),
        ("", []),
    ],
)
def test_words_of_spaced_and_unspaced_scripts(form: str, expected: list[str]) -> None:
    assert normalise(form) == form
    assert words(form) == expected


@given(HARD)
def test_every_normalised_text_gives_words_without_spaces(text: str) -> None:
    form = normalise(text)
    found = words(form)
    assert bool(found) == bool(form)
    assert all(word and " " not in word for word in found)


def test_a_shared_part_of_two_sentences_without_spaces_is_found() -> None:
    a, b = normalise("私は運動靴を買う"), normalise("安い運動靴")
    assert {"運動", "動靴"} <= set(words(a)) & set(words(b))


TEXTS = ["red running shoes", "blue shoes", "mens running shoes running", "東京の shoes", ""]


@pytest.mark.parametrize("bigrams", [False, True])
def test_values_are_tf_idf_of_the_plain_definition(bigrams: bool) -> None:
    vocabulary = build_vocabulary(TEXTS, VocabularyLimits(bigrams=bigrams))
    names = vocabulary.names()
    assert names == sorted(names)
    lists = [words(text) for text in TEXTS]
    if bigrams:
        lists = [ws + [" ".join(ws[i : i + 2]) for i in range(len(ws) - 1)] for ws in lists]
    assert set(names) == {word for ws in lists for word in ws}
    for text, expected in zip(TEXTS, lists, strict=True):
        ids, values = vocabulary.features(text)
        assert ids.dtype == np.int32
        assert values.dtype == np.float32
        assert ids.tolist() == sorted(names.index(word) for word in set(expected))
        for i, value in zip(ids.tolist(), values.tolist(), strict=True):
            df = sum(names[i] in ws for ws in lists)
            idf = math.log((1 + len(TEXTS)) / (1 + df)) + 1
            assert value == pytest.approx(expected.count(names[i]) * idf, rel=1e-6)


@given(st.lists(HARD, max_size=8), st.booleans())
def test_a_live_query_has_the_features_of_its_row_byte_for_byte(texts: list[str], bigrams: bool) -> None:
    forms = [normalise(text) for text in texts]
    vocabulary = build_vocabulary([*forms[::2], "a b 1"], VocabularyLimits(bigrams=bigrams))
    rows = vocabulary.rows(forms)
    assert rows.n_rows == len(forms)
    assert rows.n_cols == vocabulary.n_features
    for i, form in enumerate(forms):
        ids, values = vocabulary.features(form)
        row = slice(rows.indptr[i], rows.indptr[i + 1])
        assert rows.indices[row].tobytes() == ids.tobytes()
        assert rows.values[row].tobytes() == values.tobytes()


def test_rows_of_many_texts_equal_those_of_few() -> None:
    vocabulary = build_vocabulary(TEXTS, VocabularyLimits())
    many, few = vocabulary.rows(TEXTS * 20_000), vocabulary.rows(TEXTS)
    assert np.array_equal(many.indices, np.tile(few.indices, 20_000))
    assert np.array_equal(many.values, np.tile(few.values, 20_000))


def test_unknown_words_are_ignored() -> None:
    vocabulary = build_vocabulary(["red shoes"], VocabularyLimits())
    assert vocabulary.features("green shoes")[0].tolist() == [1]
    assert len(vocabulary.features("nothing known")[0]) == 0
    assert len(vocabulary.features("\ud800")[0]) == 0


def test_limits_keep_what_most_texts_hold_then_by_name() -> None:
    texts = ["b a", "b c", "b c d", "e"]
    assert build_vocabulary(texts, VocabularyLimits(most=3)).names() == ["a", "b", "c"]
    assert build_vocabulary(texts, VocabularyLimits(min_texts=2)).names() == ["b", "c"]
    with pytest.raises(UsageError, match="min_texts must be at least 1, got 0"):
        VocabularyLimits(min_texts=0)
    with pytest.raises(UsageError, match="most must be between"):
        VocabularyLimits(most=0)


def test_an_ad_says_its_title_and_its_text() -> None:
    assert ad_document("Men's Shoe", "Red.") == "mens shoe red"


@pytest.mark.parametrize("bigrams", [False, True])
def test_a_vocabulary_comes_back_from_disk_as_it_was(tmp_path: Path, bigrams: bool) -> None:
    vocabulary = build_vocabulary(TEXTS, VocabularyLimits(bigrams=bigrams))
    write_vocabulary(tmp_path / "v", vocabulary)
    again = open_vocabulary(tmp_path / "v")
    assert again.names() == vocabulary.names()
    assert again.idf.tobytes() == vocabulary.idf.tobytes()
    assert again.bigrams is bigrams
    write_vocabulary(tmp_path / "empty", build_vocabulary([], VocabularyLimits()))
    assert open_vocabulary(tmp_path / "empty").n_features == 0


def _resave(directory: Path, name: str, array: np.ndarray) -> None:
    """Another array under a manifest that agrees with it."""
    np.save(directory / f"{name}.npy", array)
    write_manifest(directory, {"format": "xreg-vocabulary", "version": 1, "bigrams": False})


@pytest.mark.parametrize(
    ("name", "array", "cause"),
    [
        ("ptr", np.array([0, 3, 2, 8]), "ptr falls"),
        ("ptr", np.array([0, 3, 8, 9]), "ptr must lead from 0 to the end of text, 8"),
        ("ptr", np.array([], np.int64), "ptr must lead"),
        ("idf", np.ones(2, np.float32), "idf must be 3 finite float32"),
        ("idf", np.array([1, np.nan, 1], np.float32), "idf must be 3 finite float32"),
        ("text", np.frombuffer(b"red\xffhoes", np.uint8), "not UTF-8"),
        ("text", np.frombuffer(b"redababe", np.uint8), "distinct and in order"),
        ("more", np.ones(2), "a vocabulary holds text, ptr, idf"),
    ],
)
def test_a_vocabulary_that_lies_is_refused(tmp_path: Path, name: str, array: np.ndarray, cause: str) -> None:
    write_vocabulary(tmp_path / "v", build_vocabulary(["ab abc red"], VocabularyLimits()))
    _resave(tmp_path / "v", name, array)
    with pytest.raises(ModelError, match=cause):
        open_vocabulary(tmp_path / "v")
