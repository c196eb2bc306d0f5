"""Labelwise inference as a job: units on disk, the answer as Parquet and as a scipy CSR beside it.

    <out>.work/block0-tree0.npz …       who of a block of points comes to which leaf of a tree
    <out>.work/block0-tree0-part0.npz … the best points of the labels of some neighbouring leaves
    <out>.work/block0.npz …             the best points of every label in the block
    <out>                               label, rank, point, score: one row per answer, by label, best first
    <out with .npz>                     the same as labels × points

A wide model, or a job of few blocks, is cut by block, tree and subtree. Where there are many blocks and a tree is one
part, a block is one unit, and the first two kinds of files are not needed: what is not cut need not travel.

A unit is a pure function of the model and the points and writes one file. A job that was killed goes on from its
finished units, and ends byte for byte where an uninterrupted one would. Threads share the opened model and the points;
workers elsewhere map them from files beside the units: core/labelwise_inputs.py.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from core import __version__
from core.errors import UsageError
from core.executors import Executor, LocalExecutor, Tell, Unit
from core.format import MANIFEST, checksum
from core.kernels.labelwise import Best
from core.labelwise import (
    Found,
    Labelwise,
    Listed,
    OnProgress,
    Prepared,
    Reached,
    as_rows,
    calibrated,
    fill,
    find,
    finish,
    join,
    leaf_runs,
    merge,
    n_blocks,
    prepared,
    reach,
)
from core.labelwise_inputs import Opened, inputs_of, open_block, shared
from core.model import open_model
from core.sparse import Csr, to_scipy
from core.work import claim, load_arrays, locked, remove, save_arrays, work_of

UNIT_LABELS = 1 << 17  # of which a unit makes the lists
MANY_BLOCKS = (
    8  # from here on a block is one unit, where the lists of its trees are not too long; no result depends on it
)
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
    executor: Executor | None = None,
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
        with shared(work, Opened(ready, points), asked, executor is not None and executor.remote):
            _Units(ready, points.n_rows, asked, model_path, work, on_progress).run(executor or LocalExecutor(threads))
        best = calibrated(model, merge(_finished(work, n_blocks(asked, points), asked.block)))
        _write_matrix(matrix, best, points.n_rows)
        _write_table(out, best)
        remove(work)
    return best


class _Units:
    """The units of one job: which there are, what follows which, how far they are."""

    def __init__(
        self, ready: Prepared, n_points: int, asked: Labelwise, model: Path, work: Path, on_progress: OnProgress | None
    ) -> None:
        self.asked, self.model, self.work, self.on_progress = asked, model, work, on_progress
        self.runs = [leaf_runs(ready, tree, UNIT_LABELS) for tree in range(ready.model.n_trees)]
        self.blocks = range(-(-n_points // asked.block))
        self.left = {block: sum(map(len, self.runs)) for block in self.blocks}
        self.whole = len(self.blocks) >= MANY_BLOCKS and all(len(runs) == 1 for runs in self.runs)
        self.units = 1 if self.whole else len(self.runs) + sum(map(len, self.runs)) + 1  # of a block
        self.done, self.total = 0, len(self.blocks) * self.units

    def run(self, executor: Executor) -> None:
        first = list[Unit]()
        for block in self.blocks:
            if self.whole:
                args = self.asked, block
                first.append(Unit(block_unit, _block_path(self.work, block), self._needs(block), args=args))
            elif _block_path(self.work, block).exists():
                first.append(self._finish(block))
            else:
                first += [self._reach(block, tree) for tree in range(len(self.runs))]
        executor.run(first, self._after, lambda done, where: None)

    def _needs(self, block: int) -> tuple[Path, Path, Path]:
        return self.model, *inputs_of(self.work, block)

    def _reach(self, block: int, tree: int) -> Unit:
        needs, args = self._needs(block), (self.asked, block, tree)
        return Unit(reach_unit, self._path(block, tree), needs, args=args, rank=2)

    def _fill(self, block: int, tree: int, part: int) -> Unit:
        needs, args = (*self._needs(block), self._path(block, tree)), (self.asked, block, tree, self.runs[tree][part])
        return Unit(fill_unit, self._path(block, tree, part), needs, args=args, rank=1)

    def _finish(self, block: int) -> Unit:
        parts = [range(len(runs)) for runs in self.runs]
        takes = [self._path(block, tree) for tree in range(len(parts))]
        takes += [self._path(block, tree, part) for tree in range(len(parts)) for part in parts[tree]]
        args = (self.asked, block, [len(runs) for runs in self.runs])
        return Unit(finish_unit, _block_path(self.work, block), self._needs(block), tuple(takes), args)

    def _after(self, unit: Unit, fresh: bool) -> Iterable[Unit]:
        """The lists of a tree once its leaves are known; the answer of a block once it has all lists."""
        block = int(unit.args[1])
        self.done += self.units if unit.do is finish_unit and not fresh else 1
        if self.on_progress is not None:
            self.on_progress(self.done, self.total)
        if unit.do is reach_unit:
            tree = unit.args[2]
            return [self._fill(block, tree, part) for part in range(len(self.runs[tree]))]
        self.left[block] -= 1
        return [self._finish(block)] if unit.do is fill_unit and not self.left[block] else []

    def _path(self, block: int, tree: int, part: int | None = None) -> Path:
        return self.work / (f"block{block}-tree{tree}" + ("" if part is None else f"-part{part}") + ".npz")


def block_unit(tell: Tell, out: Path, model: Path, groups: Path, points: Path, asked: Labelwise, block: int) -> None:
    ready, rows = open_block(model, groups, points, asked, block)
    trees = [find(ready, asked, tree, rows) for tree in range(ready.model.n_trees)]
    save_arrays(out, finish(ready, asked, rows, trees)._asdict())


def reach_unit(
    tell: Tell, out: Path, model: Path, groups: Path, points: Path, asked: Labelwise, block: int, tree: int
) -> None:
    ready, rows = open_block(model, groups, points, asked, block)
    save_arrays(out, reach(ready, asked, tree, rows)._asdict())


def fill_unit(
    tell: Tell,
    out: Path,
    model: Path,
    groups: Path,
    points: Path,
    reached: Path,
    asked: Labelwise,
    block: int,
    tree: int,
    leaves: tuple[int, int],
) -> None:
    ready, rows = open_block(model, groups, points, asked, block)
    save_arrays(out, fill(ready, asked, tree, rows, Reached(**load_arrays(reached)), leaves)._asdict())


def finish_unit(tell: Tell, out: Path, model: Path, groups: Path, points: Path, *found: Any) -> None:
    """`found`: the leaves of every tree, the lists of every tree, then what is asked, the block, parts per tree."""
    *paths, asked, block, n_parts = found
    ready, rows = open_block(model, groups, points, asked, block)
    lists, trees = iter(paths[len(n_parts) :]), list[Found]()
    for tree, n in enumerate(n_parts):
        parts = [Listed(**load_arrays(next(lists))) for _ in range(n)]
        trees.append(join(ready.model.n_labels, Reached(**load_arrays(paths[tree])), parts))
    save_arrays(out, finish(ready, asked, rows, trees)._asdict())


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
