"""A directory of unfinished work beside what it will become: whose it is, that one process at a time works in it, how
it goes away, and the files of its units.

A unit's result is written aside and renamed, so it is whole or not there; a run that was killed goes on from those that
are. `job.json` says which run the directory belongs to: another run is refused, never mixed in. The lock is the
operating system's, so a killed process leaves none behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from core.errors import ResumeError

JOB, _LOCK = "job.json", "lock"
# NumPy parses headers by `ast`, whose depth CPython 3.11 counts for all threads in one place: two that parse while the
# garbage collector runs Python code can end in a SystemError (python/cpython#106905).
_READING = threading.Lock()


def work_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.work")


@contextmanager
def locked(work: Path) -> Iterator[None]:
    """Nobody else works in the directory meanwhile."""
    while True:
        with _open_lock(work) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ResumeError(f"{work} is being worked on by another process") from error
            # Between our opening and our locking it, the process before may have taken the directory away.
            if os.fstat(file.fileno()).st_nlink:
                yield
                return


def _open_lock(work: Path) -> BinaryIO:
    try:
        return (work / _LOCK).open("ab")
    except FileNotFoundError as error:
        raise ResumeError(f"{work} is not there; has another process finished the run?") from error


def claim(work: Path, job: str, resume: bool) -> None:
    """Make a locked directory ours, or make sure that it is."""
    path = work / JOB
    if path.exists() and not resume:
        raise ResumeError(f"{work} holds an unfinished run; go on with --resume, or remove it to begin anew")
    if path.exists() and path.read_text() != job:
        raise ResumeError(f"{work} belongs to a run with other data, options or version; remove it to begin anew")
    if not path.exists():
        _clear(work)  # without its job it is nobody's
        save_text(path, job)


def claim_or_clear(work: Path, job: str) -> bool:
    """Make a locked directory ours for a job that runs without a person: what another job left behind is cleared.
    True where this job was begun before and goes on."""
    path = work / JOB
    if path.exists() and path.read_text() == job:
        return True
    path.unlink(missing_ok=True)
    claim(work, job, resume=False)
    return False


def _clear(work: Path) -> None:
    for entry in work.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()


def remove(work: Path) -> None:
    """Take the directory's name away before its contents: what is left of a kill is never taken for a run."""
    finished = work.with_name(f".{work.name}.finished")
    shutil.rmtree(finished, ignore_errors=True)
    work.rename(finished)
    shutil.rmtree(finished)


def save_text(path: Path, text: str) -> None:
    """Write a file aside and rename: it is whole or not there."""
    aside = path.with_name(f".{path.name}.writing")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write one unit's result aside and rename: the file is whole or not there."""
    aside = path.with_suffix(".writing")
    with aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def load_arrays(path: Path, prefix: str = "") -> dict[str, npt.NDArray[Any]]:
    """The arrays of a file whose names begin with `prefix`; the others are not read."""
    with _READING, np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files if name.startswith(prefix)}
