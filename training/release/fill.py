"""The query→ad table: labelwise inference over the current catalogue, ads that nobody has clicked yet included.

The job leaves `answers.npz` (queries × ads that are live) in the work directory beside the table; rows of the table are
its best ads by falling probability. What is below `LEAST` is not worth a place: nobody would show it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from core import __version__
from core.errors import ModelError
from core.executors import Executor
from core.format import MANIFEST, checksum, written_aside
from core.labelwise import Labelwise, OnProgress
from core.labelwise_job import fingerprint, run_job
from core.model import open_model
from core.sparse import Csr, from_scipy
from core.tables import write_table
from core.text import Vocabulary
from core.work import claim_or_clear, locked, remove, work_of
from training.catalogue import documents

LEAST = 0.001
TOP = 50  # ads per query


def fill_table(
    model: Path,
    queries: Sequence[str],
    text: Vocabulary,
    ads: pa.Table,
    live: npt.NDArray[np.bool_],
    asked: Labelwise,
    out: Path,
    threads: int,
    on_progress: OnProgress | None = None,
    executor: Executor | None = None,
) -> None:
    """Write the table to the directory `out`; finished units of the same job that was killed are found again."""
    opened = open_model(model)
    if opened.n_labels != len(queries) or opened.n_features != text.n_features:
        raise ModelError(
            f"{model}: {opened.n_labels} queries and {opened.n_features} words; the data have {len(queries)} and "
            f"{text.n_features}: it was trained on others"
        )
    numbers, work = np.flatnonzero(live).astype(np.int32), work_of(out)
    work.mkdir(parents=True, exist_ok=True)
    with locked(work):
        points = text.rows(documents(ads.take(pa.array(numbers))))
        rows = _answers(model, points, asked, work, threads, on_progress, executor)
        row = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
        scores = rows.values * np.float32(opened.manifest["scale"])
        order = np.lexsort((rows.indices, -scores, row))
        order = order[scores[order] >= LEAST]
        counts = np.bincount(row[order], minlength=rows.n_rows)
        kept = np.flatnonzero(counts)
        indptr = np.concatenate([[0], np.cumsum(counts[kept])]).astype(np.int64)
        with written_aside(out) as aside:
            write_table(aside, [queries[int(i)] for i in kept], indptr, numbers[rows.indices[order]], scores[order])
        remove(work)


def _answers(
    model: Path,
    points: Csr,
    asked: Labelwise,
    work: Path,
    threads: int,
    on_progress: OnProgress | None,
    executor: Executor | None,
) -> Csr:
    """The best ads of every query; those that the same job has left are used, those of another never."""
    job = {"xreg": __version__, "model": checksum(model / MANIFEST), "ads": fingerprint(points), **asdict(asked)}
    claim_or_clear(work, json.dumps(job, indent=1))
    answers = work / "answers.parquet"
    if not answers.exists() or work_of(answers).exists():
        run_job(model, points, asked, answers, threads, True, on_progress, executor)
    return from_scipy(sparse.csr_matrix(sparse.load_npz(answers.with_suffix(".npz"))))
