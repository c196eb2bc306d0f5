"""The gate: noise passes, a clearly worse release does not, and the message says which figure fell and by how much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import GateError
from core.releases import current, listing, read_release
from core.served import Served
from tests.training.nightly import PARAMS, PLAN, terms
from training.params import Regression
from training.release.gate import ALLOWED, compare, enforce
from training.release.refresh import Plan, refresh

GOOD = {
    "WP@5": 60.0,
    "XMAD@5": 0.08,
    "ECE@10": 0.02,
    "query coverage": 90.0,
    "table queries": 500.0,
    "megabytes": 100.0,
}
# (within the allowance, beyond it), by the rules as they are documented
EDGES = {
    "WP@5": (57.71, 57.69),
    "XMAD@5": (0.0859, 0.0861),
    "ECE@10": (0.0349, 0.0351),
    "query coverage": (86.81, 86.79),
    "table queries": (440.1, 439.9),
    "megabytes": (209.9, 210.1),
}


def test_every_figure_of_the_gate_has_an_edge_here() -> None:
    assert GOOD.keys() == EDGES.keys() == ALLOWED.keys()


@pytest.mark.parametrize("figure", EDGES)
def test_a_figure_may_get_worse_by_its_allowance_and_no_more(figure: str) -> None:
    within, beyond = EDGES[figure]
    enforce(compare(GOOD, {**GOOD, figure: within}), force=False)
    checks = compare(GOOD, {**GOOD, figure: beyond})
    assert [check.figure for check in checks if check.failed] == [figure]
    verb = "fell" if beyond < GOOD[figure] else "rose"
    with pytest.raises(GateError, match=f"{figure} {verb} from {GOOD[figure]:.4g} to {beyond:.4g}.*--force"):
        enforce(checks, force=False)
    enforce(checks, force=True)


@pytest.mark.parametrize("figure", EDGES)
def test_getting_better_always_passes(figure: str) -> None:
    better = GOOD[figure] * (2.0 if ALLOWED[figure].higher_is_better else 0.1)
    assert not any(check.failed for check in compare(GOOD, {**GOOD, figure: better}))


@pytest.mark.parametrize("figure", EDGES)
def test_a_figure_that_is_not_a_number_does_not_pass(figure: str) -> None:
    assert [check.figure for check in compare(GOOD, {**GOOD, figure: float("nan")}) if check.failed] == [figure]


def test_figures_that_only_one_release_has_are_not_compared() -> None:
    assert compare({}, GOOD) == []
    assert compare(GOOD, {}) == []
    assert [check.figure for check in compare({"WP@5": 1.0}, GOOD)] == ["WP@5"]


def test_all_that_fell_is_named() -> None:
    with pytest.raises(GateError, match=r"WP@5 fell from 60 to 10 \(allowed: 57\.7\); XMAD@5 rose from 0\.08 to 1 "):
        enforce(compare(GOOD, {**GOOD, "WP@5": 10.0, "XMAD@5": 1.0}), force=False)


def test_a_clearly_worse_release_is_refused_and_published_by_force_which_the_manifest_says(
    market: Path, releases: Path
) -> None:
    lazy = Regression("logistic", 1e-6, 1)
    params = replace(PARAMS, trees=1, recipe=replace(PARAMS.recipe, route=lazy, leaf=lazy, beam=1))
    old, plan = current(releases), Plan(params, params)
    for _ in range(2):  # refused again as long as nothing has changed
        with pytest.raises(GateError, match=r"worse than the release being served: WP@5 fell from \d"):
            refresh(market / "clicks", plan, terms(releases, days=1))
        assert current(releases) == old
        assert listing(releases) == [old]
    forced = refresh(market / "clicks", plan, terms(releases, days=2, force=True))
    assert current(releases) == forced
    gate = read_release(releases / forced)["gate"]
    assert gate["forced"]
    failed = [check["figure"] for check in gate["checks"] if check["failed"]]
    assert "WP@5" in failed
    assert '"forced": true' in (releases / forced / "stats.json").read_text()
    better = refresh(market / "clicks", PLAN, terms(releases, days=3, force=True))
    assert not read_release(releases / better)["gate"]["forced"]  # it needed no force
    Served.open(releases / better)


def test_larger_errors_pass_where_probabilities_got_right() -> None:
    before = {"XMAD@5": 0.05, "ECE@10": 0.04}
    for after, fails in (
        ({"XMAD@5": 0.08, "ECE@10": 0.01}, False),
        ({"XMAD@5": 0.08, "ECE@10": 0.04}, True),
        ({"XMAD@5": float("nan"), "ECE@10": 0.01}, True),
    ):
        assert {check.figure: check.failed for check in compare(before, after)}["XMAD@5"] == fails
