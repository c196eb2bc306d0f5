"""Charts: what is drawn lies inside the drawing, says its value, and is well-formed whatever the numbers and names."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.pages import Page
from training.report.charts import (
    NEUTRAL,
    SLOTS,
    STYLE,
    Axis,
    bar_chart,
    line_chart,
    log_ticks,
    reliability_chart,
    round_ticks,
)

NUMBERS = st.one_of(st.none(), st.floats(), st.floats(0, 1), st.integers(-1000, 1000).map(float))
SANE = st.floats(-1e9, 1e9, allow_subnormal=False)
NAMES = st.text(max_size=12)
X, Y = Axis("x"), Axis("y", percent=True)


@given(SANE, st.floats(1e-6, 1e9), st.integers(2, 8))
def test_round_ticks_enclose_the_values_in_equal_round_steps(low: float, span: float, most: int) -> None:
    high = low + span
    if high - low < 1e-6 * max(abs(low), abs(high)):  # nothing between them that could be told apart
        return
    ticks = round_ticks(low, high, most)
    slack = 1e-6 * (high - low)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= most + 2
    step = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
    assert [b - a for a, b in pairwise(ticks)] == pytest.approx([step] * (len(ticks) - 1), rel=1e-3)
    assert float(f"{step:.3e}"[0]) in (1, 2, 5)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 80, [0, 20, 40, 60, 80]),
        (0, 0.3, [0, 0.1, 0.2, 0.3]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-3, 4, [-4, -2, 0, 2, 4]),
    ],
)
def test_round_ticks_by_example(low: float, high: float, ticks: list[float]) -> None:
    assert round_ticks(low, high) == pytest.approx(ticks)


@given(st.floats(1e-12, 1e12), st.floats(1, 1e12), st.integers(3, 8))
def test_log_ticks_enclose_the_values_and_rise(low: float, ratio: float, most: int) -> None:
    high = low * ratio
    ticks = log_ticks(low, high, most)
    assert ticks[0] <= low * (1 + 1e-6)
    assert ticks[-1] >= high * (1 - 1e-6)
    assert ticks == sorted(set(ticks))
    assert 2 <= len(ticks) <= most + 2
    assert all(f"{tick:.0e}"[0] in "125" for tick in ticks)


def test_log_ticks_by_example() -> None:
    assert log_ticks(0.001, 0.3) == [0.001, 0.01, 0.1, 0.5]
    assert log_ticks(1, 9) == [1, 2, 5, 10]


@given(st.dictionaries(NAMES, st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20), max_size=7), st.booleans(), NAMES)
def test_lines_are_well_formed_whatever_comes(
    series: dict[str, list[tuple[float | None, float | None]]], log: bool, title: str
) -> None:
    inside(line_chart(title, series, Axis(title, log=log), Y))


@given(st.lists(NAMES, min_size=1, max_size=6), st.data())
def test_bars_are_well_formed_whatever_comes(groups: list[str], data: st.DataObject) -> None:
    values = st.lists(NUMBERS, min_size=len(groups), max_size=len(groups))
    inside(bar_chart("t", groups, data.draw(st.dictionaries(NAMES, values, min_size=1, max_size=7)), X))


@given(st.dictionaries(NAMES, st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=12), max_size=3))
def test_reliability_is_well_formed_whatever_comes(
    series: dict[str, list[tuple[float | None, float | None, float | None]]],
) -> None:
    inside(reliability_chart("t", series, Y, Y))


def inside(source: str) -> Page:
    """A page whose every place is a number within its drawing."""
    page = Page(source)
    for tag, attributes in page.elements:
        box = attributes.get("viewbox")
        if tag == "svg" and box and box.startswith("0 0 "):
            width, height = map(float, box.split()[2:])
        for key in ("x", "y", "x1", "x2", "y1", "y2", "width", "height"):
            if attributes.get(key) is not None:
                most = width if key.startswith(("x", "w")) else height
                assert 0 <= float(attributes[key] or "") <= most + 1, (tag, attributes)
        for x, y in re.findall(r"(\S+),(\S+)", attributes.get("points") or ""):
            assert -1 <= float(x) <= width + 1
            assert -1 <= float(y) <= height + 1
    return page


def test_a_bar_is_as_high_as_its_value() -> None:
    page = Page(bar_chart("t", ["a", "b"], {"one": [10, 20], "two": [None, 40]}, X))
    bars = [float(a["height"] or 0) for tag, a in page.elements if tag == "rect"]
    assert bars == pytest.approx([bars[0], 2 * bars[0], 4 * bars[0]], rel=0.01)
    assert [data for tag, data in page.texts if tag == "title"][1:] == [
        "a, one: 10.00",
        "b, one: 20.00",
        "b, two: 40.00",
    ]


def test_a_line_goes_by_rising_x_and_skips_what_is_not_finite() -> None:
    page = Page(line_chart("t", {"one": [(3, 1), (1, 0), (2, math.nan), (None, 4), (0, 2)]}, X, Y))
    (points,) = [a["points"] for tag, a in page.elements if tag == "polyline"]
    places = [float(pair.split(",")[0]) for pair in (points or "").split()]
    assert len(places) == 3
    assert places == sorted(places)


def test_a_log_axis_gives_every_decade_the_same_room() -> None:
    page = Page(line_chart("t", {"one": [(0.01, 1), (0.1, 1), (1, 1), (0, 1), (-1, 1)]}, Axis("x", log=True), Y))
    (points,) = [a["points"] for tag, a in page.elements if tag == "polyline"]
    a, b, c = (float(pair.split(",")[0]) for pair in (points or "").split())
    assert b - a == pytest.approx(c - b, abs=0.05)


def test_a_heavier_disc_is_larger_and_one_without_weight_is_not_drawn() -> None:
    page = Page(reliability_chart("t", {"one": [(0.1, 0.1, 1), (0.2, 0.1, 100), (0.3, 0.3, 0)]}, Y, Y))
    marks = [a["transform"] or "" for tag, a in page.elements if tag == "path" and a.get("class", "") != "f0"]
    sizes = [float(mark.partition("scale(")[2].rstrip(")")) for mark in marks]
    assert len(sizes) == 2
    assert sizes[0] < sizes[1]


def test_a_chart_without_numbers_says_so() -> None:
    for chart in (
        line_chart("t", {"one": [(None, 1)]}, X, Y),
        bar_chart("t", ["a"], {"one": [math.nan]}, X),
        reliability_chart("t", {}, Y, Y),
    ):
        assert "No figures to draw" in Page(chart).text


def test_a_chart_has_a_title_and_a_description_for_those_who_do_not_see_it() -> None:
    page = Page(bar_chart("Heights", ["a"], {"one": [1], "two": [2]}, Axis("metres")))
    drawing = next(a for tag, a in page.elements if tag == "svg" and a.get("role") == "img")
    assert drawing["viewbox"]
    assert ("title", "Heights") in page.texts
    assert any(tag == "desc" and "metres" in data and "two" in data for tag, data in page.texts)


def test_every_slot_has_its_colour_in_light_and_dark() -> None:
    for slot in range(NEUTRAL, SLOTS):
        assert len(re.findall(rf"--s{slot}:#[0-9a-f]{{6}};", STYLE)) == 2
        assert f".f{slot}{{fill:var(--s{slot})}}" in STYLE
