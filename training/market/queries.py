"""The market's queries: what is typed, and what is meant by it.

A query is thought up by somebody who would be glad of one particular ad and asks for some of what it is: so every query
has an ad that fits, and queries spread over the catalogue as the ads do. An ambiguous word means several things.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np

from core.errors import UsageError
from core.sparse import Floats, Int32s
from training.market.ads import Ads
from training.market.phrases import MODIFIERS, RESEARCH, TYPED
from training.market.words import Language, Noun

ASKED = 3  # attributes that a query asks for, at most
_TYPO = 0.015
_SLIP = 8  # a mistyped query is as rare as one with that many words more
_TRIES = 2  # thoughts per query, before the catalogue is held to have no more to ask for


class Intent(NamedTuple):
    """What is meant: −1 where nothing is asked; `asked` are (slot, attribute); `weight` multiplies the probability."""

    category: int
    kind: int = -1
    brand: int = -1
    line: int = -1
    asked: tuple[tuple[int, int], ...] = ()
    weight: float = 1.0


class Queries(NamedTuple):
    """Texts in order of thought, and the intents of all, by query."""

    texts: list[str]
    rarity: Int32s  # per query: its words, and more for a slip of the keyboard
    shelf: Int32s  # per query: the category most likely meant
    query: Int32s  # the rest per intent
    category: Int32s
    kind: Int32s
    brand: Int32s
    line: Int32s
    slots: Int32s  # [intents, ASKED]
    values: Int32s  # [intents, ASKED]
    weight: Floats


def make_queries(words: Language, ads: Ads, n_queries: int, random: Random) -> Queries:
    """Every ad is somebody's first choice at least once before one is so twice, as far as the queries go."""
    mind = _Mind(words, ads, random)
    meant = mind.ambiguous_words(n_queries // 50)
    slips: set[str] = set()
    order: list[int] = []
    for _ in range(_TRIES * n_queries):
        if not order:
            order = random.sample(range(len(ads.kind)), len(ads.kind))
        text, intents = mind.think(order.pop())
        typed = text if random.random() > _TYPO else _mistype(text, random)
        if typed not in meant and typed != text:
            slips.add(typed)
        meant.setdefault(typed, intents)
        if len(meant) == n_queries:
            return _as_arrays(meant, slips)
    raise UsageError(f"{len(ads.kind)} ads give {len(meant)} distinct queries, not {n_queries}: ask for more ads")


def _as_arrays(meant: dict[str, list[Intent]], slips: set[str]) -> Queries:
    flat = [(query, intent) for query, intents in enumerate(meant.values()) for intent in intents]
    asked = np.full((len(flat), ASKED, 2), -1, np.int32)
    for row, (_, intent) in enumerate(flat):
        for column, pair in enumerate(intent.asked):
            asked[row, column] = pair
    main = [max(intents, key=lambda i: i.weight) for intents in meant.values()]

    def all_of(field: str) -> Int32s:
        return np.array([getattr(intent, field) for _, intent in flat], np.int32)

    return Queries(
        list(meant),
        np.array([len(text.split()) + _SLIP * (text in slips) for text in meant], np.int32),
        np.array([intent.category for intent in main], np.int32),
        np.array([query for query, _ in flat], np.int32),
        all_of("category"),
        all_of("kind"),
        all_of("brand"),
        all_of("line"),
        asked[:, :, 0],
        asked[:, :, 1],
        np.array([intent.weight for _, intent in flat], np.float32),
    )


class _Mind:
    """Thinks of queries that an ad would answer."""

    def __init__(self, words: Language, ads: Ads, random: Random) -> None:
        self._words, self._ads, self._random = words, ads, random
        sold = set(ads.kind.tolist())
        meanings = {word: tuple(s for s in senses if s.kind in sold) for word, senses in words.ambiguous.items()}
        self._meanings = {word: senses for word, senses in meanings.items() if len(senses) > 1}
        self._shelves: dict[int, list[int]] = {}
        for brand, category in sorted(set(zip(ads.brand.tolist(), ads.category.tolist(), strict=True))):
            self._shelves.setdefault(brand, []).append(category)
        self._shapes = {
            self._product: 0.74,
            self._line: 0.08,
            self._question: 0.06,
            self._shelf: 0.045,
            self._brand: 0.04,
            self._ambiguous: 0.035 if self._meanings else 0.0,
        }

    def think(self, ad: int) -> tuple[str, list[Intent]]:
        shape = self._random.choices(list(self._shapes), list(self._shapes.values()))[0]
        return shape(ad)

    def _product(self, ad: int) -> tuple[str, list[Intent]]:
        """The usual query: a thing, what it should be like, perhaps whose."""
        random = self._random
        asked = self._ask(ad, random.choices((0, 1, 2, 3), (0.3, 0.44, 0.21, 0.05))[0])
        brand = int(self._ads.brand[ad]) if random.random() < 0.18 else -1
        text = self._order(ad, self._thing(ad), asked, self._ads.brands[brand].lower() if brand >= 0 else "")
        kind, category = int(self._ads.kind[ad]), int(self._ads.category[ad])
        return self._dress(text, Intent(category, kind, brand, -1, asked))

    def _line(self, ad: int) -> tuple[str, list[Intent]]:
        """A brand's line, perhaps with what it is: somebody knows what they want."""
        brand, line = int(self._ads.brand[ad]), int(self._ads.line[ad])
        asked = self._ask(ad, self._random.choice((0, 0, 1)))
        thing = self._thing(ad) if self._random.random() < 0.5 else ""
        name = f"{self._ads.brands[brand]} {self._ads.lines[line]}".lower()
        intent = Intent(int(self._ads.category[ad]), int(self._ads.kind[ad]), brand, line, asked)
        return self._dress(self._order(ad, f"{name} {thing}".strip(), asked, ""), intent)

    def _question(self, ad: int) -> tuple[str, list[Intent]]:
        """Somebody who wants to know may buy as well, half as often."""
        random, category = self._random, int(self._ads.category[ad])
        noun = self._noun(ad)
        asked = self._ask(ad, random.choice((0, 0, 1)), uses_only=True)
        plain = " ".join(self._words.attributes[value] for _, value in asked)
        noun = Noun(f"{plain} {noun.one}".strip(), f"{plain} {noun.many}".strip())
        question = random.choice(self._words.categories[category].questions)
        text = question.replace("{a}", noun.with_article).replace("{}", noun.many)
        form = random.choice(("how to {}", "how to {}", "how do i {}", "best way to {}"))
        return form.format(text), [Intent(category, int(self._ads.kind[ad]), -1, -1, asked, 0.5)]

    def _shelf(self, ad: int) -> tuple[str, list[Intent]]:
        """Anything of a category, perhaps with one of its attributes."""
        category = int(self._ads.category[ad])
        asked = tuple(pair for pair in self._ask(ad, 1) if pair[0] > 0)
        noun = self._random.choice(self._words.categories[category].nouns)
        text = self._order(ad, noun.many, asked, "")
        return self._dress(text, Intent(category, asked=asked))

    def _brand(self, ad: int) -> tuple[str, list[Intent]]:
        """A brand, alone or with the kind of shop."""
        brand, category = int(self._ads.brand[ad]), int(self._ads.category[ad])
        name = self._ads.brands[brand].lower()
        if self._random.random() < 0.4:
            forms = ("{}", "{} website", "{} shop", "{} uk", "{} sale", "{} contact", "{} discount code", "{} reviews")
            shelves = self._shelves[brand]
            return self._random.choice(forms).format(name), [Intent(shelf, brand=brand) for shelf in shelves]
        noun = self._random.choice(self._words.categories[category].nouns)
        return self._dress(self._order(ad, noun.many, (), name), Intent(category, brand=brand))

    def ambiguous_words(self, most: int) -> dict[str, list[Intent]]:
        return {word: self._senses(word, -1) for word in list(self._meanings)[:most]}

    def _ambiguous(self, ad: int) -> tuple[str, list[Intent]]:
        """A word of several senses, alone or where one of them is clear; of this ad, if it has a word of that sort."""
        random, kind = self._random, int(self._ads.kind[ad])
        own = [word for word, senses in self._meanings.items() if any(sense.kind == kind for sense in senses)]
        word = random.choice(own or list(self._meanings))
        text, clear = word, -1
        if random.random() < 0.65:
            clear = random.randrange(len(self._meanings[word]))
            text = random.choice(self._meanings[word][clear].phrases)
        text = random.choice(MODIFIERS).format(text) if random.random() < 0.25 else text
        return text, self._senses(word, clear)

    def _senses(self, word: str, clear: int) -> list[Intent]:
        """The intents of an ambiguous word, the commonest sense first, or those where sense `clear` is meant."""
        kinds = [sense.kind for sense in self._meanings[word]]
        shares = range(len(kinds), 0, -1)
        weights = [min(1.0, 1.6 * share / sum(shares)) for share in shares]
        if clear >= 0:
            weights = [1.0 if sense == clear else 0.12 for sense in range(len(kinds))]
        shelves = [self._words.kinds[kind].category for kind in kinds]
        return [Intent(c, k, weight=w) for c, k, w in zip(shelves, kinds, weights, strict=True)]

    def _dress(self, text: str, intent: Intent) -> tuple[str, list[Intent]]:
        """With the words that people put around what they look for; those who only read click less."""
        drawn = self._random.random()
        if drawn < 0.3:
            return self._random.choice(MODIFIERS).format(text), [intent]
        if drawn < 0.34:
            return self._random.choice(RESEARCH).format(text), [intent._replace(weight=0.6)]
        return text, [intent]

    def _ask(self, ad: int, most: int, uses_only: bool = False) -> tuple[tuple[int, int], ...]:
        """Some of what the ad says about itself: (slot, attribute), its use more often than the rest."""
        said = [(slot, value) for slot, value in enumerate(self._ads.attributes[ad].tolist()) if value >= 0]
        said = [pair for pair in said if pair[0] == 0] if uses_only else said
        keys = {pair: self._random.random() * (0.5 if pair[0] == 0 else 1.0) for pair in said}
        return tuple(sorted(said, key=keys.__getitem__)[:most])

    def _word(self, value: int) -> str:
        word = self._words.attributes[value]
        others = TYPED.get(word)
        return self._random.choice(others.split("|")) if others and self._random.random() < 0.4 else word

    def _noun(self, ad: int) -> Noun:
        names = self._words.kinds[int(self._ads.kind[ad])].names
        return names[0] if self._random.random() < 0.5 else self._random.choice(names)

    def _thing(self, ad: int) -> str:
        return self._random.choice(self._noun(ad))

    def _order(self, ad: int, thing: str, asked: tuple[tuple[int, int], ...], brand: str) -> str:
        """Words in one of the orders in which people put them."""
        random, before, after = self._random, [thing], list[str]()
        slots = self._words.categories[int(self._ads.category[ad])].slots
        for slot, value in asked:
            word, lead = self._word(value), slots[slot - 1].lead if slot else ""
            if lead == "for" and " " not in word and random.random() < 0.3:
                before.insert(0, word)
            elif lead:
                after.append(f"{lead} {word}" if random.random() < 0.6 else word)
            elif random.random() < 0.8 and not word.startswith("with "):
                before.insert(0, word)
            else:
                after.append(word)
        if brand:
            side = before if random.random() < 0.75 else after
            side.insert(0 if side is before else len(after), brand)
        return " ".join(before + after)


def _mistype(text: str, random: Random) -> str:
    """One slip in one longer word: a letter left out, doubled or swapped with its neighbour."""
    words = text.split(" ")
    long = [n for n, word in enumerate(words) if len(word) > 4]
    if not long:
        return text
    at = random.choice(long)
    word, i = words[at], random.randrange(1, len(words[at]) - 2)
    slips = (word[:i] + word[i + 1 :], word[: i + 1] + word[i:], word[:i] + word[i + 1] + word[i] + word[i + 2 :])
    words[at] = random.choice(slips)
    return " ".join(words)
