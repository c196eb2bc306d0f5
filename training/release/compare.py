"""A model beside what an ads team could serve without one: the same held-out queries, the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core.engine import Engine
from core.errors import DataError
from core.metrics import evaluate
from training.clicks import open_clicks
from training.dataset import read_dataset
from training.evaluate import scores_for_evaluation, weighting_for
from training.release.baselines import BASELINES

_K = 100  # ads per query of a baseline


def compare_with(
    baselines: Sequence[str],
    engine: Engine,
    data: Path,
    beam: int | None,
    alpha: float | None,
    threshold: float,
    threads: int,
) -> dict[str, dict[str, float]]:
    """Figures of the online model and of baselines on the held-out queries of a data set of clicks."""
    clicks, test = open_clicks(data), read_dataset(data / "online", "test")
    if (test.n_labels, test.n_features) != (engine.model.n_labels, engine.model.n_features):
        raise DataError(
            f"{data}: {test.n_labels} ads and {test.n_features} words; the model was trained on "
            f"{engine.model.n_labels} and {engine.model.n_features}: is it that of {data / 'online'}?"
        )
    weighting = weighting_for(engine.model, None)
    truth = weighting.apply(test.relevance)
    scores = scores_for_evaluation(engine, test, beam, alpha, threads)
    figures = {"model": evaluate(truth, scores, threshold)}
    queries = [clicks.queries[i] for i in np.load(data / "online" / "tst_query.npy", allow_pickle=False)]
    for name in dict.fromkeys(baselines):
        figures[name] = evaluate(truth, weighting.apply(BASELINES[name](clicks, queries, _K)), threshold)
    return figures
