"""What every unit of a labelwise job reads: the opened model with its trees by group, and the points.

    <out>.work/groups/   row_ptr.npy …      what `group_major` made of the model
    <out>.work/points/   indptr.npy …       the points as they were given

Threads of the process that cuts the work share what it has opened already, and nothing is written. A worker elsewhere
maps the files; it opens a model once, however many of its units it runs.
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
from core.labelwise import Labelwise, Prepared, block_of
from core.model import open_model
from core.scratch import Searcher
from core.sparse import Csr

_OF_MODEL = Groups._fields[: Groups._fields.index("parent")]  # the model has these already
_kept: dict[tuple[Path, int], Opened] = {}  # by the directory of the groups and when it was made (0: never)
_lock = threading.Lock()


class Opened(NamedTuple):
    """A model ready for labelwise inference, and the points."""

    ready: Prepared
    points: Csr


def inputs_of(work: Path) -> tuple[Path, Path]:
    """Groups and points of a job."""
    return work / "groups", work / "points"


@contextmanager
def shared(work: Path, model: Path, opened: Opened, remote: bool) -> Iterator[None]:
    """Meanwhile `open_block` finds what was opened: in this process, or in files."""
    groups, points = inputs_of(work)
    if remote:
        mine = {name: array for name, array in opened.ready.trees._asdict().items() if name not in _OF_MODEL}
        rows = opened.points._asdict()
        _write(groups, mine)
        _write(points, {**rows, "n_cols": np.array([rows["n_cols"]], np.int64)})
        yield
        return
    with _lock:
        _kept[groups, 0] = opened
    try:
        yield
    finally:
        with _lock:
            del _kept[groups, 0]


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
        key = groups, 0
        if key not in _kept:
            key = groups, groups.stat().st_mtime_ns
        if key not in _kept:
            _kept.clear()  # a worker has one job at a time
            _kept[key] = _opened(model, groups, points)
        ready, rows = _kept[key]
    return ready, block_of(ready.model, asked, rows, block)


def _opened(model: Path, groups: Path, points: Path) -> Opened:
    opened = open_model(model, verify=False)
    searcher = Searcher(opened.trie, np.ones(opened.n_features, np.float32))
    of_model = {name: array for name, array in opened.trie._asdict().items() if name in _OF_MODEL}
    rows = _map(points)
    n_cols = int(rows.pop("n_cols")[0])
    return Opened(Prepared(opened, Groups(**of_model, **_map(groups)), searcher), Csr(**rows, n_cols=n_cols))
