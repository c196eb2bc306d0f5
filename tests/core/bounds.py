"""Searches of every kind on the models given, for a process with bounds checking on; prints how many answers came."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from core.engine import Engine, Options
from core.sparse import Csr


def main() -> int:
    answers, random = 0, np.random.default_rng(0)
    for path in sys.argv[1:]:
        engine = Engine.open(Path(path))
        n_features, n_labels = engine.model.n_features, engine.model.n_labels
        weights = engine.weigh(random.random(n_labels))
        for beam, k in ((1, 1), (10, 10), (1000, 5000)):
            for options in (
                Options(),
                Options(exclude=random.integers(0, n_labels, 50)),
                Options(candidates=random.integers(0, n_labels, 50)),
                Options(weights=weights),
            ):
                for n in (0, 1, 30, n_features):
                    features = random.choice(n_features, n, replace=False)
                    answers += len(engine.predict(features, random.random(n), k, beam, options).labels)
        rows = Csr(np.array([0, 0, 5, 9]), np.arange(9, dtype=np.int32), np.ones(9, np.float32), n_features)
        answers += engine.predict_batch(rows).nnz
    return answers


if __name__ == "__main__":
    print(json.dumps({"answers": main()}))
