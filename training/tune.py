"""Costs, routing width, blend and α chosen on a held-out part of the training data, never on the test part.

One choice after the other, each with the best of those before. Cheap because one tree serves: its top is fitted once,
only leaves are fitted again for another loss, cost or width, and blend and α are questions to a finished model.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from core.engine import Engine
from core.executors import run_on_threads
from core.metrics import evaluate
from training.dataset import Dataset, hold_out
from training.evaluate import THRESHOLD, scores_for_evaluation, weighting_for
from training.fit import trie_of, write_model
from training.fragments import Fragment, join
from training.inputs import Inputs, check_trainable, open_inputs, prepare, prepare_centroids
from training.params import Choice, Loss, Params
from training.units import Top, fit_nodes, fit_top, grow_tree, route, runs_of, stages

_HELD_OUT = 0.2
_NOISE = 0.2  # differences in merit below this are chance
_MOST_HELD = 4000  # points that a trial is judged on
_LEAVES: tuple[tuple[Loss, float], ...] = (
    ("ridge", 0.1),
    ("ridge", 0.2),
    ("ridge", 0.5),
    ("ridge", 1.0),
    ("ridge", 2.0),
    ("ridge", 4.0),
    ("logistic", 1.0),
    ("logistic", 3.0),
    ("logistic", 10.0),
    ("logistic", 30.0),
)
_COSTS = (3.0, 10.0, 30.0)
_WIDTHS = (5, 8, 12)
_BLENDS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
_ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)


class Trial(NamedTuple):
    """A choice and its figures on the held-out part."""

    choice: Choice
    figures: dict[str, float]

    @property
    def merit(self) -> float:
        """The ranking at the top less half the regression error: mean of WP@1, 3, 5 − ½ XMAD@5, all in percent."""
        return sum(self.figures[f"WP@{k}"] for k in (1, 3, 5)) / 3 - 50 * self.figures["XMAD@5"]


def _merit(trial: Trial) -> float:
    return trial.merit


OnTrial = Callable[[Trial], None]


def tune(data: Dataset, params: Params, threads: int, on_trial: OnTrial) -> Choice:
    """The best choice for a data set; `on_trial` is told every one that was tried."""
    params = replace(params, trees=1, recipe=replace(params.recipe, calibration="none"))
    with tempfile.TemporaryDirectory(prefix="xreg-tune-") as directory:
        study = _Study(data, params, threads, Path(directory), on_trial)
        best = study.conditional() if params.recipe.target == "conditional" else study.raw()
        if params.tail:
            best = study.best(best, (replace(best.choice, alpha=alpha) for alpha in _ALPHAS))
    return best.choice


class _Study:
    """Trials on one held-out part, with the parts of the last model kept."""

    def __init__(self, data: Dataset, params: Params, threads: int, directory: Path, on_trial: OnTrial) -> None:
        self.params, self.threads, self.directory, self.on_trial = params, threads, directory, on_trial
        kept, self.held = hold_out(data, min(_HELD_OUT, _MOST_HELD / max(data.n_points, 1)), params.seed)
        check_trainable(kept)
        prepare(kept, params, directory / "inputs")
        self.inputs: Inputs = open_inputs(directory / "inputs")
        prepare_centroids(self.inputs, params, directory / "centroids")
        self.shape = grow_tree(directory / "centroids", params, tree=0)
        self.tops: dict[float, Top] = {}
        self.models: dict[Choice, Path] = {}  # not opened: what is mapped counts as ours
        self.trials: dict[Choice, Trial] = {}

    def conditional(self) -> Trial:
        start = self.trial(Choice.of(self.params))
        costs = (replace(start.choice, route_cost=c, leaf_cost=c) for c in _COSTS)
        return self.best(start, costs)

    def raw(self) -> Trial:
        """Leaf by leaf, then width by width; each is judged with its own best blend, since that differs by loss."""
        best = self.blended(Choice.of(self.params))
        for loss, cost in _LEAVES:
            trial = self.blended(replace(best.choice, leaf_loss=loss, leaf_cost=cost))
            best = max(best, trial, key=_merit)
        for cost in _COSTS:
            best = max(best, self.blended(replace(best.choice, route_cost=cost)), key=_merit)
        widths = [self.blended(replace(best.choice, routed=width)) for width in _WIDTHS]
        # Training costs what is routed: of widths that are as good, the narrowest.
        most = max(trial.merit for trial in widths)
        return next(trial for trial in widths if trial.merit >= most - _NOISE)

    def blended(self, choice: Choice) -> Trial:
        """The best blend for a choice, climbing from the one it comes with."""
        best = self.trial(choice)
        for step in (1, -1):
            before = None
            while before is not best:
                before = best
                at = bisect_left(_BLENDS, best.choice.blend) + step
                if 0 <= at < len(_BLENDS):
                    best = max(best, self.trial(replace(choice, blend=_BLENDS[at])), key=_merit)
        return best

    def best(self, best: Trial, choices: Iterable[Choice]) -> Trial:
        for choice in choices:
            if choice != best.choice:
                best = max(best, self.trial(choice), key=_merit)
        return best

    def trial(self, choice: Choice) -> Trial:
        if choice in self.trials:
            return self.trials[choice]
        engine = self._engine(choice)
        scoring = engine.model.scoring._replace(blend=choice.blend)
        engine = Engine(engine.model._replace(scoring=scoring))
        scores = scores_for_evaluation(engine, self.held, None, choice.alpha, self.threads)
        truth = weighting_for(engine.model, None).apply(self.held.relevance)
        trial = Trial(choice, evaluate(truth, scores, THRESHOLD))
        self.trials[choice] = trial
        self.on_trial(trial)
        return trial

    def _engine(self, choice: Choice) -> Engine:
        """A model for everything but blend and α, which are applied when it is asked."""
        key = replace(choice, blend=0.0, alpha=1.0)
        if key not in self.models:
            params = replace(choice.apply(self.params), alpha=1.0)
            path = self.directory / f"model-{len(self.models)}"
            top, parts = self._fit(params)
            write_model(
                path,
                self.inputs,
                params,
                [partial(trie_of, self.inputs, top.shape, [partial(Fragment, *f) for f in (top.fragment, *parts)])],
                "held out",
            )
            self.models[key] = path
        return Engine.open(self.models[key], verify=False)

    def _fit(self, params: Params) -> tuple[Top, list[Fragment]]:
        top = self.tops.get(params.recipe.route.cost)
        if top is None:
            above = len(stages(self.shape, params)) - 1
            top = fit_top(self.inputs, params, self.shape, 0, above, lambda depth: None)
            self.tops[params.recipe.route.cost] = top
        if params.recipe.routed:
            top = top._replace(routed=route(self.inputs, params, top.shape, top.fragment))
        units = runs_of(top.shape, stages(top.shape, params)[-1], self.inputs.label_points)
        parts: dict[int, Fragment] = {}

        def fit_unit(top: Top, unit: int) -> tuple[()]:
            done = fit_nodes(self.inputs, params, top.shape, 0, top.routed, units[unit], lambda depth: None)
            parts[unit] = join(done)
            return ()

        run_on_threads([partial(fit_unit, top, unit) for unit in range(len(units))], self.threads)
        return top, [parts[unit] for unit in range(len(units))]
