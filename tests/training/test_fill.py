"""Filling a table: rows are the best ads by falling probability, and what another job left is not used."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.errors import ModelError, ResumeError
from core.labelwise import Labelwise
from core.tables import MappedTable
from core.work import locked, work_of
from tests.training.market import digest_of
from tests.training.nightly import PARAMS
from training.clicks import open_clicks
from training.dataset import read_dataset
from training.fit import fit
from training.release.fill import LEAST, fill_table
from training.release.staging import served_release


def fill(model: Path, data: Path, out: Path, top: int = 50, gone: int = 0) -> None:
    """Over the catalogue of a data set, the first ads of which may be gone."""
    clicks = open_clicks(data)
    live = np.arange(clicks.ads.num_rows) >= gone
    fill_table(model, clicks.queries[: clicks.known], clicks.ad_text, clicks.ads, live, Labelwise(top), out, 2)


def test_rows_hold_the_best_live_ads_above_the_least_probability(market: Path, night: Path, tmp_path: Path) -> None:
    fill(served_release(night) / "labelwise", market / "clicks", tmp_path / "t", top=7, gone=100)
    rows = dict(MappedTable.open(tmp_path / "t").rows())
    assert len(rows) > 500
    for row in rows.values():
        assert 0 < len(row.ads) <= 7
        assert row.ads.min() >= 100
        assert row.scores.min() >= LEAST
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_what_another_job_left_beside_the_table_is_not_used(market: Path, night: Path, tmp_path: Path) -> None:
    data, model = market / "clicks", tmp_path / "model"
    fit(read_dataset(data / "labelwise", "train"), replace(PARAMS, seed=1), model, threads=2)
    fill(served_release(night) / "labelwise", data, tmp_path / "t")
    first = digest_of(tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    work = work_of(tmp_path / "t")
    work.mkdir()
    for name in ("job.json", "answers.parquet", "answers.npz"):  # as after a kill
        (work / name).write_text("of another model")
    fill(model, data, tmp_path / "t")
    assert digest_of(tmp_path / "t") != first
    fill(model, data, tmp_path / "again")
    assert digest_of(tmp_path / "t") == digest_of(tmp_path / "again")


def test_two_at_once_and_models_of_other_data_are_refused(market: Path, night: Path, tmp_path: Path) -> None:
    release = served_release(night)
    with pytest.raises(ModelError, match="it was trained on others"):
        fill(release / "online", market / "clicks", tmp_path / "t")
    work_of(tmp_path / "t").mkdir()
    with (
        locked(work_of(tmp_path / "t")),
        pytest.raises(ResumeError, match="is being worked on by another process"),
    ):
        fill(release / "labelwise", market / "clicks", tmp_path / "t")
