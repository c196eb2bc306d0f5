"""Words to features, the same code offline and online: a live query gets the features it was trained with.

    text ── normalise ──► canonical text ── words ──► names of features ── Vocabulary ──► ids and tf·idf values

The canonical form is also the key of a query in tables and data sets. There is no stemming and no list of stop words:
idf and the regressors weigh words, in any language. Scripts that are written without spaces give overlapping pairs of
characters, which need no dictionary and find the same substring wherever a sentence has it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import regex

from core.errors import ModelError, UsageError
from core.format import map_arrays, read_manifest, write_manifest
from core.sparse import Csr, Floats, Int32s, Int64s

FORMAT, VERSION = "xreg-vocabulary", 1
_MOST_FEATURES = 2**31 - 1

_ASCII_APOSTROPHE = re.compile(r"(?<=[a-z0-9])'(?=[a-z0-9])")
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:[+#]+(?![a-z0-9]))?")
_APOSTROPHE = regex.compile(r"(?<=[\p{L}\p{M}\p{N}])['’‘ʼ](?=[\p{L}\p{M}\p{N}])")
_WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:[+#]+(?![\p{L}\p{M}\p{N}]))?")
_IGNORED = regex.compile(r"[\p{Default_Ignorable_Code_Point}--\u200b]+", regex.VERSION1)  # U+200B separates words
_UNSPACED = "".join(rf"\p{{Script={s}}}" for s in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar"))
_UNSPACED += "ー〆"  # common to two scripts, so of none
_PIECE = regex.compile(rf"([{_UNSPACED}][{_UNSPACED}\p{{M}}]*)|[^{_UNSPACED}+#][^{_UNSPACED}]*")
_CHARACTER = regex.compile(r"\P{M}\p{M}*|\p{M}+")


def normalise(text: str) -> str:
    """The canonical form: NFKC, case-folded, no apostrophe inside a word (men's → mens), no invisible characters; words
    are runs of letters, marks and digits with the + and # that end them (c++, c#), one space between them.

    Normalising twice changes nothing, and texts that differ only in composition (NFC, NFD), case or punctuation become
    one. What holds no letter and no digit becomes the empty text.
    """
    if text.isascii():
        text = text.lower()
        if "'" in text:
            text = _ASCII_APOSTROPHE.sub("", text)
        return " ".join(_ASCII_WORD.findall(text))
    while (after := _pass(text)) != text:  # what folding or dropping brought together may compose, or fold, again
        text = after
    return text


def _pass(text: str) -> str:
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_WORD.findall(_APOSTROPHE.sub("", _IGNORED.sub("", text))))


def ad_document(title: str, text: str) -> str:
    """What an ad says, normalised: its features come from this text, in training and for an ad of tomorrow."""
    return normalise(f"{title}\n{text}")


def words(normalised: str) -> list[str]:
    """The words of a normalised text, in order. A run of an unspaced script gives its overlapping pairs of characters
    (a character with its marks); a lone one stays a word."""
    if normalised.isascii():
        return normalised.split()
    found = list[str]()
    for word in normalised.split():
        for piece in _PIECE.finditer(word):
            run = piece[1]
            if run is None:
                found.append(piece[0])
                continue
            characters = _CHARACTER.findall(run)
            if len(characters) == 1:
                found.append(run)
            found.extend(a + b for a, b in pairwise(characters))
    return found


@dataclass(frozen=True, slots=True)
class VocabularyLimits:
    """Which words become features.

    min_texts   texts that must hold a word
    most        features at most: those that most texts hold, ties by name
    bigrams     pairs of neighbouring words are features too, named "a b"
    """

    min_texts: int = 1
    most: int = 500_000
    bigrams: bool = False

    def __post_init__(self) -> None:
        if self.min_texts < 1:
            raise UsageError(f"min_texts must be at least 1, got {self.min_texts}")
        if not 1 <= self.most <= _MOST_FEATURES:
            raise UsageError(f"most must be between 1 and {_MOST_FEATURES}, got {self.most}")


class Reading(NamedTuple):
    """The features of a text, ids ascending, with values tf·idf; how many words it has, and how many are known."""

    indices: Int32s
    values: Floats
    n_words: int
    n_known: int


class Vocabulary:
    """Words with ids 0 … n−1 in the order of their names, and their idf = ln((1+N) / (1+df)) + 1."""

    def __init__(self, ids: Mapping[str, int], idf: Floats, bigrams: bool) -> None:
        self.ids, self.idf, self.bigrams = dict(ids), idf, bigrams
        self._idf = np.ascontiguousarray(idf, np.float32).data  # one number of it costs a third of an array's

    @property
    def n_features(self) -> int:
        return len(self.idf)

    def names(self) -> list[str]:
        return list(self.ids)

    def read(self, normalised: str) -> Reading:
        """The features of one normalised text; unknown words are ignored."""
        said, idf = words(normalised), self._idf
        counts = self._counts(said)
        n_known = sum(counts.values())
        if self.bigrams:
            counts |= self._counts(_pairs(said))
        order = sorted(counts)  # a product of 64 bits, rounded once, is the product of 32 bits that `rows` computes
        indices = np.array(order, np.int32)
        values = np.array([counts[i] * idf[i] for i in order], np.float32)
        indices.flags.writeable = values.flags.writeable = False
        return Reading(indices, values, len(said), n_known)

    def features(self, normalised: str) -> tuple[Int32s, Floats]:
        """Ids, ascending, and values tf·idf of the known words."""
        return self.read(normalised)[:2]

    def names_in(self, normalised: str) -> list[str]:
        """The features of a normalised text by name, each once."""
        return [name for name in dict.fromkeys(_names(normalised, self.bigrams)) if name in self.ids]

    def rows(self, texts: Iterable[str]) -> Csr:
        """The features of many normalised texts; row i equals `features` of text i, bit for bit."""
        indptr, indices, counts = [0], list[npt.NDArray[np.int32]](), list[npt.NDArray[np.float32]]()
        ids, values = list[int](), list[int]()
        for text in texts:
            found = self._counts(_names(text, self.bigrams))
            order = sorted(found)
            ids += order
            values += [found[i] for i in order]
            indptr.append(indptr[-1] + len(order))
            if len(ids) > 1 << 16:  # small integers of Python take eight times the room
                indices.append(np.array(ids, np.int32))
                counts.append(np.array(values, np.float32))
                ids, values = [], []
        at = np.concatenate([*indices, np.array(ids, np.int32)])
        tf = np.concatenate([*counts, np.array(values, np.float32)])
        return Csr(np.array(indptr, np.int64), at, tf * self.idf[at], self.n_features)

    def _counts(self, names: Iterable[str]) -> dict[int, int]:
        find, counts = self.ids.get, dict[int, int]()
        for name in names:
            i = find(name)
            if i is not None:
                counts[i] = counts.get(i, 0) + 1
        return counts


def _names(normalised: str, bigrams: bool) -> list[str]:
    found = words(normalised)
    return found + _pairs(found) if bigrams else found


def _pairs(said: list[str]) -> list[str]:
    return [f"{a} {b}" for a, b in pairwise(said)]


def build_vocabulary(texts: Iterable[str], limits: VocabularyLimits) -> Vocabulary:
    """The words of normalised texts, within the limits."""
    frequency, n = Counter[str](), 0
    for text in texts:
        frequency.update(set(_names(text, limits.bigrams)))
        n += 1
    kept = [name for name, count in frequency.items() if count >= limits.min_texts]
    if len(kept) > limits.most:
        kept = sorted(kept, key=lambda name: (-frequency[name], name))[: limits.most]
    kept.sort()
    idf = np.array([math.log((1 + n) / (1 + frequency[name])) + 1 for name in kept], np.float32)
    return Vocabulary({name: i for i, name in enumerate(kept)}, idf, limits.bigrams)


def write_vocabulary(directory: Path, vocabulary: Vocabulary) -> None:
    """Write into a new directory: `text` (UTF-8), `ptr` (where names begin in it), `idf`, and a manifest."""
    encoded = [name.encode() for name in vocabulary.names()]
    ptr = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(name) for name in encoded], out=ptr[1:])
    directory.mkdir(parents=True)
    np.save(directory / "text.npy", np.frombuffer(b"".join(encoded), np.uint8))
    np.save(directory / "ptr.npy", ptr)
    np.save(directory / "idf.npy", vocabulary.idf)
    about = {"format": FORMAT, "version": VERSION, "features": len(encoded), "bigrams": vocabulary.bigrams}
    write_manifest(directory, about)


def open_vocabulary(directory: Path, verify: bool = True) -> Vocabulary:
    """Open what `write_vocabulary` wrote; refuses arrays that do not make a vocabulary. `verify`: checksums too."""
    manifest = read_manifest(directory, FORMAT, VERSION)
    arrays = map_arrays(directory, manifest, verify)
    if set(arrays) != {"text", "ptr", "idf"} or not isinstance(manifest.get("bigrams"), bool):
        raise ModelError(f"{directory}: a vocabulary holds text, ptr, idf and bigrams; got {sorted(arrays)}")
    names = _decoded(directory, arrays["text"], arrays["ptr"])
    idf = np.array(arrays["idf"])
    if idf.dtype != np.float32 or len(idf) != len(names) or not np.isfinite(idf).all():
        raise ModelError(f"{directory}: idf must be {len(names)} finite float32, one for each name")
    if any(a >= b for a, b in pairwise(names)):
        raise ModelError(f"{directory}: names must be distinct and in order")
    return Vocabulary({name: i for i, name in enumerate(names)}, idf, manifest["bigrams"])


def _decoded(directory: Path, text: npt.NDArray[np.uint8], ptr: Int64s) -> list[str]:
    blob, ends = text.tobytes(), ptr.tolist()
    if text.dtype != np.uint8 or ptr.dtype != np.int64 or not ends or ends[0] != 0 or ends[-1] != len(blob):
        raise ModelError(f"{directory}: ptr must lead from 0 to the end of text, {len(blob)}")
    if (np.diff(ptr) < 0).any():
        raise ModelError(f"{directory}: ptr falls")
    try:
        return [blob[a:b].decode() for a, b in pairwise(ends)]
    except UnicodeDecodeError as error:
        raise ModelError(f"{directory}: a name is not UTF-8 ({error})") from error
