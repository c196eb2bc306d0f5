"""How tests/sample was cut from debian-deps: `python tests/make_sample.py DEBIAN_DEPS tests/sample`.

The packages of a few hundred rows, the labels that at least three of them depend on, the words that they use.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy import sparse

ROWS = {"trn": 600, "tst": 150}


def main(source: Path, target: Path) -> None:
    parts = {name: [sparse.load_npz(source / f"{name}_{m}.npz").tocsr()[:n] for m in "XY"] for name, n in ROWS.items()}
    features = np.flatnonzero(parts["trn"][0].getnnz(axis=0) >= 2)
    labels = np.flatnonzero(parts["trn"][1].getnnz(axis=0) >= 2)
    target.mkdir(parents=True, exist_ok=True)
    for name, (x, y) in parts.items():
        _write(target / f"{name}_X_Xf.txt", x[:, features])
        _write(target / f"{name}_X_Y.txt", y[:, labels])


def _write(path: Path, rows: sparse.csr_matrix) -> None:
    lines = [f"{rows.shape[0]} {rows.shape[1]}"]
    for i in range(rows.shape[0]):
        row = rows[[i]]
        lines.append(" ".join(f"{j}:{v:.4g}" for j, v in zip(row.indices, row.data, strict=True)))
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
