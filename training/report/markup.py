"""HTML by hand, safely: what comes from outside is escaped unless it is marked as markup.

A page of a release shows queries and titles that strangers wrote. Functions here take plain text and return `Markup`;
only `Markup` is inserted as it is, so that whoever forgets something sees text escaped twice, never not at all.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

NOTHING = "–"  # in the place of a figure that is not there
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_FINE = {"XMAD", "XRMSE", "MAD", "regret", "AUPRC", "ECE"}  # shown with four decimals; the others are percentages
_BETTER_LOW = {"xmad", "xrmse", "mad", "regret", "ece", "size", "bytes", "mb", "megabytes", "rejects", "rejected"}
_BETTER_HIGH = {"wp", "ndcg", "p", "tau", "auprc", "coverage", "precision", "recall", "queries"}
_COUNTS = {"queries", "ads", "rows", "pairs"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """As text between tags or in a quoted attribute; characters that HTML forbids become U+FFFD."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_UNPRINTABLE.sub("\ufffd", str(value)), quote=True))


def join(parts: Iterable[object], separator: str = "") -> Markup:
    return Markup(separator.join(escape(part) for part in parts))


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """tag("td", "5 < 6", class_="n") → <td class="n">5 &lt; 6</td>; `_` in a name stands for `-`."""
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    written = "".join(f' {key}="{escape(value)}"' for key, value in pairs)
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def table(head: Sequence[str], rows: Iterable[Sequence[object]], text_columns: int = 1) -> Markup:
    """The first columns are text, the others numbers, aligned right. The first cell heads its row."""

    def cell(kind: str, at: int, content: object, **attributes: object) -> Markup:
        return tag(kind, content, class_="n" if at >= text_columns else None, **attributes)

    top = (cell("th", at, name, scope="col") for at, name in enumerate(head))
    body = (
        tag("tr", *(cell("td" if at else "th", at, c, scope=None if at else "row") for at, c in enumerate(row)))
        for row in rows
    )
    whole = tag("table", tag("thead", tag("tr", *top)), tag("tbody", *body))
    return tag("div", whole, class_="wide", tabindex="0")


def finite(value: object) -> float | None:
    """The number, or None for what is missing, not a number or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def count(value: object) -> str:
    number = finite(value)
    return NOTHING if number is None else spaced(number, 0)


def decimals(name: str, *values: float) -> int:
    """How many a figure of this name is shown with; numbers of things, and whole ones of nothing we know, have none."""
    said, words = set(re.split("[^A-Za-z]", name)), _words(name)
    unknown = not words & (_BETTER_LOW | _BETTER_HIGH) and all(value.is_integer() for value in values)
    return 4 if said & _FINE else 0 if words & _COUNTS or unknown else 2


def figure(name: str, value: object) -> str:
    """A figure of merit with as many decimals as its kind has."""
    number = finite(value)
    return NOTHING if number is None else spaced(number, decimals(name, number))


def spaced(value: float, digits: int, sign: str = "") -> str:
    """1234.5 → 1 234.50, with narrow spaces that do not break and a true minus."""
    return f"{value:{sign},.{digits}f}".replace(",", "\u202f").replace("-", "−")


def percent(share: object, digits: int = 1) -> str:
    number = finite(100 * (finite(share) or 0.0))  # a share near the largest float has no percentage
    if number is None or finite(share) is None:
        return NOTHING
    least = 10.0**-digits
    small = 0 < number < least / 2
    return f"< {least:.{digits}f}\u202f%" if small else f"{spaced(number, digits)}\u202f%"


def megabytes(size: object) -> str:
    number = finite(size)
    if number is None:
        return NOTHING
    return "< 0.01" if 0 < number < 5e3 else spaced(number / 1e6, 2)


def better(name: str, old: float, new: float) -> bool | None:
    """Whether a change of this figure is to be welcomed; None where it says nothing or there is none."""
    said = _words(name)
    if old == new or not said & (_BETTER_LOW | _BETTER_HIGH):
        return None
    return (new < old) == bool(said & _BETTER_LOW)


def _words(name: str) -> set[str]:
    return {word.casefold() for word in re.split("[^A-Za-z]", name)}


def best_of(name: str, values: Iterable[object]) -> float | None:
    """The best of the values of one figure."""
    numbers = [number for number in map(finite, values) if number is not None]
    lowest = better(name, 1.0, 0.0)
    return (min if lowest else max)(numbers, default=None)
