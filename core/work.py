"""A directory of unfinished work beside what it will become: who it belongs to, and the files of its units.

A unit's result is written aside and renamed, so it is whole or not there; a run that was killed goes on from those that
are. `job.json` says which run the directory belongs to: another run is refused, never mixed in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import ResumeError


def work_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.work")


def claim(work: Path, job: str, resume: bool) -> None:
    """Make the work directory ours, or make sure that it is."""
    path = work / "job.json"
    if path.exists() and not resume:
        raise ResumeError(f"{work} holds an unfinished run; go on with --resume, or remove it to begin anew")
    if path.exists() and path.read_text() != job:
        raise ResumeError(
            f"{work} belongs to a run with another model, other data, options or version; remove it to begin anew"
        )
    if not path.exists():
        shutil.rmtree(work, ignore_errors=True)  # without its job it is nobody's
        work.mkdir(parents=True)
        aside = path.with_suffix(".writing")
        aside.write_text(job)
        aside.replace(path)


def remove(work: Path) -> None:
    """Take the work directory's name away before its contents: what is left of a kill is never taken for a run."""
    finished = work.with_name(f".{work.name}.finished")
    shutil.rmtree(finished, ignore_errors=True)
    work.rename(finished)
    shutil.rmtree(finished)


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write one unit's result aside and rename: the file is whole or not there."""
    aside = path.with_suffix(".writing")
    with aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)
