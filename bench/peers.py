"""Train one peer on one data set, in the peers' own environment (bench/training.py makes it): one thread, CPU time.

    python bench/peers.py omikuji|napkinxc|pecos DIR

DIR holds X.npz, Y.npz (training), T.npz (test points) and train.txt, the same in the repository's text form; the
scores of the test points go to DIR/<peer>.npz, a JSON line with the CPU seconds of training to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # after the thread limits
from scipy import sparse

TOP = 100


def omikuji(directory: Path) -> tuple[float, sparse.csr_matrix]:
    """Parabel, its defaults: 3 trees, leaves of 100, squared hinge."""
    import omikuji as peer

    start = time.process_time()
    params = peer.Model.default_hyper_param()
    model = peer.Model.train_on_data(str(directory / "train.txt"), params, n_threads=1)
    cpu = time.process_time() - start
    points, n_labels = unit_rows(read(directory / "T.npz")), read(directory / "Y.npz").shape[1]
    rows = [model.predict(list(zip(p.indices.tolist(), p.data.tolist(), strict=True)), top_k=TOP) for p in points]
    return cpu, as_matrix(rows, n_labels)


def napkinxc(directory: Path) -> tuple[float, sparse.csr_matrix]:
    """A probabilistic label tree with its defaults, three of them as an ensemble."""
    from napkinxc.models import PLT

    x, y = read(directory / "X.npz"), read(directory / "Y.npz")
    start = time.process_time()
    with tempfile.TemporaryDirectory() as work:
        model = PLT(work, ensemble=3, threads=1, verbose=False)
        model.fit(unit_rows(x), y.tolil().rows.tolist())
        cpu = time.process_time() - start
        rows = model.predict_proba(unit_rows(read(directory / "T.npz")), top_k=TOP)
    return cpu, as_matrix(rows, y.shape[1])


def pecos(directory: Path) -> tuple[float, sparse.csr_matrix]:
    """XR-Linear with its defaults: one tree of 16 children, squared hinge."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    x = unit_rows(read(directory / "X.npz")).astype(np.float32)
    y = read(directory / "Y.npz").astype(np.float32)
    start = time.process_time()
    clusters = Indexer.gen(LabelEmbeddingFactory.create(y, x, method="pifa"), threads=1)
    model = XLinearModel.train(x, y, C=clusters, threads=1)
    cpu = time.process_time() - start
    test = unit_rows(read(directory / "T.npz")).astype(np.float32)
    return cpu, model.predict(test, only_topk=TOP, beam_size=10, threads=1)


def read(path: Path) -> sparse.csr_matrix:
    return sparse.csr_matrix(sparse.load_npz(path))


def unit_rows(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    unit = sparse.csr_matrix(sparse.diags(inverse) @ rows)
    unit.sort_indices()
    return unit


def as_matrix(rows: list[list[tuple[int, float]]], n_labels: int) -> sparse.csr_matrix:
    point = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    label = np.array([label for row in rows for label, _ in row], np.int64)
    score = np.array([score for row in rows for _, score in row], np.float32)
    return sparse.csr_matrix((score, (point, label)), shape=(len(rows), n_labels))


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    seconds, scores = {"omikuji": omikuji, "napkinxc": napkinxc, "pecos": pecos}[name](folder)
    sparse.save_npz(folder / f"{name}.npz", sparse.csr_matrix(scores))
    print(json.dumps({"cpu": seconds}))
