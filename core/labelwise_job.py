"""Labelwise inference as a job: units on disk, the answer as Parquet and as a scipy CSR beside it.

    <out>.work/block0-tree0.npz …    what one tree finds in one block of points
    <out>.work/block0.npz …          the best points of every label in the block
    <out>                            label, rank, point, score: one row per answer, by label, best first
    <out with .npz>                  the same as labels × points

A unit is a pure function of the model and the points and writes one file. A job that was killed goes on from its
finished units, and ends byte for byte where an uninterrupted one would.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from core import __version__
from core.errors import UsageError
from core.format import MANIFEST, checksum
from core.kernels.labelwise import Best
from core.labelwise import (
    Found,
    Labelwise,
    OnProgress,
    Prepared,
    as_rows,
    block_of,
    calibrated,
    find,
    finish,
    merge,
    n_blocks,
    prepared,
    run_units,
)
from core.model import open_model
from core.sparse import Csr, to_scipy
from core.work import claim, load_arrays, locked, remove, save_arrays, work_of

_LABELS_PER_GROUP = 1 << 16
_SCHEMA = pa.schema([("label", pa.int32()), ("rank", pa.int32()), ("point", pa.int32()), ("score", pa.float32())])


def run_job(
    model_path: Path,
    points: Csr,
    asked: Labelwise,
    out: Path,
    threads: int,
    resume: bool = False,
    on_progress: OnProgress | None = None,
) -> Best:
    """The best points of every label, written to `out` (Parquet) and beside it (.npz), which must not exist."""
    if out.suffix != ".parquet":
        raise UsageError(f"the answer's file must end in .parquet, got {out}")
    work, matrix = work_of(out), out.with_suffix(".npz")
    for path in (out, matrix):
        if path.exists() and not (resume and work.exists()):
            raise UsageError(f"{path} exists; remove it or choose another name")
    model = open_model(model_path)
    ready = prepared(model, points)
    job = {"xreg": __version__, "model": checksum(model_path / MANIFEST), "points": fingerprint(points)}
    work.mkdir(parents=True, exist_ok=True)
    with locked(work):
        claim(work, json.dumps({**job, **asdict(asked)}, indent=1), resume)
        best = _run(ready, points, asked, work, threads, on_progress)
        _write_matrix(matrix, best, points.n_rows)
        _write_table(out, best)
        remove(work)
    return best


def _run(
    ready: Prepared, points: Csr, asked: Labelwise, work: Path, threads: int, on_progress: OnProgress | None
) -> Best:
    """All units that are not there yet, and what they come to."""
    model, n_trees = ready.model, ready.model.n_trees

    def find_in(block: int, tree: int) -> None:
        path = work / f"block{block}-tree{tree}.npz"
        if not path.exists() and not _block_path(work, block).exists():
            save_arrays(path, find(ready, asked, tree, block_of(model, asked, points, block))._asdict())

    def finish_block(block: int) -> None:
        path, trees = _block_path(work, block), [work / f"block{block}-tree{tree}.npz" for tree in range(n_trees)]
        if not path.exists():
            found = [Found(**load_arrays(tree)) for tree in trees]
            save_arrays(path, finish(ready, asked, block_of(model, asked, points, block), found)._asdict())
        for tree in trees:  # their work is done: the disk holds the lists of blocks in flight only
            tree.unlink(missing_ok=True)

    count = n_blocks(asked, points)
    run_units(count, n_trees, find_in, finish_block, threads, on_progress)
    return calibrated(model, merge(_finished(work, count, asked.block)))


def fingerprint(points: Csr) -> str:
    """SHA-256 over the shape and contents of the points."""
    digest = hashlib.sha256(np.array([points.n_rows, points.n_cols, points.nnz], "<i8").tobytes())
    for array in (points.indptr, points.indices, points.values):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _block_path(work: Path, block: int) -> Path:
    return work / f"block{block}.npz"


def _finished(work: Path, count: int, size: int) -> Iterator[tuple[int, Best]]:
    for block in range(count):
        yield block * size, Best(**load_arrays(_block_path(work, block)))


def _write_matrix(path: Path, best: Best, n_points: int) -> None:
    aside = path.with_name(f".{path.name}.writing")
    with aside.open("wb") as file:
        sparse.save_npz(file, to_scipy(as_rows(best, n_points)))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _write_table(path: Path, best: Best) -> None:
    """Some labels at a time: the rows of all need not fit in memory twice."""
    aside = path.with_name(f".{path.name}.writing")
    with aside.open("wb") as file:
        with pq.ParquetWriter(file, _SCHEMA) as writer:
            for start in range(0, len(best.counts), _LABELS_PER_GROUP):
                labels = slice(start, start + _LABELS_PER_GROUP)
                writer.write_table(_rows(start, Best(best.points[labels], best.scores[labels], best.counts[labels])))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _rows(first_label: int, best: Best) -> pa.Table:
    filled = np.arange(best.points.shape[1], dtype=np.int32) < best.counts[:, None]
    labels, ranks = np.nonzero(filled)
    columns = (labels + first_label, ranks + 1, best.points[filled], best.scores[filled])
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)
