"""Labelwise jobs on disk: what was accepted is never lost, whoever is killed when.

    JOBS/jobs.sqlite     a row per job; every change is one transaction, synced
    JOBS/<id>/ads.…      the ads of a job, written and synced before its row is

All workers read and write the same file. A row is the truth: a directory without a row was never accepted.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

from core.format import sync
from service.problems import Fault, RefusedError, invalid, problem
from service.schemas import Job, JobState

T = TypeVar("T")

ENDED: tuple[JobState, ...] = ("succeeded", "failed", "cancelled")
STATES: tuple[JobState, ...] = ("queued", "running", *ENDED)
_FILE = "jobs.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT UNIQUE, digest TEXT NOT NULL, file TEXT NOT NULL,
  state TEXT NOT NULL, mode TEXT NOT NULL, ads TEXT NOT NULL, created TEXT NOT NULL, started TEXT, ended TEXT,
  step TEXT, progress REAL NOT NULL DEFAULT 0, release TEXT, detail TEXT,
  pid INTEGER, crashes INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0
)
"""
_SHOWN = ", ".join(Job.__struct_fields__)
_ID = re.compile(r"[0-9a-f]{16}")
_LONG = 3600.0  # seconds; who has not written a job's row by then was killed before
KEPT = 1000  # jobs that ended are remembered, the newest


class Asked(NamedTuple):
    """A job that is to be made: the client's key, the digest of what it sent, and how it reads to people."""

    key: str | None
    digest: str
    mode: Literal["add", "replace"]
    ads: str


class Work(NamedTuple):
    """What the runner needs of a job."""

    id: str
    path: Path
    mode: Literal["add", "replace"]
    pid: int | None
    crashes: int


class Jobs:
    """The jobs of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._thread = ThreadPoolExecutor(1, "jobs")  # always the same: each thread would keep memory of its own

    async def on_thread(self, work: Callable[..., T], *args: Any, **fields: Any) -> T:
        """What `work` returns; disks are slow, and the event loop goes on meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args, **fields))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction; another process may be in the middle of one."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with closing(sqlite3.connect(self.directory / _FILE, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(_SCHEMA)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection

    def add(self, asked: Asked, name: str, write: Callable[[Path], None]) -> tuple[Job, bool]:
        """A new job, whose ads `write` puts into a file of this name; or the one that has the same key. True if new."""
        with self._open() as db:
            before = self._with_key(db, asked)
        if before is not None:
            return before, False
        job_id = secrets.token_hex(8)
        place = self.directory / job_id
        place.mkdir(mode=0o700)
        try:
            write(place / name)
            for path in (place / name, place, self.directory):
                sync(path)
            row = (job_id, asked.key, asked.digest, name, asked.mode, asked.ads, _now())
            with self._open() as db:
                before = self._with_key(db, asked)  # somebody else may have been faster with the same key
                if before is None:
                    db.execute(
                        "INSERT INTO jobs (id, key, digest, file, state, mode, ads, created)"
                        " VALUES (?, ?, ?, ?, 'queued', ?, ?, ?)",
                        row,
                    )
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        if before is not None:
            shutil.rmtree(place, ignore_errors=True)
            return before, False
        return self.one(job_id), True

    def _with_key(self, db: sqlite3.Connection, asked: Asked) -> Job | None:
        if asked.key is None:
            return None
        row = db.execute(f"SELECT digest, {_SHOWN} FROM jobs WHERE key = ?", (asked.key,)).fetchone()
        if row is None:
            return None
        if row["digest"] != asked.digest:
            detail = "was used for another request; a new request needs a new key"
            raise RefusedError(invalid(Fault("/Idempotency-Key", detail)))
        return _shown(row)

    def one(self, job_id: str) -> Job:
        with self._open() as db:
            return _shown(_row(db, job_id))

    def all(self) -> list[Job]:
        """Newest first."""
        with self._open() as db:
            return [_shown(row) for row in db.execute(f"SELECT {_SHOWN} FROM jobs ORDER BY number DESC")]

    def counts(self) -> tuple[dict[str, int], dict[str, float]]:
        """(how many there are in each state, how far those are that have not ended); for those who watch, so it writes
        nothing and hardly waits: raises sqlite3.Error where it cannot read."""
        path = self.directory / _FILE
        if not path.exists():  # nobody has asked for a job yet
            return dict.fromkeys(STATES, 0), {}
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", timeout=0.5, uri=True)) as db:
            states = dict(db.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
            going = "SELECT id, progress FROM jobs WHERE state IN ('queued', 'running')"
            return {state: states.get(state, 0) for state in STATES}, dict(db.execute(going).fetchall())

    def cancel(self, job_id: str) -> Job:
        """Wish that a job ends: at once if it has not begun, else when the runner sees it."""
        with self._open() as db:
            state = _row(db, job_id)["state"]
            if state in ("succeeded", "failed"):
                raise RefusedError(problem(409, "ended", f"the job has {state}; there is nothing to cancel"))
            db.execute("UPDATE jobs SET cancelled = 1 WHERE id = ?", (job_id,))
            if state == "queued":
                self._end(db, job_id, "cancelled", None, None)
        return self.one(job_id)

    def next(self) -> Work | None:
        """The job to go on with: one that a runner left behind, else the oldest that waits."""
        with self._open() as db:
            row = db.execute(
                "SELECT * FROM jobs WHERE state IN ('running', 'queued') ORDER BY state = 'queued', number LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            started = row["started"] or _now()
            db.execute("UPDATE jobs SET state = 'running', started = ? WHERE id = ?", (started, row["id"]))
            return Work(row["id"], self.directory / row["id"] / row["file"], row["mode"], row["pid"], row["crashes"])

    def note(self, job_id: str, **fields: Any) -> None:
        """Say something about a job that runs."""
        with self._open() as db:
            names = ", ".join(f"{name} = ?" for name in fields)
            db.execute(f"UPDATE jobs SET {names} WHERE id = ?", (*fields.values(), job_id))

    def is_cancelled(self, job_id: str) -> bool:
        with self._open() as db:
            return bool(_row(db, job_id)["cancelled"])

    def end(self, job_id: str, state: JobState, release: str | None = None, detail: str | None = None) -> None:
        with self._open() as db:
            self._end(db, job_id, state, release, detail)

    def _end(
        self, db: sqlite3.Connection, job_id: str, state: JobState, release: str | None, detail: str | None
    ) -> None:
        db.execute(
            "UPDATE jobs SET state = ?, release = ?, detail = ?, ended = ?, step = NULL, pid = NULL,"
            " progress = CASE WHEN ? = 'succeeded' THEN 1 ELSE progress END WHERE id = ?",
            (state, release, detail, _now(), state, job_id),
        )

    def tidy(self) -> None:
        """Remove the ads of jobs that have ended or were never accepted, and forget the oldest of the ended."""
        with self._open() as db:
            ended = {row["id"] for row in db.execute("SELECT id FROM jobs WHERE ended IS NOT NULL")}
            known = ended | {row["id"] for row in db.execute("SELECT id FROM jobs")}
            db.execute(
                "DELETE FROM jobs WHERE ended IS NOT NULL AND number <= (SELECT max(number) FROM jobs) - ?", (KEPT,)
            )
        for place in self.directory.iterdir():
            if place.is_dir() and _ID.fullmatch(place.name):
                abandoned = place.name not in known and time() - place.stat().st_mtime > _LONG
                if place.name in ended or abandoned:
                    shutil.rmtree(place, ignore_errors=True)


def _row(db: sqlite3.Connection, job_id: str) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None:
        raise RefusedError(problem(404, "unknown-job", f"there is no job {job_id[:40]!r}"))
    return row


def _shown(row: sqlite3.Row) -> Job:
    return Job(**{name: row[name] for name in Job.__struct_fields__})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
