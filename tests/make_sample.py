"""How tests/sample was cut from debian-deps: `python tests/make_sample.py DEBIAN_DEPS tests/sample`.

The packages of a few hundred rows, the labels that at least two of them depend on, the words that they use.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy import sparse

ROWS = {"trn": 600, "tst": 150}


def main(source: Path, target: Path) -> None:
    parts = {name: [_read(source / f"{name}_{m}.npz", n) for m in "XY"] for name, n in ROWS.items()}
    features = np.flatnonzero(parts["trn"][0].getnnz(axis=0) >= 2)
    labels = np.flatnonzero(parts["trn"][1].getnnz(axis=0) >= 2)
    target.mkdir(parents=True, exist_ok=True)
    for name, (x, y) in parts.items():
        _write(target / f"{name}_X_Xf.txt", sparse.csr_matrix(x[:, features]))
        _write(target / f"{name}_X_Y.txt", sparse.csr_matrix(y[:, labels]))


def _read(path: Path, n: int) -> sparse.csr_matrix:
    return sparse.csr_matrix(sparse.csr_matrix(sparse.load_npz(path))[:n])


def _write(path: Path, rows: sparse.csr_matrix) -> None:
    lines = [f"{rows.shape[0]} {rows.shape[1]}"]
    for i in range(rows.shape[0]):
        row = rows[[i]]
        lines.append(" ".join(f"{j}:{v:.4g}" for j, v in zip(row.indices, row.data, strict=True)))
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
