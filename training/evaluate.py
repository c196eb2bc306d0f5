"""Figures from a model and a test set."""

from __future__ import annotations

from typing import Literal

from core.engine import TREE_TOP, Engine, Options
from core.errors import DataError, UsageError
from core.labelwise import Labelwise, as_rows, best_points
from core.metrics import evaluate
from core.model import Model
from core.relevance import BINARY, Weighting, propensity_weighting
from core.sparse import Csr, transpose
from training.dataset import Dataset
from training.params import Params

THRESHOLD = 0.01
LABEL_TOP = 100  # points per label that labelwise figures look at


def weighting_for(model: Model, propensity: tuple[float, float] | None) -> Weighting:
    """How test relevances are weighted: as in training, or by other propensities over the training part's counts."""
    params = Params.from_json(model.manifest["params"])
    propensity = propensity or params.propensity
    if propensity is not None:
        return propensity_weighting(model.label_points, int(model.manifest["sizes"]["points"]), *propensity)
    return BINARY if params.relevance == "binary" else Weighting(float(model.manifest["scale"]), False, None)


def scores_for_evaluation(engine: Engine, data: Dataset, beam: int | None, alpha: float | None, threads: int) -> Csr:
    """Everything that the trees return: the regression figures look at all of it."""
    most = TREE_TOP * engine.model.n_trees
    return engine.predict_batch(data.features, most, beam, Options(alpha=alpha), threads)


def evaluate_model(
    engine: Engine,
    data: Dataset,
    propensity: tuple[float, float] | None = None,
    beam: int | None = None,
    alpha: float | None = None,
    labelwise: Labelwise | Literal["transposed"] | None = None,
    threshold: float = THRESHOLD,
    threads: int = 1,
) -> dict[str, float]:
    """All figures of docs/metrics.md. Labelwise ones exchange points and labels; their scores come from labelwise
    inference or, transposed, from the pointwise one."""
    if data.n_labels != engine.model.n_labels:
        raise DataError(f"the data have {data.n_labels} labels, the model was trained on {engine.model.n_labels}")
    truth = weighting_for(engine.model, propensity).apply(data.relevance)
    if isinstance(labelwise, Labelwise):
        if beam is not None or alpha is not None:
            raise UsageError("beam and alpha belong to pointwise inference: leave them out, or judge it --transposed")
        by_label = as_rows(best_points(engine.model, data.features, labelwise, threads), data.n_points)
        return _labelwise_figures(truth, by_label, threshold)
    scores = scores_for_evaluation(engine, data, beam, alpha, threads)
    return _labelwise_figures(truth, transpose(scores), threshold) if labelwise else evaluate(truth, scores, threshold)


def _labelwise_figures(truth: Csr, by_label: Csr, threshold: float) -> dict[str, float]:
    figures = evaluate(transpose(truth), by_label, threshold)
    return {_labelwise_name(name): value for name, value in figures.items()}


def _labelwise_name(name: str) -> str:
    """WP@5 → WP-l@5."""
    head, at, tail = name.partition("@")
    return f"{head}-l{at}{tail}"
