"""What every unit of a labelwise job reads: the opened model with its trees by group, and the points.

    <out>.work/groups/          row_ptr.npy …     what `group_major` made of the model
    <out>.work/points/block0/   indptr.npy …      a block of the points as they were given

Threads of the process that cuts the work share what it has opened already, and nothing is written. A worker elsewhere
maps the files; it opens a model once, however many of its units it runs, and of the points only the blocks that it
works on: where files are sent, a block goes to the machine that asks for it and to no other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.format import create_array, written_aside
from core.groups import Groups
from core.labelwise import Labelwise, Prepared, as_known, n_blocks, rows_of
from core.model import open_model
from core.scratch import Searcher
from core.sparse import Csr

_OF_MODEL = Groups._fields[: Groups._fields.index("parent")]  # the model has these already
_here: dict[Path, Opened] = {}  # by the directory of the groups: jobs that this process cuts
_mapped: dict[tuple[Path, int], Prepared] = {}  # by the same and when it was made: a job that others cut
_lock = threading.Lock()


class Opened(NamedTuple):
    """A model ready for labelwise inference, and the points."""

    ready: Prepared
    points: Csr


def inputs_of(work: Path, block: int) -> tuple[Path, Path]:
    """Groups and points of a block."""
    return work / "groups", work / "points" / f"block{block}"


@contextmanager
def shared(work: Path, opened: Opened, asked: Labelwise, remote: bool) -> Iterator[None]:
    """Meanwhile `open_block` finds what was opened: in this process, or in files."""
    if remote:
        _write_all(work, opened, asked)
        yield
        return
    groups, _ = inputs_of(work, 0)
    with _lock:
        _here[groups] = opened
    try:
        yield
    finally:
        with _lock:
            del _here[groups]


def _write_all(work: Path, opened: Opened, asked: Labelwise) -> None:
    mine = {name: array for name, array in opened.ready.trees._asdict().items() if name not in _OF_MODEL}
    for block in range(n_blocks(asked, opened.points)):
        groups, points = inputs_of(work, block)
        _write(groups, mine)
        rows = rows_of(asked, opened.points, block)
        _write(points, {"indptr": rows.indptr, "indices": rows.indices, "values": rows.values})


def _write(directory: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    if not directory.exists():
        with written_aside(directory) as aside:
            for name, array in arrays.items():
                create_array(aside, name, array.dtype, len(array))[:] = array


def _map(directory: Path) -> dict[str, npt.NDArray[Any]]:
    return {p.stem: np.load(p, mmap_mode="r", allow_pickle=False).view(np.ndarray) for p in directory.glob("*.npy")}


def open_block(model: Path, groups: Path, points: Path, asked: Labelwise, block: int) -> tuple[Prepared, Csr]:
    """The model, and one block of the points as its regressors know them."""
    with _lock:
        here = _here.get(groups)
        ready = here.ready if here is not None else _prepared(model, groups)
    if here is not None:
        return ready, as_known(ready.model, rows_of(asked, here.points, block))
    return ready, as_known(ready.model, Csr(**_map(points), n_cols=ready.model.n_features))


def _prepared(model: Path, groups: Path) -> Prepared:
    key = groups, groups.stat().st_mtime_ns
    if key not in _mapped:
        _mapped.clear()  # a worker has one job at a time
        opened = open_model(model, verify=False)
        searcher = Searcher(opened.trie, np.ones(opened.n_features, np.float32))
        of_model = {name: array for name, array in opened.trie._asdict().items() if name in _OF_MODEL}
        _mapped[key] = Prepared(opened, Groups(**of_model, **_map(groups)), searcher)
    return _mapped[key]
