"""Hyper-parameters travel through the manifest and back; what cannot be is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from core.errors import UsageError
from training.params import PAPER, RECIPES, ROUTED, Choice, Params


@pytest.mark.parametrize("recipe", RECIPES.values())
def test_json_and_back(recipe: object) -> None:
    for params in (Params(), Params(PAPER, propensity=(0.55, 1.5), tail=True, alpha=0.5)):
        assert Params.from_json(json.loads(json.dumps(params.as_json()))) == params


def test_what_is_unknown_is_refused() -> None:
    with pytest.raises(UsageError, match="not the parameters of this version"):
        Params.from_json({**Params().as_json(), "colour": "red"})


def test_choices_apply() -> None:
    params = Params(tail=True)
    choice = replace(Choice.of(params), leaf_cost=0.5, routed=5, blend=0.4, alpha=0.8)
    assert Choice.of(choice.apply(params)) == choice
    assert choice.apply(params).recipe.route == params.recipe.route


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.5}, "alpha must be 1 without --tail"),
        ({"seed": -1}, "seed must be between"),
        ({"relevance": "some"}, "relevance must be one of graded, binary, got some"),
        ({"propensity": (0.5, 1.5), "relevance": "binary"}, "propensity gives graded relevance"),
    ],
)
def test_impossible_parameters_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(Params(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widest": 1}, "widest must be between 2 and 4096, got 1"),
        ({"target": "conditional"}, "routed must be 0 with conditional targets"),
        ({"target": "conditional", "routed": 0}, "conditional targets need logistic loss"),
        ({"beam": 0}, "beam must be at least 1"),
        ({"value_power": 0.0}, "value_power must be above 0"),
    ],
)
def test_impossible_recipes_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(ROUTED, **change)  # type: ignore[arg-type]
