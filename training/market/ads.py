"""The market's ads: what each one sells, as arrays for the truth, and the landing page that says so.

Brands sell a few product types of one or two categories; a line of a brand ("Nordvik Ridgeline 3") comes in several
variants that differ in their attributes. Brands and lines are combined anew, so words grow with the number of ads.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from itertools import accumulate
from random import Random
from typing import NamedTuple

import numpy as np

from core.sparse import Floats, Int32s
from training.market.phrases import BRAND_HEADS, BRAND_TAILS, LINES, SERVICE_TALK, SERVICES, TALK
from training.market.words import Category, Kind, Language, Slot

SLOTS = 5  # a type's own uses, then the attributes of its category
APPEAL = 0.6  # at most this much of the logit is the brand's …
QUALITY = 0.4  # … and this much the ad's
_USE = Slot("", ())
_PLACES = ("in", "to", "from")


class Ads(NamedTuple):
    """One row per ad; what an ad does not say is −1."""

    kind: Int32s
    category: Int32s
    brand: Int32s
    line: Int32s
    attributes: Int32s  # [ads, SLOTS]
    merit: Floats  # the logit's part that is the same for every query: brand and quality
    pages: list[Page]
    brands: list[str]
    lines: list[str]


class Page(NamedTuple):
    """What the outside world sees of an ad."""

    title: str
    text: str
    url: str
    bid: float
    quality: float


class _Offer(NamedTuple):
    kind: int
    brand: int
    line: int
    attributes: tuple[int, ...]


def make_ads(words: Language, n_ads: int, random: Random) -> Ads:
    brands = _brand_names(round(max(40.0, float(n_ads) ** 0.7)), random)
    offers, lines = _offers(words, n_ads, brands, random)
    appeal = [random.uniform(-APPEAL, APPEAL) for _ in brands]
    quality = [random.betavariate(3, 2) for _ in offers]
    price = [random.lognormvariate(-0.7, 0.4) for _ in words.categories]
    pages, category = [], [words.kinds[offer.kind].category for offer in offers]
    for ad, offer in enumerate(offers):
        bid = price[category[ad]] * random.lognormvariate(0.0, 0.3)
        text = _Writer(words, offer, brands[offer.brand], lines[offer.line], random)
        pages.append(Page(text.title(), text.text(), text.url(ad), round(bid, 2), round(quality[ad], 3)))
    merit = [appeal[o.brand] + QUALITY * (2.0 * page.quality - 1.0) for o, page in zip(offers, pages, strict=True)]
    columns = (np.array(column, np.int32) for column in zip(*offers, strict=True))
    kind, brand, line, attributes = columns
    shelf = np.array(category, np.int32)
    return Ads(kind, shelf, brand, line, attributes, np.array(merit, np.float32), pages, brands, lines)


def _brand_names(count: int, random: Random) -> list[str]:
    names = [head + tail for head in BRAND_HEADS for tail in BRAND_TAILS]
    if count > len(names):  # two syllables are used up
        names += [head + tail[:2] + second for head in BRAND_HEADS for tail in BRAND_TAILS for second in BRAND_TAILS]
    return random.sample(list(dict.fromkeys(names)), count)


def _offers(words: Language, n_ads: int, brands: list[str], random: Random) -> tuple[list[_Offer], list[str]]:
    """Every type on sale once, then by how common types are. No two offers are equal."""
    sellers = _sellers(words, len(brands), random)
    weights = _popularity(words, random)
    # A small market has fewer types, those of ambiguous words first.
    senses = [sense.kind for senses in words.ambiguous.values() for sense in senses]
    every = list(dict.fromkeys(senses + random.sample(range(len(words.kinds)), len(words.kinds))))[: n_ads // 3]
    kinds = every + random.choices(every, [weights[kind] for kind in every], k=n_ads - len(every))
    random.shuffle(kinds)
    cumulative = [list(accumulate((rank + 1.0) ** -0.7 for rank in range(len(s)))) for s in sellers]
    lines = _Lines(words, random)
    offers: dict[_Offer, None] = {}
    for kind in kinds:
        while True:
            ranks = cumulative[kind]
            brand = sellers[kind][bisect_right(ranks, random.random() * ranks[-1])]
            offer = _Offer(kind, brand, lines.pick(brand, kind), _variant(words, kind, random))
            if offer not in offers:
                break
        offers[offer] = None
    return list(offers), lines.names


def _popularity(words: Language, random: Random) -> list[float]:
    """Of types: some categories are larger, and some of their types."""
    category = random.sample([(rank + 2.0) ** -0.5 for rank in range(len(words.categories))], len(words.categories))
    return [category[kind.category] * random.uniform(0.4, 1.6) for kind in words.kinds]


def _sellers(words: Language, n_brands: int, random: Random) -> list[list[int]]:
    """The brands of every type, the largest first."""
    shelves = [[k for k, kind in enumerate(words.kinds) if kind.category == c] for c in range(len(words.categories))]
    sellers: list[list[int]] = [[] for _ in words.kinds]
    for brand in range(n_brands):
        homes = random.sample(range(len(shelves)), 1 if random.random() < 0.7 else 2)
        for home in homes:
            for kind in random.sample(shelves[home], min(len(shelves[home]), random.randint(2, 6))):
                sellers[kind].append(brand)
    for kind, own in enumerate(sellers):
        shelf = sorted({b for k in shelves[words.kinds[kind].category] for b in sellers[k]} - set(own))
        while len(own) < 3:
            own.append(shelf.pop(random.randrange(len(shelf))) if shelf else random.randrange(n_brands))
    return sellers


class _Lines:
    """Lines of brands, made as they are needed; the more variants a brand has of a type, the rarer a new line."""

    def __init__(self, words: Language, random: Random) -> None:
        self.names: list[str] = []
        self._words, self._random = words, random
        self._of: dict[tuple[int, int], list[int]] = {}
        self._taken: set[tuple[int, str]] = set()

    def pick(self, brand: int, kind: int) -> int:
        variants = self._of.setdefault((brand, kind), [])
        if self._random.random() * (1.5 + len(variants)) < 1.5:
            variants.append(len(self.names))
            self.names.append(self._name(brand, kind))
        else:
            variants.append(self._random.choice(variants))
        return variants[-1]

    def _name(self, brand: int, kind: int) -> str:
        random = self._random
        service = self._words.categories[self._words.kinds[kind].category].name in SERVICES
        for attempt in range(1_000):
            name, style = random.choice(LINES), random.random()
            if (service and attempt < 100) or style < 0.4:
                pass
            elif style < 0.65:
                name = f"{name} {random.choice(['2', '3', '4', '5', '7', 'Pro', 'Max', 'Lite', 'XT', 'Plus'])}"
            else:
                code = "".join(random.choices("ABCDEGHKLMNPRSTVXZ", k=random.choice((1, 2))))
                name = f"{code}{random.randrange(10, 99 * (attempt + 9))}"
            if (brand, name) not in self._taken:
                break
        self._taken.add((brand, name))
        return name


def _variant(words: Language, kind: int, random: Random) -> tuple[int, ...]:
    own = words.kinds[kind]
    use = random.choice(own.uses) if random.random() < 0.85 else -1
    rest = [random.choice(s.values) if random.random() < 0.65 else -1 for s in words.categories[own.category].slots]
    return (use, *rest, *(-1 for _ in range(SLOTS - 1 - len(rest))))


class _Writer:
    """Writes the landing page of one offer."""

    def __init__(self, words: Language, offer: _Offer, brand: str, line: str, random: Random) -> None:
        self._words, self._offer, self._random = words, offer, random
        self._brand, self._line = brand, line
        self._kind: Kind = words.kinds[offer.kind]
        self._noun = random.choice(self._kind.names)  # what this shop calls the thing
        self._category: Category = words.categories[self._kind.category]
        self._said = [  # in the order of speech: colour and such, the use, the thing, for whom
            (slot.lead, _capitals(words.attributes[value]) if slot.lead in _PLACES else words.attributes[value])
            for slot, value in zip((_USE, *self._category.slots), offer.attributes, strict=False)
            if value >= 0
        ]
        self._said = self._said[1:] + self._said[:1] if offer.attributes[0] >= 0 else self._said

    def _phrase(self, name: str, most: int = SLOTS) -> str:
        led = [f"{lead} {value}".strip() for lead, value in self._said if lead or value.startswith("with ")]
        plain = [value for lead, value in self._said if not (lead or value.startswith("with "))][-most:]
        led = led[: max(0, most - len(plain))]
        return " ".join((*plain, name, *led))

    def title(self) -> str:
        phrase = _capitals(self._phrase(self._random.choice(self._noun), most=self._random.choice((1, 2, 2))))
        form = self._random.choice(("{b} {l} {p}", "{p} | {b} {l}", "{b} {p} – {l}", "{p} by {b}", "{b} {l}: {p}"))
        return str(form.format(b=self._brand, l=self._line, p=phrase))

    def text(self) -> str:
        random, category = self._random, self._category
        sentences = [self._opening(), *self._search_words(), *self._also()]
        shop = SERVICE_TALK if category.name in SERVICES else TALK
        own = [_sentence(talk) for talk in random.sample(category.talk, random.choice((1, 2)))]
        for talk in (*own, *random.sample(shop, 8)):
            so_far = len(" ".join(sentences).split())
            if so_far >= 36 and so_far + len(talk.split()) > random.choice((38, 46, 54)):
                break
            sentences.append(talk)
        return " ".join(sentences)

    def _opening(self) -> str:
        phrase = self._phrase(self._noun.many)
        forms = [
            "Discover {b} {l}: {p}.",
            "{P} from {b}: see the {l} range.",
            "Looking for {p}? Meet {b} {l}.",
            "{b} {l}. {P} at a price you will like.",
            "Shop {p} by {b}. {l} is our most popular choice.",
        ]
        return self._random.choice(forms).format(b=self._brand, l=self._line, p=phrase, P=_sentence(phrase)[:-1])

    def _search_words(self) -> list[str]:
        """Some pages name what else the thing is called, as shops write for search engines."""
        random, names = self._random, [noun.many for noun in self._kind.names if noun != self._noun]
        known_as = [w for w, senses in self._words.ambiguous.items() if any(s.kind == self._offer.kind for s in senses)]
        said = [name for name in names if random.random() < 0.2] + [name for name in known_as if random.random() < 0.2]
        return [f"Popular searches: {_joined(said)}."] if said else []

    def _also(self) -> list[str]:
        """Most pages name what else the shop has: words that do not describe this ad."""
        random, shelf = self._random, self._kind.category
        others = [kind for kind in self._words.kinds if kind.category == shelf and kind is not self._kind]
        said = [random.choice(kind.names).many for kind in random.sample(others, random.choice((1, 2, 3)))]
        forms = (
            f"More in {self._category.title}: {_joined(said)}.",
            f"Customers also viewed {_joined(said)}.",
            f"Our {random.choice(self._category.nouns).many} range: {_joined(said)}.",
        )
        plain = [slot for slot in self._category.slots if not slot.lead]
        one, two = random.sample(random.choice(plain).values, 2)
        available = f"Also available: {self._words.attributes[one]}, {self._words.attributes[two]}."
        return [random.choice(forms)] * (random.random() < 0.7) + [available] * (random.random() < 0.4)

    def url(self, ad: int) -> str:
        parts = f"{self._line} {self._kind.names[0].one} {ad}".lower().replace(" ", "-")
        return f"https://www.{_ascii(self._brand).lower()}.example/{self._category.name}/{_ascii(parts)}"


def _joined(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _capitals(text: str) -> str:
    return " ".join(w if w in ("for", "in", "to", "from", "and") else w[0].upper() + w[1:] for w in text.split())


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
