"""Figures from a model and a test set."""

from __future__ import annotations

from core.engine import TREE_TOP, Engine, Options
from core.errors import DataError
from core.metrics import evaluate
from core.model import Model
from core.relevance import BINARY, Weighting, propensity_weighting
from core.sparse import Csr, transpose
from training.dataset import Dataset
from training.params import Params

THRESHOLD = 0.01


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
    labelwise: bool = False,
    threshold: float = THRESHOLD,
    threads: int = 1,
) -> dict[str, float]:
    """All figures of docs/metrics.md; labelwise exchanges points and labels."""
    if data.n_labels != engine.model.n_labels:
        raise DataError(f"the data have {data.n_labels} labels, the model was trained on {engine.model.n_labels}")
    truth = weighting_for(engine.model, propensity).apply(data.relevance)
    scores = scores_for_evaluation(engine, data, beam, alpha, threads)
    if labelwise:
        figures = evaluate(transpose(truth), transpose(scores), threshold)
        return {_labelwise_name(name): value for name, value in figures.items()}
    return evaluate(truth, scores, threshold)


def _labelwise_name(name: str) -> str:
    """WP@5 → WP-l@5."""
    head, at, tail = name.partition("@")
    return f"{head}-l{at}{tail}"
