"""The report: self-contained, escaped everywhere, and whole whatever is missing."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.pages import Page, full_facts
from training.report.markup import better, count, escape, figure, megabytes, percent, tag
from training.report.page import render_report
from training.report.sections import SECTIONS

HOSTILE = """<script>alert("1")</script>' onload='x' &lt;&amp; </title></style><!-- ]]> \x00 \ud800 \u202e"""
NEEDS = {
    "Accuracy against the baselines": ["figures"],
    "Reliability": ["reliability", "ece"],
    "Precision and recall": ["precision_recall"],
    "Coverage by query frequency": ["coverage"],
    "Sizes": ["sizes", "counts"],
    "Differences from the last release": ["previous"],
    "Rejected rows": ["rows", "rejects"],
    "Examples": ["examples"],
}


def section(source: str, title: str) -> Page:
    return Page(re.search(rf"<section><h2>{title}</h2>.*?</section>", source, re.DOTALL)[0])  # type: ignore[index]


def test_a_full_report_has_every_section_and_leaves_none_out() -> None:
    page = Page(render_report(full_facts()))
    assert [data for kind, data in page.texts if kind == "h2"] == list(NEEDS) == [s.title for s in SECTIONS]
    assert "Left out" not in page.text


@pytest.mark.parametrize("title", NEEDS)
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_section_without_facts_says_why_and_leaves_the_others(title: str, how: str) -> None:
    facts = full_facts()
    for key in NEEDS[title]:
        facts[key] = type(facts[key])()
        if how == "missing" or title == "Rejected rows":  # that nothing was rejected is a fact
            del facts[key]
    source = render_report(facts)
    assert "Left out: " in section(source, title).text
    assert Page(source).text.count("Left out: ") == 1


@pytest.mark.parametrize("keys", [*NEEDS.values(), ["release"]])
def test_any_one_part_alone_makes_a_page(keys: list[str]) -> None:
    for key in keys:
        page = Page(render_report({key: full_facts()[key]}))
        assert page.text.count("Left out: ") == len(NEEDS) - (key != "release")


def test_no_facts_at_all_make_a_page_that_says_so() -> None:
    page = Page(render_report({}))
    assert page.text.count("Left out: ") == len(NEEDS)
    assert "no earlier release" in page.text


def test_nothing_is_fetched_and_nothing_runs() -> None:
    facts = full_facts()
    facts["examples"][0]["ads"][0]["url"] = "https://shop.example/1"
    source = render_report(facts)
    page = Page(source)
    assert not {kind for kind, _ in page.elements} & {"script", "link", "img", "iframe", "object", "a", "use", "image"}
    for kind, attributes in page.elements:
        assert not {"src", "href", "xlink:href", "action", "srcset", "style"} & attributes.keys(), (kind, attributes)
        assert not [key for key in attributes if key.startswith("on")]
        assert not any("http" in (value or "") for key, value in attributes.items() if key != "http-equiv")
    assert "url(" not in source
    assert "@import" not in source
    assert source.count("https://") == 1
    assert "https://shop.example/1" in page.text
    assert any("default-src 'none'" in (a.get("content") or "") for kind, a in page.elements if kind == "meta")


def test_hostile_text_is_escaped_wherever_it_stands() -> None:
    usual, hostile = Page(render_report(full_facts("plain"))), render_report(full_facts(HOSTILE))
    page = Page(hostile)
    assert "<script" not in hostile
    assert [kind for kind, _ in page.elements] == [kind for kind, _ in usual.elements]
    assert [sorted(a) for _, a in page.elements] == [sorted(a) for _, a in usual.elements]
    assert usual.text.count("plain") - page.text.count("<script>") <= 3  # labels of a chart are cut to their room
    hostile.encode()


NUMBERS = st.one_of(st.none(), st.floats(), st.integers(-(10**15), 10**15))


@given(st.text(), NUMBERS)
def test_any_text_and_any_number_make_a_well_formed_page(word: str, number: float | None) -> None:
    source = render_report(full_facts(word, number))
    Page(source)
    source.encode()


@given(NUMBERS)
def test_what_is_no_number_is_never_shown_as_one(number: float | None) -> None:
    page = Page(render_report(full_facts("", number)))
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(data for _, data in page.texts))


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf, -math.inf, "5", True])
def test_what_is_no_number_is_shown_as_a_dash(nothing: Any) -> None:
    assert [figure("WP@5", nothing), count(nothing), percent(nothing), megabytes(nothing)] == ["–"] * 4


def test_facts_survive_json_and_the_same_facts_give_the_same_bytes() -> None:
    facts = full_facts("ünï — 東京")
    assert render_report(facts) == render_report(json.loads(json.dumps(facts, allow_nan=False)))


@pytest.mark.parametrize(
    ("failed", "forced", "said"),
    [(False, False, "Passed the gate"), (True, False, "Refused by the gate: WP@5"), (True, True, "Published by force")],
)
def test_the_headline_gives_the_gates_verdict(failed: bool, forced: bool, said: str) -> None:
    line = {"figure": "WP@5", "before": 60.0, "after": 50.0, "allowed": 59.0, "failed": failed}
    page = Page(render_report({"release": {"name": "r1", "forced": forced, "gate": [line]}}))
    assert said in page.text
    assert [w for w in ("✕ failed", "✓ passed") if w in page.text] == ["✕ failed" if failed else "✓ passed"]


def test_the_headline_sets_what_is_served_beside_the_best_baseline() -> None:
    figures = {"merged": {"WP@5": 60.0}, "table": {"WP@5": 70.0}, "bm25": {"WP@5": 30.0}, "memory": {"WP@5": 40.0}}
    assert "1.50 × memory" in Page(render_report({"figures": figures})).text


def test_the_best_figure_of_a_column_is_bold_and_lower_is_better_for_errors() -> None:
    figures = {"merged": {"WP@5": 60.0, "XMAD@5": 0.3}, "bm25": {"WP@5": 30.0, "XMAD@5": 0.2}, "memory": {"WP@5": None}}
    page = section(render_report({"figures": figures}), "Accuracy against the baselines")
    assert [data for kind, data in page.texts if kind == "strong"] == ["60.00", "0.2000"]


def test_differences_say_old_new_change_and_whether_it_is_good() -> None:
    previous = {
        "WP@5": [60.0, 61.5],
        "XMAD@5": [0.2, 0.21],
        "ECE": [0.01, 0.005],
        "ads": [1000, 1200],
        "P@1": [None, 2],
    }
    page = section(render_report({"previous": previous}), "Differences from the last release")
    text = page.text.replace("\u202f", " ")
    assert "WP@560.0061.50+1.50 (+2.5 %)better" in text
    assert "XMAD@50.20000.2100+0.0100 (+5.0 %)worse" in text
    assert "ECE0.01000.0050−0.0050 (−50.0 %)better" in text
    assert "ads1 0001 200+200 (+20.0 %)" in text
    assert text.endswith("P@1–2.00–")


def test_figures_that_did_not_change_are_named_beneath_the_others() -> None:
    previous = {"WP@5": [60.0, 60.0], "ads": [5, 6], "table queries": [10.0, 10.2]}
    page = section(render_report({"previous": previous}), "Differences from the last release")
    assert page.text.endswith("Unchanged: WP@5 60.00, table queries 10.")
    assert page.count("tr") == 2


def test_reliability_without_calibration_is_drawn_once() -> None:
    run = [{"predicted": 0.1, "observed": 0.2, "weight": 3.0}]
    source = render_report({"reliability": {"merged": {"before": run, "after": run}}})
    assert "Reliability: merged, not calibrated" in section(source, "Reliability").text
    assert section(source, "Reliability").count("path", "mark") == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("nDCG@5", 1, 2, True),
        ("coverage", 2, 1, False),
        ("size MB", 1, 2, False),
        ("megabytes", 1, 2, False),
        ("table queries", 1, 2, True),
        ("ECE@10", 0.1, 0.2, False),
        ("ads", 1, 2, None),
        ("WP@1", 1, 1, None),
    ],
)
def test_a_change_is_good_by_the_kind_of_its_figure(name: str, old: float, new: float, expected: bool | None) -> None:
    assert better(name, old, new) is expected


def test_rejected_rows_are_listed_by_number_and_none_is_said() -> None:
    page = section(render_report({"rows": 1000, "rejects": {"a": 1, "b": 5, "c": 0}}), "Rejected rows")
    assert "6 of 1\u202f000 rows (0.60\u202f%) could not be used." in page.text
    assert [data for kind, data in page.texts if kind == "th"][-3:] == ["b", "a", "c"]
    none = section(render_report({"rows": 1000, "rejects": {}}), "Rejected rows").text
    assert "No row had to be rejected; 1\u202f000 were read." in none


def test_buckets_and_sources_come_in_their_order_whatever_the_order_of_the_facts() -> None:
    coverage = {b: {"model": 0.5, "merged": 0.6} for b in ("100+", "other", "unseen", "2–4")}
    page = section(render_report({"coverage": coverage}), "Coverage by query frequency")
    heads = [data for kind, data in page.texts if kind == "th"]
    assert heads == ["seen", "merged", "model", "unseen", "2–4", "100+", "other"]


def test_parts_of_the_merge_rule_are_written_as_in_a_sentence() -> None:
    merge = {"rule": "mean", "weight": 0.61999, "maps": {"table": 12, "model": 9}, "more": {}, "none": None}
    said = "mean, weight 0.62, maps (table 12, model 9), more none, none –"
    assert said in Page(render_report({"release": {"merge": merge}})).text


def test_thresholds_of_the_table_rise_and_are_few() -> None:
    points = [{"threshold": 1 / n, "precision": 0.5, "recall": 0.5} for n in range(1, 41)]
    page = section(render_report({"precision_recall": {"merged": points}}), "Precision and recall")
    shown = [float(data) for kind, data in page.texts if kind == "th" and data.startswith(("0", "1"))]
    assert shown == sorted(shown)
    assert len(shown) == 8
    assert (shown[0], shown[-1]) == (0.025, 1.0)


def test_an_example_shows_three_ads_and_a_query_without_ads_says_so() -> None:
    page = section(render_report(full_facts()), "Examples")
    assert page.count("article") == 2
    assert page.count("li") == 3
    assert "No ads." in page.text


def test_markup_is_inserted_as_it_is_and_text_is_not() -> None:
    assert tag("b", "<i>", tag("i", "x"), class_='a"b') == '<b class="a&quot;b">&lt;i&gt;<i>x</i></b>'
    assert escape("\x00\ud800ok") == "\ufffd\ufffdok"
