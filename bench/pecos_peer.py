"""libpecos's side of bench/inference.py, in the peers' own environment: a model, and how fast it answers.

python bench/pecos_peer.py train DIR     X.npz, Y.npz → DIR/model, its weights rounded to 8 bits per column as ours are
python bench/pecos_peer.py time DIR      T.npz → DIR/pecos.npz and a JSON line with microseconds per row
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # after the thread limits
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from scipy import sparse

K, BEAM = 10, 10
LAYOUTS = ("HASH_CHUNKED", "BINARY_SEARCH_CHUNKED", "CSC")
_ONE_BY_ONE = 300


def train(directory: Path) -> None:
    x, y = (sparse.csr_matrix(sparse.load_npz(directory / f"{name}.npz"), dtype=np.float32) for name in ("X", "Y"))
    clusters = Indexer.gen(LabelEmbeddingFactory.create(y, x, method="pifa"), threads=1)
    XLinearModel.train(x, y, C=clusters, threads=1).save(str(directory / "model"))
    for path in sorted((directory / "model" / "ranker").glob("*.model/W.npz")):
        sparse.save_npz(path, _rounded(sparse.csc_matrix(sparse.load_npz(path))), compressed=False)  # as pecos reads it


def _rounded(weights: sparse.csc_matrix) -> sparse.csc_matrix:
    """w → step · round(w / step), step = max|w| / 127 of the column; the last row, the bias, stays as it is."""
    bias = weights[-1].toarray().ravel()
    body = weights[:-1].tocsc()
    column = np.repeat(np.arange(body.shape[1]), np.diff(body.indptr))
    largest = np.zeros(body.shape[1], np.float32)
    np.maximum.at(largest, column, np.abs(body.data))
    step = (largest / np.float32(127.0))[column]
    body.data = (np.rint(body.data / step) * step).astype(np.float32)
    body.eliminate_zeros()
    return sparse.csc_matrix(sparse.vstack([body, sparse.csr_matrix(bias)], format="csc"), dtype=np.float32)


def measure(directory: Path) -> dict[str, float]:
    """The fastest layout for all rows at once, and for one row per call."""
    rows = sparse.csr_matrix(sparse.load_npz(directory / "T.npz"), dtype=np.float32)
    options = {"only_topk": K, "beam_size": BEAM, "post_processor": "sigmoid", "threads": 1}
    batch, online = dict[str, float](), dict[str, float]()
    for layout in LAYOUTS:
        model = XLinearModel.load(str(directory / "model"), is_predict_only=True, weight_matrix_type=layout)
        answers = model.predict(rows[:100], **options)
        batch[layout] = min(_seconds(lambda m=model: m.predict(rows, **options)) for _ in range(3)) / rows.shape[0]
        one = [rows[[i]] for i in range(min(_ONE_BY_ONE, rows.shape[0]))]
        online[layout] = float(np.median([_seconds(lambda m=model, r=r: m.predict(r, **options)) for r in one]))
        answers = model.predict(rows, **options)
    sparse.save_npz(directory / "pecos.npz", sparse.csr_matrix(answers))
    return {"batch_us": min(batch.values()) * 1e6, "online_us": min(online.values()) * 1e6}


def _seconds(call: object) -> float:
    start = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - start


if __name__ == "__main__":
    step, folder = sys.argv[1], Path(sys.argv[2])
    if step == "train":
        train(folder)
    else:
        print(json.dumps(measure(folder)))
