"""The hyper-parameters, as frozen values with defaults and checks.

A *recipe* is a set of choices of one pipeline, not a program of its own. The command line, the manifest and the API
take their names and defaults from here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from core.errors import UsageError

Loss = Literal["logistic", "ridge"]
Target = Literal["conditional", "raw"]
Prune = Literal["clip", "energy"]
Map = Literal["none", "isotonic"]
Relevance = Literal["graded", "binary"]


def _must(holds: bool, rule: str, got: object) -> None:
    if not holds:
        raise UsageError(f"{rule}, got {got}")


def _one_of(name: str, value: object, choices: Any) -> None:
    _must(value in get_args(choices), f"{name} must be one of {', '.join(get_args(choices))}", value)


@dataclass(frozen=True, slots=True)
class Regression:
    """How edges of one kind are fitted.

    cost    weight of a point against ½‖w‖²; with conditional targets C of C·N/Σs
    passes  rounds over the points
    refit   further rounds after pruning, over the surviving weights
    """

    loss: Loss
    cost: float
    passes: int
    refit: int = 0

    def __post_init__(self) -> None:
        _one_of("loss", self.loss, Loss)
        _must(0 < self.cost < math.inf, "a cost must be above 0", self.cost)
        _must(self.passes >= 1 and self.refit >= 0, "passes must be at least 1", self.passes)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The choices of the pipeline.

    value_power, idf_power   a feature's value x becomes x^value_power · idf^idf_power before rows are normalised
    centroid_features  largest entries kept of a label's centroid when the tree is grown; 0: all
    widest             children of the root at most; 2: the binary tree of the paper
    target             conditional: an edge learns its share of the node's relevance; raw: the relevance itself
    routed             best leaves of a point that train on it besides those with its labels; 0: only those
    route, leaf        regressions of edges to nodes and to labels
    prune, amount      which weights are dropped (training/pruning.py)
    blend              exponent of the path's probability in a label's score, with raw targets
    beam               nodes kept per level in search
    calibration        isotonic: scores are mapped to relevances seen on a held-out tenth (core/calibration.py)
    """

    name: str
    value_power: float
    idf_power: float
    centroid_features: int
    widest: int
    target: Target
    routed: int
    route: Regression
    leaf: Regression
    prune: Prune
    amount: float
    blend: float
    beam: int
    calibration: Map = "none"

    def __post_init__(self) -> None:
        _must(0 < self.value_power <= 4, "value_power must be above 0 and at most 4", self.value_power)
        _must(0 <= self.idf_power <= 4, "idf_power must be between 0 and 4", self.idf_power)
        _one_of("target", self.target, Target)
        _one_of("prune", self.prune, Prune)
        _one_of("calibration", self.calibration, Map)
        _must(self.centroid_features >= 0, "centroid_features must be 0 or more", self.centroid_features)
        _must(2 <= self.widest <= 4096, "widest must be between 2 and 4096", self.widest)
        _must(self.routed >= 0, "routed must be 0 or more", self.routed)
        _must(self.target == "raw" or self.routed == 0, "routed must be 0 with conditional targets", self.routed)
        _must(
            self.target == "raw" or self.leaf.loss == self.route.loss == "logistic",
            "conditional targets need logistic loss",
            self.leaf.loss,
        )
        _must(0 <= self.amount < 1, "the amount to prune must be at least 0 and below 1", self.amount)
        _must(0 <= self.blend < math.inf, "blend must be 0 or more", self.blend)
        _must(self.beam >= 1, "beam must be at least 1", self.beam)


PAPER = Recipe(
    name="paper",
    value_power=1.0,
    idf_power=0.0,
    centroid_features=0,
    widest=2,
    target="conditional",
    routed=0,
    route=Regression("logistic", 10.0, 14),
    leaf=Regression("logistic", 10.0, 20),
    prune="clip",
    amount=0.05,
    blend=1.0,
    beam=10,
)
ROUTED = Recipe(
    name="routed",
    value_power=0.6,
    idf_power=0.4,
    centroid_features=200,
    widest=256,
    target="raw",
    routed=8,
    route=Regression("logistic", 10.0, 6),
    leaf=Regression("ridge", 2.0, 5, refit=2),
    prune="energy",
    amount=0.15,
    blend=0.15,
    beam=20,
)
# Click rates are noisy targets: loss, cost and width are what `xreg tune` chose on a made-up market (bench/README.md).
# Points are routed to 5 leaves, so a beam wider than 10 finds little: 0.03 points of WP@5 at 20,000 ads.
CLICKS = replace(
    ROUTED, name="clicks", routed=5, leaf=replace(ROUTED.leaf, loss="logistic", cost=10.0), blend=0.6, beam=10
)
RECIPES = {recipe.name: recipe for recipe in (ROUTED, CLICKS, PAPER)}


@dataclass(frozen=True, slots=True)
class Choice:
    """What tuning decides; the rest of the parameters stays."""

    route_cost: float
    leaf_loss: Loss
    leaf_cost: float
    routed: int
    blend: float
    alpha: float

    def apply(self, params: Params) -> Params:
        recipe = replace(
            params.recipe,
            route=replace(params.recipe.route, cost=self.route_cost),
            leaf=replace(params.recipe.leaf, loss=self.leaf_loss, cost=self.leaf_cost),
            routed=self.routed,
            blend=self.blend,
        )
        return replace(params, recipe=recipe, alpha=self.alpha)

    @classmethod
    def of(cls, params: Params) -> Choice:
        r = params.recipe
        return cls(r.route.cost, r.leaf.loss, r.leaf.cost, r.routed, r.blend, params.alpha)


@dataclass(frozen=True, slots=True)
class Params:
    """Everything that decides which model comes out of which data."""

    recipe: Recipe = ROUTED
    trees: int = 3
    max_leaf: int = 100
    seed: int = 0
    propensity: tuple[float, float] | None = None
    relevance: Relevance = "graded"
    tail: bool = False
    alpha: float = 1.0

    def __post_init__(self) -> None:
        _one_of("relevance", self.relevance, Relevance)
        _must(1 <= self.trees <= 100, "trees must be between 1 and 100", self.trees)
        _must(1 <= self.max_leaf <= 65535, "max-leaf must be between 1 and 65535", self.max_leaf)
        _must(0 <= self.seed < 2**32, "seed must be between 0 and 4294967295", self.seed)
        _must(0 <= self.alpha <= 1, "alpha must be between 0 and 1", self.alpha)
        _must(self.tail or self.alpha == 1, "alpha must be 1 without --tail", self.alpha)
        if self.propensity is not None:
            a, b = self.propensity
            _must(
                math.isfinite(a) and a > 0 and math.isfinite(b) and b > 0,
                "propensity must be two numbers above 0",
                (a, b),
            )
            _must(self.relevance == "graded", "propensity gives graded relevance", self.relevance)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Params:
        """The inverse of `as_json`; refuses what it does not know."""
        try:
            recipe = dict(fields["recipe"])
            recipe["route"], recipe["leaf"] = Regression(**recipe["route"]), Regression(**recipe["leaf"])
            rest = {**fields, "recipe": Recipe(**recipe)}
            if rest.get("propensity") is not None:
                a, b = rest["propensity"]
                rest["propensity"] = (float(a), float(b))
            return cls(**rest)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"these are not the parameters of this version of xreg: {error}") from error
