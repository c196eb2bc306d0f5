"""The work directory of a run: whose it is, that one process at a time works in it, and how it goes away.

`job.json` says which data, parameters and version the directory belongs to: together with the inputs beside it, all
that the rest of the run needs. The lock is the operating system's, so a killed process leaves none behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from core import __version__
from core.errors import ResumeError
from training.params import Params

_JOB, _LOCK = "job.json", "lock"


class Job(NamedTuple):
    """What decides which model comes out, with the version that trains it."""

    params: Params
    fingerprint: str

    def as_text(self) -> str:
        fields = {"xreg": __version__, "params": self.params.as_json(), "data": self.fingerprint}
        return json.dumps(fields, indent=1)


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


def claim(work: Path, job: Job, resume: bool) -> None:
    """Make a locked directory ours, or make sure that it is."""
    path = work / _JOB
    if path.exists() and not resume:
        raise ResumeError(f"{work} holds an unfinished run; go on with --resume, or remove it to begin anew")
    if path.exists() and path.read_text() != job.as_text():
        raise ResumeError(f"{work} belongs to a run with other data, options or version; remove it to begin anew")
    if not path.exists():
        _clear(work)  # without its job it is nobody's
        aside = path.with_suffix(".writing")
        aside.write_text(job.as_text())
        aside.replace(path)


def _clear(work: Path) -> None:
    for entry in work.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()


def claimed_by(work: Path) -> Job | None:
    """The job that a work directory belongs to, or None where there is none."""
    if not (work / _JOB).exists():
        return None
    fields = json.loads((work / _JOB).read_text())
    return Job(Params.from_json(fields["params"]), fields["data"])


def remove(work: Path) -> None:
    """Take the directory's name away before its contents: what is left of a kill is never taken for a run."""
    finished = work.with_name(f".{work.name}.finished")
    shutil.rmtree(finished, ignore_errors=True)
    work.rename(finished)
    shutil.rmtree(finished)
