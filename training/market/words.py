"""The market's language: the shelves of `market_home` and `market_leisure` parsed.

An attribute is known by its words everywhere (`waterproof` boots and a `waterproof` phone share an id), a product type
by the place of its line. Parsing is strict: a fault in the vocabulary is ours, and a test finds it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from training.market.home import HOME
from training.market.leisure import LEISURE
from training.market.phrases import AMBIGUOUS

_IRREGULAR = {"mouse": "mice", "knife": "knives", "shelf": "shelves", "mic": "mics", "scarf": "scarves"}
_COLOUR = "black, white, navy, red, green, grey, beige, pink, blue, burgundy, mustard, teal"
_LISTS = {"*colour": _COLOUR}


class Noun(NamedTuple):
    """What a thing is called, one and many; equal where there is no plural."""

    one: str
    many: str

    @property
    def with_article(self) -> str:
        if self.one == self.many:
            return self.one
        return f"an {self.one}" if self.one[0] in "aeiou" else f"a {self.one}"


class Slot(NamedTuple):
    """Attributes that exclude one another, and the word that leads up to them in a query: for, in, to, or none."""

    lead: str
    values: tuple[int, ...]


class Kind(NamedTuple):
    """A product type: its names (the first is the commonest), its category and its own uses."""

    names: tuple[Noun, ...]
    category: int
    uses: tuple[int, ...]


class Category(NamedTuple):
    """A shelf: what it is called, asked and said, and the attributes that its products share."""

    name: str
    title: str
    nouns: tuple[Noun, ...]
    questions: tuple[str, ...]
    talk: tuple[str, ...]
    slots: tuple[Slot, ...]


class Sense(NamedTuple):
    """One meaning of an ambiguous word: the type that is meant, and queries in which it is clear."""

    kind: int
    phrases: tuple[str, ...]


class Language(NamedTuple):
    """Everything that can be said about a product."""

    categories: tuple[Category, ...]
    kinds: tuple[Kind, ...]
    attributes: tuple[str, ...]
    ambiguous: dict[str, tuple[Sense, ...]]

    def kin(self, kind: int) -> int:
        """The type a shopper compares it with: types come in pairs (the last of an odd shelf stands with itself)."""
        first = next(k for k, other in enumerate(self.kinds) if other.category == self.kinds[kind].category)
        other = first + ((kind - first) ^ 1)
        same = other < len(self.kinds) and self.kinds[other].category == self.kinds[kind].category
        return other if same else kind


@cache
def language() -> Language:
    ids: dict[str, int] = {}
    categories: list[Category] = []
    kinds: list[Kind] = []
    for paragraph in (HOME + LEISURE).strip().split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line]
        categories.append(_category(lines, ids))
        kinds += [_kind(line, len(categories) - 1, ids) for line in lines if line[0] not in "@?!-"]
    by_name = {kind.names[0].one: k for k, kind in enumerate(kinds)}
    entries = AMBIGUOUS.replace(";\n    ", "; ").strip().split("\n")
    ambiguous = dict(_ambiguous(entry, by_name) for entry in entries)
    return Language(tuple(categories), tuple(kinds), tuple(ids), ambiguous)


def _category(lines: list[str], ids: dict[str, int]) -> Category:
    name, title, nouns = (part.strip() for part in lines[0][1:].split("|"))
    questions, talk = lines[1][1:].split(","), lines[2][1:].split("|")
    return Category(
        name,
        title,
        tuple(_noun(noun) for noun in nouns.split(", ")),
        tuple(q.strip() for q in questions),
        tuple(t.strip() for t in talk),
        tuple(_slot(line[1:].strip(), ids) for line in lines if line[0] == "-"),
    )


def _slot(text: str, ids: dict[str, int]) -> Slot:
    lead, colon, values = text.partition(": ")
    return Slot(lead if colon else "", _attributes(values if colon else text, ids))


def _attributes(text: str, ids: dict[str, int]) -> tuple[int, ...]:
    return tuple(ids.setdefault(value.strip(), len(ids)) for value in _LISTS.get(text, text).split(", "))


def _kind(line: str, category: int, ids: dict[str, int]) -> Kind:
    names, uses = line.split(": ")
    return Kind(tuple(_noun(name) for name in names.split(", ")), category, _attributes(uses, ids))


def _noun(text: str) -> Noun:
    return Noun(text[:-1], text[:-1]) if text.endswith("!") else Noun(text, plural(text))


def plural(text: str) -> str:
    before, _, last = text.rpartition(" ")
    if last in _IRREGULAR:
        many = _IRREGULAR[last]
    elif last.endswith("y") and last[-2] not in "aeiou":
        many = f"{last[:-1]}ies"
    else:
        many = last + ("es" if last.endswith(("s", "x", "ch", "sh")) else "s")
    return f"{before} {many}".strip()


def _ambiguous(line: str, kinds: dict[str, int]) -> tuple[str, tuple[Sense, ...]]:
    word, _, senses = line.partition(": ")
    split = (sense.split(" = ") for sense in senses.split("; "))
    return word, tuple(
        Sense(kinds[kind], tuple(p.replace("*", word) for p in phrases.split(", "))) for kind, phrases in split
    )
