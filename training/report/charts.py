"""Charts as inline SVG, drawn without a library: lines, grouped bars, reliability.

Each function returns a <figure> with a caption, a legend of HTML (it wraps by itself) and an SVG whose viewBox is about
as wide as a phone: there the text has its natural size, on wider screens it grows. Colours are CSS variables (`STYLE`),
so light, dark and print need no second drawing; series differ by shape too. Every mark says its value on hover.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from training.report.markup import Markup, finite, join, tag

SLOTS = 6  # colours and shapes; a seventh series repeats the first
NEUTRAL = -1  # a slot in grey
_WIDTH, _HEIGHT, _TALL = 360, 240, 310
_TOP, _RIGHT, _BOTTOM = 26, 16, 42
_CHARACTER = 6.7  # mean width of one at the size of the labels
_MARKS = 8  # on a line
_LARGEST = 1e12
_DISC, _SQUARE = "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", "M-4,-4h8v8h-8z"
_SHAPES = (
    _DISC,
    "M-3.5,-3.5h7v7h-7z",
    "M0,-4.6L4.4,3.4H-4.4z",
    "M0,-5L5,0L0,5L-5,0z",
    "M0,4.6L4.4,-3.4H-4.4z",
    "M-4.2,-1.4h2.8v-2.8h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8z",
)
_LIGHT = (
    "--s0:#2a78d6;--s1:#1baf7a;--s2:#eda100;--s3:#008300;--s4:#4a3aa7;--s5:#e34948;"
    "--s-1:#8a8983;--grid:#e6e5e1;--axis:#a5a49d;"
)
_DARK = (
    "--s0:#3987e5;--s1:#199e70;--s2:#c98500;--s3:#2f9e2f;--s4:#a79df2;--s5:#e66767;"
    "--s-1:#8f8e88;--grid:#343432;--axis:#73726c;"
)
STYLE = f"""
:root{{{_LIGHT}}}
@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
figure.chart{{margin:0;min-width:0}}
.chart figcaption{{font-weight:600}}
.chart svg{{display:block;width:100%;max-width:29rem;height:auto;overflow:visible}}
.chart text{{font-size:12px;fill:var(--soft)}}
.chart .value{{font-size:11px}}
.chart .grid{{stroke:var(--grid);stroke-width:1}}
.chart .base{{stroke:var(--axis);stroke-width:1}}
.chart .ideal{{stroke:var(--axis);stroke-width:1.5;stroke-dasharray:5 4}}
.chart .line{{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}}
.chart .mark{{stroke:var(--surface);stroke-width:1.5}}
.chart .thin{{stroke-width:1.25;opacity:.55}}
.legend{{display:flex;flex-wrap:wrap;gap:.15rem .9rem;margin:.3rem 0 .5rem;padding:0;
list-style:none;font-size:.875rem;color:var(--soft)}}
.legend li{{display:flex;align-items:center;gap:.35rem}}
.legend svg{{display:inline-block;width:.8rem;height:.8rem;flex:none}}
@media(min-width:34rem){{.chart text{{font-size:11px}}}}
{"".join(f".f{i}{{fill:var(--s{i})}}.l{i}{{stroke:var(--s{i})}}" for i in range(NEUTRAL, SLOTS))}
"""


class Axis(NamedTuple):
    """What is measured along it. `percent`: values are shares, shown in percent; `most`: ticks, at most about."""

    label: str
    log: bool = False
    percent: bool = False
    most: int = 5


class Scale(NamedTuple):
    """From values to places in the drawing."""

    low: float
    high: float
    start: float
    stop: float
    log: bool
    ticks: list[tuple[float, str]]

    def at(self, value: float) -> float:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        share = ((math.log(value) if self.log else value) - low) / (high - low)
        return round(self.start + share * (self.stop - self.start), 2)


Number = float | None
Points = Sequence[tuple[Number, Number]]
Weighted = Sequence[tuple[Number, Number, Number]]
Key = tuple[str, int, str]  # name, slot, shape


def round_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 · 10^n that reach from at or below `low` to at or above `high`."""
    if not high > low:
        low, high = min(low, 0.0), max(high, low + (abs(low) or 1.0))
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """1, 2 or 5 · 10^n at or beyond either end, and powers of ten between, or all such numbers where they are few."""
    high = max(high, low * 2)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    fine = [float(f"{s}e{p}") for p in powers for s in (1, 2, 5)]
    first = max(i for i, tick in enumerate(fine) if tick <= low * (1 + 1e-9))
    last = min(i for i, tick in enumerate(fine) if tick >= high * (1 - 1e-9))
    if last - first <= most:
        return fine[first : last + 1]
    tens = [tick for i, tick in enumerate(fine) if first <= i <= last and i % 3 == 0]
    return sorted({fine[first], fine[last], *tens[:: math.ceil(len(tens) / most)]})


def line_chart(
    title: str, series: Mapping[str, Points], x: Axis, y: Axis, slots: Mapping[str, int] | None = None
) -> Markup:
    """One line per series, by rising x. Points that are not finite (or not positive, on a log axis) are left out."""
    kept = {name: _clean(points, x.log) for name, points in series.items()}
    flat = [point for points in kept.values() for point in points]
    if not flat:
        return _empty(title)
    slots = slots or _in_order(series)
    rise = _scale(y, [0.0, *(p[1] for p in flat)], _HEIGHT - _BOTTOM, _TOP)
    run = _scale(x, [p[0] for p in flat] if x.log else [0.0, *(p[0] for p in flat)], _left(rise), _WIDTH - _RIGHT)
    parts = [_axes(x, y, run, rise)]
    for name, points in kept.items():
        places = [(run.at(a), rise.at(b)) for a, b in points]
        parts.append(_line(places, slots[name]))
        stride = max(1, math.ceil((len(places) - 1) / _MARKS))
        for at in sorted({*range(0, len(places), stride), len(places) - 1} if places else ()):
            said = f"{name}: {x.label} {_said(points[at][0], x)}, {y.label} {_said(points[at][1], y)}"
            parts.append(_mark(places[at], slots[name], _shape(slots[name]), said))
    about = f"Lines of {y.label} over {x.label} for {', '.join(kept)}."
    return _figure(title, about, [(n, slots[n], _shape(slots[n])) for n in kept], parts, _HEIGHT)


def bar_chart(
    title: str,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    y: Axis,
    slots: Mapping[str, int] | None = None,
) -> Markup:
    """Groups of bars from zero, one bar per series in each; a missing value leaves its place free."""
    values = [v for row in series.values() for v in map(_drawable, row) if v is not None]
    if not values:
        return _empty(title)
    slots = slots or _in_order(series)
    rise = _scale(y, [0.0, *values], _HEIGHT - _BOTTOM + 20, _TOP)
    left = _left(rise)
    room = (_WIDTH - _RIGHT - left) / len(groups)
    width = min((0.92 if len(groups) == 1 else 0.84) * room / len(series), 52.0)
    labelled = width >= 4 + _CHARACTER * max(len(_said(v, y, 3)) for v in values)
    parts = [_axes(Axis(""), y, None, rise)]
    for g, group in enumerate(groups):
        middle = left + (g + 0.5) * room
        parts.append(_text(middle, rise.start + 17, _cut(group, room), "middle"))
        for s, (name, row) in enumerate(series.items()):
            value = _drawable(row[g])
            if value is not None:
                from_left = middle + (s - len(series) / 2) * width
                parts.append(_bar(from_left, width, value, rise, slots[name], f"{group}, {name}: {_said(value, y)}"))
                if labelled:
                    above = min(rise.at(value), rise.at(0)) - 5
                    parts.append(_text(from_left + width / 2, above, _said(value, y, 3), "middle", "value"))
    about = f"Bars of {y.label} for {', '.join(series)}, grouped by {', '.join(groups)}."
    return _figure(title, about, [(n, slots[n], _SQUARE) for n in series], parts, _HEIGHT)


def reliability_chart(
    title: str, series: Mapping[str, Weighted], x: Axis, y: Axis, slots: Mapping[str, int] | None = None
) -> Markup:
    """(predicted, observed, weight) as discs whose area grows with the weight; on the diagonal both agree."""
    kept = {name: [p for p in map(_weighted, points) if p] for name, points in series.items()}
    flat = [point for points in kept.values() for point in points]
    if not flat:
        return _empty(title)
    slots = slots or _in_order(series)
    ends = [0.0, *(max(p[:2]) for p in flat)]
    rise = _scale(y, ends, _TALL - _BOTTOM, _TOP)
    run = _scale(x, ends, _left(rise), _WIDTH - _RIGHT)
    heaviest = max(p[2] for p in flat) or 1.0
    ideal = f'<line class="ideal" x1="{run.at(0)}" y1="{rise.at(0)}" x2="{run.stop}" y2="{rise.stop}"/>'
    parts = [_axes(x, y, run, rise), Markup(ideal)]
    for name, points in kept.items():
        places = [(run.at(a), rise.at(b)) for a, b, _ in points]
        parts.append(_line(places, slots[name], "line thin"))
        for place, (a, b, weight) in zip(places, points, strict=True):
            said = f"{name}: predicted {_said(a, x)}, observed {_said(b, y)}, weight {weight:g}"
            parts.append(_mark(place, slots[name], _DISC, said, 0.7 + math.sqrt(weight / heaviest)))
    about = f"Observed against predicted for {', '.join(kept)}; the dashed diagonal is perfect agreement."
    return _figure(title, about, [(n, slots[n], _DISC) for n in kept], parts, _TALL)


# --- parts ------------------------------------------------------------------------------------------------------------


def _in_order(series: Mapping[str, object]) -> dict[str, int]:
    return {name: i for i, name in enumerate(series)}


def _look(slot: int) -> int:
    return slot % SLOTS if slot >= 0 else NEUTRAL


def _shape(slot: int) -> str:
    return _SHAPES[max(slot, 0) % SLOTS]


def _drawable(value: Number) -> Number:
    """The number if a scale can show it, else None; what is next to nothing is nothing."""
    number = finite(value)
    return round(number, 12) if number is not None and abs(number) <= _LARGEST else None


def _clean(points: Points, log: bool) -> list[tuple[float, float]]:
    pairs = [(_drawable(x), _drawable(y)) for x, y in points]
    return sorted((x, y) for x, y in pairs if x is not None and y is not None and (x > 0 or not log))


def _weighted(point: tuple[Number, Number, Number]) -> tuple[float, float, float] | None:
    """The point, if it is one: rates and weights are not negative, and what weighs nothing is not there."""
    x, y, weight = map(_drawable, point)
    if x is None or y is None or weight is None or min(x, y) < 0 or weight <= 0:
        return None
    return x, y, weight


def _scale(axis: Axis, values: Sequence[float], start: float, stop: float) -> Scale:
    factor = 100.0 if axis.percent else 1.0
    ticks = (log_ticks if axis.log else round_ticks)(min(values) * factor, max(values) * factor, axis.most)
    digits = 0 if axis.log else max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    shown = [_tick(t, ticks) if axis.log else f"{t:.{digits}f}".replace("-", "−") for t in ticks]
    places = [t / factor for t in ticks]
    return Scale(places[0], places[-1], start, stop, axis.log, list(zip(places, shown, strict=True)))


def _tick(value: float, ticks: Sequence[float]) -> str:
    """On a log axis; an end that is too near to the power of ten beside it has no text."""
    inner = ticks[1:-1]
    crowded = any(tick != value and max(tick / value, value / tick) < (ticks[-1] / ticks[0]) ** 0.16 for tick in inner)
    return "" if crowded and value not in inner else f"{value:g}"


def _left(rise: Scale) -> float:
    return 10 + _CHARACTER * max(len(shown) for _, shown in rise.ticks)


def _said(value: float, axis: Axis, digits: int = 4) -> str:
    shown = f"{100 * value if axis.percent else value:#.{digits}g}".rstrip(".")
    return f"{shown} %" if axis.percent else shown


def _named(axis: Axis) -> str:
    return f"{axis.label} (%)" if axis.percent else axis.label


def _axes(x: Axis, y: Axis, run: Scale | None, rise: Scale) -> Markup:
    left = run.start if run else _left(rise)
    parts = [_text(0, 11, _named(y), "start")]
    for value, shown in rise.ticks:
        at, kind = rise.at(value), "base" if value == 0 or value == rise.low else "grid"
        parts.append(Markup(f'<line class="{kind}" x1="{left:.2f}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'))
        parts.append(_text(left - 6, at + 4, shown, "end"))
    if run:
        for value, shown in run.ticks:
            at = run.at(value)
            parts.append(Markup(f'<line class="base" x1="{at}" x2="{at}" y1="{rise.start}" y2="{rise.start + 4}"/>'))
            parts.append(_text(at, rise.start + 17, shown, "middle"))
        parts.append(_text((run.start + run.stop) / 2, rise.start + 37, _named(x), "middle"))
    return join(parts)


def _text(x: float, y: float, content: str, anchor: str, kind: str | None = None) -> Markup:
    return tag("text", content, x=f"{x:.2f}", y=f"{y:.2f}", text_anchor=anchor, class_=kind)


def _cut(text: str, room: float) -> str:
    most = max(1, int(room / _CHARACTER))
    return text if len(text) <= most else text[: most - 1] + "…"


def _line(places: Iterable[tuple[float, float]], slot: int, kind: str = "line") -> Markup:
    path = " ".join(f"{x:g},{y:g}" for x, y in places)
    return Markup(f'<polyline class="{kind} l{_look(slot)}" points="{path}"/>') if path else Markup("")


def _mark(place: tuple[float, float], slot: int, shape: str, said: str, size: float = 1.0) -> Markup:
    at = f"translate({place[0]:g} {place[1]:g}) scale({size:.3g})"
    return Markup(f'<path class="mark f{_look(slot)}" transform="{at}" d="{shape}">{tag("title", said)}</path>')


def _bar(left: float, width: float, value: float, rise: Scale, slot: int, said: str) -> Markup:
    zero, end = rise.at(0.0), rise.at(value)
    box = f'x="{left + 1:.2f}" width="{max(width - 2, 1):.2f}" y="{min(zero, end):g}" height="{abs(zero - end):.2f}"'
    return Markup(f'<rect class="f{_look(slot)}" {box} rx="1.5">{tag("title", said)}</rect>')


def _figure(title: str, about: str, legend: Iterable[Key], parts: Iterable[Markup], height: int) -> Markup:
    keys = []
    for name, slot, shape in legend:
        key = f'<path class="f{_look(slot)}" d="{shape}"/>'
        keys.append(tag("li", Markup(f'<svg viewBox="-6 -6 12 12" aria-hidden="true">{key}</svg>'), name))
    drawing = tag("svg", tag("title", title), tag("desc", about), *parts, viewBox=f"0 0 {_WIDTH} {height}", role="img")
    listed = tag("ul", *keys, class_="legend") if len(keys) > 1 else ""
    return tag("figure", tag("figcaption", title), listed, drawing, class_="chart")


def _empty(title: str) -> Markup:
    return tag("figure", tag("figcaption", title), tag("p", "No figures to draw.", class_="missing"), class_="chart")
