"""Ingest: logs in any form to one data set; what cannot be used is told; killed and resumed it ends the same."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from core.errors import DataError, ResumeError, UsageError
from core.sparse import Csr, to_scipy
from core.text import VocabularyLimits, ad_document
from tests.training.market import (
    COUNTS,
    N_ADS,
    digest_of,
    make_rows,
    plain_counts,
    read_rejects,
    spelled_alike,
    write_ads,
    write_rows,
)
from training.clicks import Clicks, Pairs, open_clicks
from training.dataset import read_dataset
from training.ingest.options import IngestOptions
from training.ingest.run import ingest

ROWS = make_rows()
ALL = (*COUNTS, "position", "time")


@pytest.fixture
def ads(tmp_path: Path) -> Path:
    return write_ads(tmp_path / "ads.csv")


def as_dict(clicks: Clicks, pairs: Pairs, values: np.ndarray) -> dict[tuple[str, str], float]:
    ids = clicks.ads.column("ad_id").to_pylist()
    return {(clicks.queries[q], ids[a]): float(v) for q, a, v in zip(pairs.query, pairs.ad, values, strict=True)}


def test_pairs_and_relevances_are_those_of_a_plain_reading(tmp_path: Path, ads: Path) -> None:
    log = write_rows(tmp_path / "log.csv", ROWS, (*COUNTS, "time"))
    options = IngestOptions(since="2026-01-25", prior=(0.5, 10.0), min_clicks=2, min_impressions=15)
    stats = ingest([log], ads, tmp_path / "out", options, threads=2)
    clicks = open_clicks(tmp_path / "out")
    for part, rows in (
        ("train", [r for r in ROWS if r["time"] < "2026-01-25"]),
        ("test", [r for r in ROWS if r["time"] >= "2026-01-25"]),
    ):
        plain = plain_counts(rows)
        pairs: Pairs = getattr(clicks, part)
        assert as_dict(clicks, pairs, pairs.impressions) == {pair: i for pair, (i, _) in plain.items()}
        assert as_dict(clicks, pairs, pairs.clicks) == {pair: c for pair, (_, c) in plain.items()}
        expected = {pair: (c + 0.5) / (i + 10.0) if c >= 2 and i >= 15 else 0.0 for pair, (i, c) in plain.items()}
        assert as_dict(clicks, pairs, pairs.relevance) == pytest.approx(expected, rel=1e-6)
        key = pairs.query.astype(np.int64) * N_ADS + pairs.ad
        assert (np.diff(key) > 0).all()
        assert stats[part]["pairs"] == len(plain)
        assert stats[part]["clicks"] == sum(r["clicks"] for r in rows)
        assert stats[part]["impressions"] == sum(r["impressions"] for r in rows)


def test_known_queries_come_first_and_both_directions_agree_with_the_pairs(tmp_path: Path, ads: Path) -> None:
    log = write_rows(tmp_path / "log.parquet", ROWS, ALL)
    ingest([log], ads, tmp_path / "out", IngestOptions(hold_out=0.3))
    c = open_clicks(tmp_path / "out")
    assert c.queries[: c.known] == sorted(c.queries[: c.known])
    assert c.queries[c.known :] == sorted(c.queries[c.known :])
    assert set(c.train.query.tolist()) == set(range(c.known))
    assert set(range(c.known, len(c.queries))) <= set(c.test.query.tolist())
    shape = (len(c.queries), N_ADS)
    train = sparse.csr_matrix((c.train.relevance, (c.train.query, c.train.ad)), shape)
    test = sparse.csr_matrix((c.test.relevance, (c.test.query, c.test.ad)), shape)
    online = read_dataset(c.path / "online", "train"), read_dataset(c.path / "online", "test")
    asked = np.load(c.path / "online" / "tst_query.npy")
    assert asked.tolist() == np.flatnonzero(test.sum(1)).tolist()
    _equal(online[0].relevance, train[: c.known])
    _equal(online[1].relevance, test[asked])
    labelwise = read_dataset(c.path / "labelwise", "train"), read_dataset(c.path / "labelwise", "test")
    shown = np.load(c.path / "labelwise" / "trn_ad.npy")
    assert shown.tolist() == sorted(set(c.train.ad.tolist()))
    _equal(labelwise[0].relevance, train[: c.known].T.tocsr()[shown])
    _equal(labelwise[1].relevance, test[: c.known].T.tocsr())
    for features, vocabulary, texts in (
        (online[0].features, c.query_text, c.queries[: c.known]),
        (online[1].features, c.query_text, [c.queries[i] for i in asked]),
        (labelwise[1].features, c.ad_text, _documents(c)),
        (labelwise[0].features, c.ad_text, [_documents(c)[i] for i in shown]),
    ):
        mine = vocabulary.rows(texts)
        assert np.array_equal(mine.indptr, features.indptr)
        assert np.array_equal(mine.indices, features.indices)
        assert np.array_equal(mine.values, features.values)


def _documents(c: Clicks) -> list[str]:
    return [ad_document(row["title"], row["text"]) for row in c.ads.to_pylist()]


def _equal(rows: Csr, matrix: Any) -> None:
    assert to_scipy(rows).shape == matrix.shape
    assert abs(to_scipy(rows) - matrix).sum() == 0


def test_every_kind_of_file_gives_the_same_bytes(tmp_path: Path, ads: Path) -> None:
    csv_file = write_rows(tmp_path / "a.csv", ROWS, ALL)
    ingest([csv_file], ads, tmp_path / "whole")
    for i in range(3):
        ending = ("csv", "csv.gz", "parquet")[i]
        write_rows(tmp_path / "many" / f"{2 - i}.{ending}", ROWS[i::3], ALL)
    inputs = {
        "gz": [write_rows(tmp_path / "a.csv.gz", ROWS, ALL)],
        "parquet": [write_rows(tmp_path / "a.parquet", ROWS, ALL)],
        "directory": [tmp_path / "many"],
        "reversed": [write_rows(tmp_path / "r.csv", ROWS[::-1], ALL)],
    }
    expected = digest_of(tmp_path / "whole")
    for name, paths in inputs.items():
        ingest(paths, ads, tmp_path / name, threads=3)
        assert digest_of(tmp_path / name) == expected, name
    assert not list(tmp_path.glob("*.work"))


def test_blocks_and_batches_do_not_show(tmp_path: Path, ads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_rows(tmp_path / "a.csv", ROWS, ALL)
    ingest([log], ads, tmp_path / "large")
    for module, name, value in (
        ("training.ingest.logs", "_BLOCK", 4096),
        ("training.ingest.buckets", "_AT_ONCE", 10),
        ("training.ingest.buckets", "ROWS_PER_BUCKET", 100),
        ("training.ingest.pairs", "_AT_ONCE", 50),
    ):
        monkeypatch.setattr(f"{module}.{name}", value)
    ingest([log], ads, tmp_path / "small")
    a, b = open_clicks(tmp_path / "large"), open_clicks(tmp_path / "small")
    assert a.queries == b.queries
    assert a.stats == b.stats
    for x, y in zip(a.train + a.test, b.train + b.test, strict=True):
        assert np.array_equal(x, y)


def test_one_row_per_impression_counts_as_its_sum(tmp_path: Path, ads: Path) -> None:
    shown = [{**row, "clicked": int(i < row["clicks"])} for row in ROWS[:400] for i in range(row["impressions"])]
    write_rows(tmp_path / "shown.csv", shown, ("query", "ad_id", "clicked", "position", "time"))
    write_rows(tmp_path / "counts.csv", ROWS[:400], ALL)
    stats = [ingest([tmp_path / f"{n}.csv"], ads, tmp_path / n) for n in ("shown", "counts")]
    assert [s.pop("form") for s in stats] == ["impressions", "counts"]
    assert [s.pop("rows") for s in stats] == [len(shown), 400]
    assert stats[0] == stats[1]
    assert digest_of(tmp_path / "shown")["train.parquet"] == digest_of(tmp_path / "counts")["train.parquet"]


def test_a_log_of_clicks_only_gives_shrunk_shares_and_says_so(tmp_path: Path, ads: Path) -> None:
    rows = [{"query": "red shoes", "ad_id": f"ad{i:03}"} for i in (1, 1, 1, 2)]
    write_rows(tmp_path / "log.csv", [*rows, {"query": "blue", "ad_id": "ad003"}], ("query", "ad_id"))
    stats = ingest([tmp_path / "log.csv"], ads, tmp_path / "out", IngestOptions(hold_out=0, share_prior=1.0))
    c = open_clicks(tmp_path / "out")
    expected = {("blue", "ad003"): 1 / 2, ("red shoes", "ad001"): 3 / 5, ("red shoes", "ad002"): 1 / 5}
    assert as_dict(c, c.train, c.train.relevance) == pytest.approx(expected)
    assert as_dict(c, c.train, c.train.clicks) == {
        ("blue", "ad003"): 1,
        ("red shoes", "ad001"): 3,
        ("red shoes", "ad002"): 1,
    }
    assert stats["form"] == "clicks"
    assert "clicks only" in stats["note"]
    assert stats["train"]["impressions"] is None
    assert stats["train"]["click_rate"] is None
    assert stats["prior"] is None
    assert stats["split"]["by"] == "none"


def test_judgements_are_averaged_and_not_shrunk(tmp_path: Path, ads: Path) -> None:
    rows = [{"query": "red", "ad_id": "ad001", "relevance": r} for r in (0.1, 0.1, 1.0)]
    rows.append({"query": "red", "ad_id": "ad002", "relevance": 0.0})
    write_rows(tmp_path / "log.csv", rows, ("query", "ad_id", "relevance"))
    stats = ingest([tmp_path / "log.csv"], ads, tmp_path / "out", IngestOptions(hold_out=0))
    c = open_clicks(tmp_path / "out")
    assert as_dict(c, c.train, c.train.relevance) == pytest.approx({("red", "ad001"): 0.4, ("red", "ad002"): 0.0})
    assert c.train.impressions.tolist() == [3, 1]
    assert stats["form"] == "judgements"


def test_without_times_whole_queries_are_held_out_by_their_hash(tmp_path: Path, ads: Path) -> None:
    rows = [
        {"query": f"query {i}", "ad_id": "ad001", "impressions": 5, "clicks": 1} for i in range(2000) for _ in range(2)
    ]
    write_rows(tmp_path / "log.csv", rows, COUNTS)
    stats = ingest([tmp_path / "log.csv"], ads, tmp_path / "out", IngestOptions(hold_out=0.2))
    c = open_clicks(tmp_path / "out")
    assert stats["split"] == {"by": "hash", "since": None, "hold_out": 0.2}
    assert not set(c.train.query) & set(c.test.query)
    assert len(c.test.query) / 2000 == pytest.approx(0.2, abs=0.03)
    write_rows(tmp_path / "later.csv", rows[1000:], COUNTS)
    ingest([tmp_path / "later.csv"], ads, tmp_path / "later", IngestOptions(hold_out=0.2))
    again = open_clicks(tmp_path / "later")
    held = {c.queries[q] for q in c.test.query}
    assert {again.queries[q] for q in again.test.query} == held & set(again.queries)


def test_with_times_the_end_of_the_span_is_held_out(tmp_path: Path, ads: Path) -> None:
    day = 86_400
    for name, spell in (
        ("seconds", lambda d: d * day),
        ("text", lambda d: f"1970-01-{d + 1:02}T01:00:00+01:00"),
        ("stamp", lambda d: np.datetime64(d * day, "s").item()),
    ):
        rows = [{**ROWS[i], "time": spell(i % 21)} for i in range(600)]
        write_rows(tmp_path / f"{name}.parquet", rows, ALL)
        stats = ingest([tmp_path / f"{name}.parquet"], ads, tmp_path / name, IngestOptions(hold_out=0.25))
        assert stats["split"] == {"by": "time", "since": "1970-01-16T00:00:00+00:00", "hold_out": 0.25}
        assert stats["test"]["impressions"] == sum(ROWS[i]["impressions"] for i in range(600) if i % 21 >= 15)


BAD: list[tuple[str | bytes, str]] = [
    ("red,ad001,1", "wrong number of fields"),
    ("red,ad001,1,0,1,2026-01-01,more", "wrong number of fields"),
    ('"red,ad001,1,0,1,2026-01-01', "wrong number of fields"),
    (b"caf\xe9,ad001,1,0,1,2026-01-01", "broken encoding"),
    (b"red,\xff,1,0,1,2026-01-01", "broken encoding"),
    (",ad001,1,0,1,2026-01-01", "empty query"),
    ("?!,ad001,1,0,1,2026-01-01", "empty query"),
    ("red,nobody,1,0,1,2026-01-01", "unknown ad"),
    ("red,,1,0,1,2026-01-01", "unknown ad"),
    ("red,ad001,NaN,0,1,2026-01-01", "not a number"),
    ("red,ad001,,0,1,2026-01-01", "not a number"),
    ("red,ad001,1,x,1,2026-01-01", "not a number"),
    ("red,ad001,inf,0,1,2026-01-01", "not a number"),
    ("red,ad001,-1,0,1,2026-01-01", "negative count"),
    ("red,ad001,1,-1,1,2026-01-01", "negative count"),
    ("red,ad001,1e300,0,1,2026-01-01", "count too large"),
    ("red,ad001,1,2,1,2026-01-01", "clicks > impressions"),
    ("red,ad001,1,0,0,2026-01-01", "bad position"),
    ("red,ad001,1,0,1.5,2026-01-01", "bad position"),
    ("red,ad001,1,0,,2026-01-01", "bad position"),
    ("red,ad001,1,0,1,yesterday", "bad time"),
    ("red,ad001,1,0,1,", "bad time"),
    ("red,ad001,1,0,1,1700000000000", "bad time"),
]


def test_a_row_that_cannot_be_used_is_told_with_its_reason_and_harms_no_other(tmp_path: Path, ads: Path) -> None:
    clean = write_rows(tmp_path / "clean.csv", ROWS, ALL)
    ingest([clean], ads, tmp_path / "clean")
    lines = clean.read_bytes().split(b"\n")
    expected = []
    for i, (line, reason) in enumerate(BAD):
        lines.insert(100 * i + 1, line if isinstance(line, bytes) else line.encode())
        expected.append((100 * i + 2, reason))
    lines.insert(50, b"")  # no row at all
    expected = [(row + (row > 50), reason) for row, reason in expected]
    (tmp_path / "log.csv").write_bytes(b"\n".join(lines))
    stats = ingest([tmp_path / "log.csv"], ads, tmp_path / "out")
    told = read_rejects(tmp_path / "out" / "rejects.csv")
    assert [(int(r["row"]), r["reason"]) for r in told] == expected
    assert {r["file"] for r in told} == {"log.csv"}
    assert told[2]["raw"] == '"red,ad001,1,0,1,2026-01-01'
    assert told[3]["raw"] == "caf\\xe9,ad001,1,0,1,2026-01-01"
    counted = [reason for _, reason in BAD]
    assert stats["rejected"] == {reason: counted.count(reason) for reason in counted}
    assert stats["rows"] == len(ROWS) + len(BAD)
    digests = digest_of(tmp_path / "out"), digest_of(tmp_path / "clean")
    assert {k for k in digests[0] if digests[0][k] != digests[1][k]} == {"manifest.json", "rejects.csv", "stats.json"}


@pytest.mark.parametrize(
    ("columns", "value", "reason"),
    [
        (("query", "ad_id", "clicked"), 2, "clicked not 0 or 1"),
        (("query", "ad_id", "clicked"), None, "not a number"),
        (("query", "ad_id", "relevance"), 1.5, "relevance outside 0 … 1"),
        (("query", "ad_id", "relevance"), -0.5, "relevance outside 0 … 1"),
        (("query", "ad_id", "relevance"), float("nan"), "not a number"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_degrees_out_of_range_are_rejected(
    tmp_path: Path, ads: Path, columns: tuple[str, ...], value: float | None, reason: str, ending: str
) -> None:
    rows: list[dict[str, Any]] = [{"query": f"q {i}", "ad_id": "ad001", columns[2]: 1} for i in range(30)]
    rows[7][columns[2]] = value
    write_rows(tmp_path / f"log.{ending}", rows, columns)
    stats = ingest([tmp_path / f"log.{ending}"], ads, tmp_path / "out", IngestOptions(hold_out=0))
    assert stats["rejected"] == {reason: 1}
    assert int(read_rejects(tmp_path / "out" / "rejects.csv")[0]["row"]) == (9 if ending == "csv" else 8)


def test_nulls_in_parquet_are_rejects(tmp_path: Path, ads: Path) -> None:
    rows: list[dict[str, Any]] = [{"query": "red", "ad_id": "ad001", "clicked": True} for _ in range(50)]
    rows[3]["query"] = None
    rows[4]["ad_id"] = None
    write_rows(tmp_path / "log.parquet", rows, ("query", "ad_id", "clicked"))
    stats = ingest([tmp_path / "log.parquet"], ads, tmp_path / "out", IngestOptions(hold_out=0))
    assert stats["rejected"] == {"empty query": 1, "unknown ad": 1}


def test_too_many_rejects_fail_the_ingest_and_leave_the_list(tmp_path: Path, ads: Path) -> None:
    rows = [
        *ROWS[::33][:90],
        *({**ROWS[0], "ad_id": "nobody"} for _ in range(8)),
        *({**ROWS[0], "query": ""} for _ in "ab"),
    ]
    log = write_rows(tmp_path / "log.csv", rows, ALL)
    with pytest.raises(DataError, match=r"10 of 100 rows cannot be used, 10.0%; at most 5.0% .*unknown ad \(8\)"):
        ingest([log], ads, tmp_path / "out")
    assert len(read_rejects(tmp_path / "out.rejects.csv")) == 10
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ads.csv", "log.csv", "out.rejects.csv"]
    stats = ingest([log], ads, tmp_path / "out", IngestOptions(most_rejected=0.1, rejects_written=3))
    assert stats["rejected"] == {"unknown ad": 8, "empty query": 2}
    assert stats["rejected_share"] == 0.1
    assert len(read_rejects(tmp_path / "out" / "rejects.csv")) == 3


@pytest.mark.parametrize(
    "columns",
    ["query,ad", "query,ad_id,impressions", "query,ad_id,click", "query,ad_id,clicks,clicked", "query,query,ad_id",
     "query,ad_id,relevance,clicked", "query,ad_id,position", "ad_id,clicked"],
)  # fmt: skip
def test_other_columns_are_refused_with_those_found_and_those_accepted(tmp_path: Path, ads: Path, columns: str) -> None:
    (tmp_path / "log.csv").write_text(columns + "\n")
    with pytest.raises(DataError, match=rf"columns {columns.replace(',', ', ')}; accepted are query, ad_id, impressi"):
        ingest([tmp_path / "log.csv"], ads, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ads.csv", "log.csv"]


def test_further_columns_of_a_log_are_passed_over(tmp_path: Path, ads: Path) -> None:
    rows = [{**row, "user": "someone"} for row in ROWS[:200]]
    write_rows(tmp_path / "a.csv", rows, ("user", *ALL))
    write_rows(tmp_path / "b.csv", rows, ALL)
    for name in "ab":
        ingest([tmp_path / f"{name}.csv"], ads, tmp_path / name)
    assert digest_of(tmp_path / "a") == digest_of(tmp_path / "b")


def _files(make: Callable[[Path], object]) -> Callable[[Path], list[Path]]:
    def inner(tmp: Path) -> list[Path]:
        make(tmp)
        return sorted(tmp.glob("log*"))

    return inner


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda t: (t / "log.csv").touch(), "the file is empty"),
        (lambda t: (t / "log.csv").write_text("query,ad_id\n"), "the log holds no rows"),
        (lambda t: (t / "log.csv.gz").write_bytes(b"no gzip"), "cannot be read"),
        (lambda t: (t / "log.csv").write_bytes(b"\x1f\x8bxx"), "this is no text"),
        (lambda t: (t / "log.parquet").write_bytes(b"no parquet"), "not a Parquet file"),
        (lambda t: (t / "log.txt").touch(), r"named \.csv, \.csv\.gz, \.parquet"),
        (lambda t: (t / "log").mkdir(), "holds no files"),
        (lambda t: None, "no file was named"),
        (lambda t: [write_rows(t / f"log{i}.csv", ROWS, c) for i, c in enumerate((ALL, COUNTS))], "must have the same"),
        (lambda t: write_rows(t / "log.csv", [{**r, "clicks": 0} for r in ROWS], COUNTS), "has no clicks"),
        (lambda t: write_rows(t / "log.csv", [{**r, "time": 7} for r in ROWS], ALL), "every event is held out"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_and_nothing_is_left(
    tmp_path: Path, ads: Path, make: Callable[[Path], object], cause: str
) -> None:
    files = _files(make)(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=cause):
        ingest(files, ads, tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_cut_gzip_file_is_refused(tmp_path: Path, ads: Path) -> None:
    log = write_rows(tmp_path / "log.csv.gz", ROWS, ALL)
    log.write_bytes(log.read_bytes()[:-200])
    with pytest.raises(DataError, match="not a complete gzip file"):
        ingest([log], ads, tmp_path / "out")


def test_a_file_named_twice_is_refused(tmp_path: Path, ads: Path) -> None:
    log = write_rows(tmp_path / "d" / "log.csv", ROWS, ALL)
    with pytest.raises(DataError, match="named twice"):
        ingest([tmp_path / "d", log], ads, tmp_path / "out")
    with pytest.raises(DataError, match="no such file"):
        ingest([tmp_path / "none.csv"], ads, tmp_path / "out")


def test_an_existing_directory_is_never_written_to(tmp_path: Path, ads: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="out exists"):
        ingest([write_rows(tmp_path / "log.csv", ROWS, ALL)], ads, tmp_path / "out")


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"hold_out": 1.0}, "hold_out must be"),
        ({"since": "soon"}, "since must be a time"),
        ({"prior": (0.0, 1.0)}, "prior must be two numbers above 0"),
        ({"min_clicks": -1}, "min_clicks"),
        ({"min_impressions": float("nan")}, "min_impressions"),
        ({"share_prior": -1}, "share_prior"),
        ({"positions": 0}, "positions must be between 1 and 250"),
        ({"most_rejected": 2}, "most_rejected"),
        ({"rejects_written": -1}, "rejects_written"),
    ],
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, object], cause: str) -> None:
    with pytest.raises(UsageError, match=cause):
        IngestOptions(**wrong)  # type: ignore[arg-type]


def test_since_needs_times(tmp_path: Path, ads: Path) -> None:
    log = write_rows(tmp_path / "log.csv", ROWS, COUNTS)
    with pytest.raises(UsageError, match="since needs a log with a column time"):
        ingest([log], ads, tmp_path / "out", IngestOptions(since="2026-01-01"))


class _Killed(Exception):  # noqa: N818  (no error of the product)
    pass


def test_killed_at_any_step_and_resumed_it_ends_byte_for_byte_the_same(
    tmp_path: Path, ads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.ingest.buckets.ROWS_PER_BUCKET", 1000)
    for i in range(3):
        write_rows(tmp_path / "log" / f"{i}.csv", ROWS[i::3], ALL)
    steps = list[tuple[str, int, int]]()
    ingest([tmp_path / "log"], ads, tmp_path / "whole", on_progress=lambda *step: steps.append(step))
    expected = digest_of(tmp_path / "whole")
    assert {stage for stage, _, _ in steps} == {"time span", "reading", "merging", "writing"}
    for stop in range(len(steps)):
        seen = 0

        def kill(*_: object) -> None:
            nonlocal seen
            if seen == stop:  # noqa: B023  (called inside the loop)
                raise _Killed
            seen += 1

        with pytest.raises(_Killed):
            ingest([tmp_path / "log"], ads, tmp_path / "out", on_progress=kill)
        assert not (tmp_path / "out").exists()
        with pytest.raises(ResumeError, match="unfinished run"):
            ingest([tmp_path / "log"], ads, tmp_path / "out")
        with pytest.raises(ResumeError, match="other data, options or version"):
            ingest([tmp_path / "log"], ads, tmp_path / "out", IngestOptions(hold_out=0.2), resume=True)
        ingest([tmp_path / "log"], ads, tmp_path / "out", resume=True)
        assert digest_of(tmp_path / "out") == expected, steps[stop]
        shutil.rmtree(tmp_path / "out")


KILLED = """
import os, signal, sys
from pathlib import Path
import training.ingest.buckets
from training.ingest.run import ingest
training.ingest.buckets.ROWS_PER_BUCKET = 100
def kill(stage, done, total):
    if (stage, done) == ("merging", 10):
        os.kill(os.getpid(), signal.SIGKILL)
log, ads, out = map(Path, sys.argv[1:])
ingest([log], ads, out, on_progress=kill)
"""


def test_a_process_that_was_killed_is_gone_on_from(tmp_path: Path, ads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_rows(tmp_path / "log.csv", ROWS, ALL)
    run = subprocess.run([sys.executable, "-c", KILLED, log, ads, tmp_path / "out"], check=False)
    assert run.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "out.work").glob("bucket*"))) == 10
    monkeypatch.setattr("training.ingest.buckets.ROWS_PER_BUCKET", 100)
    ingest([log], ads, tmp_path / "out", resume=True)
    ingest([log], ads, tmp_path / "whole")
    assert digest_of(tmp_path / "out") == digest_of(tmp_path / "whole")


def test_two_at_once_do_not_mix(tmp_path: Path, ads: Path) -> None:
    log = write_rows(tmp_path / "log.csv", ROWS, ALL)

    def another(stage: str, done: int, total: int) -> None:
        with pytest.raises(ResumeError, match="being worked on by another process"):
            ingest([log], ads, tmp_path / "out", resume=True)

    ingest([log], ads, tmp_path / "out", on_progress=another)
    open_clicks(tmp_path / "out")


def test_killed_between_its_last_two_steps_it_only_tidies_up(tmp_path: Path, ads: Path) -> None:
    log = write_rows(tmp_path / "log.csv", ROWS, ALL)
    with pytest.raises(_Killed):
        ingest([log], ads, tmp_path / "out", on_progress=_raise)
    shutil.copytree(tmp_path / "out.work", tmp_path / "kept")
    stats = ingest([log], ads, tmp_path / "out", resume=True)
    (tmp_path / "kept").rename(tmp_path / "out.work")
    assert ingest([log], ads, tmp_path / "out", resume=True) == stats
    assert not (tmp_path / "out.work").exists()


def _raise(*_: object) -> None:
    raise _Killed


PEAK = """
import sys
from pathlib import Path
import training.ingest.logs, training.ingest.buckets
training.ingest.logs._BLOCK, training.ingest.buckets._AT_ONCE = 1 << 20, 1 << 12
from training.ingest.run import ingest
ingest([Path(sys.argv[1])], Path(sys.argv[2]), Path(sys.argv[3]))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_memory_does_not_grow_with_the_log(tmp_path: Path, ads: Path) -> None:
    row = write_rows(tmp_path / "log.csv", ROWS, ALL).read_bytes().partition(b"\n")
    peaks = []
    for times in (50, 400):
        (tmp_path / f"log{times}.csv").write_bytes(row[0] + b"\n" + row[2] * times)
        command = [sys.executable, "-c", PEAK, tmp_path / f"log{times}.csv", ads, tmp_path / f"out{times}"]
        peaks.append(int(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout))
    assert peaks[1] < 1.1 * peaks[0]  # the log is eight times as long, its pairs are the same


def test_a_data_set_that_was_changed_is_refused(tmp_path: Path, ads: Path) -> None:
    out = tmp_path / "out"
    ingest([write_rows(tmp_path / "log.csv", ROWS, ALL)], ads, out)
    with pytest.raises(DataError, match="not a data set of clicks"):
        open_clicks(tmp_path)
    stats = (out / "stats.json").read_bytes()
    (out / "stats.json").write_bytes(stats.replace(b"counts", b"clicks"))
    with pytest.raises(DataError, match="SHA-256 differs"):
        open_clicks(out)
    open_clicks(out, verify=False)
    (out / "stats.json").write_bytes(b"")
    with pytest.raises(DataError, match=r"stats\.json: the size differs"):
        open_clicks(out, verify=False)
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, "version": 2}))
    with pytest.raises(DataError, match="version 2; this xreg reads 1"):
        open_clicks(out)


def test_words_within_the_limits_and_pairs_of_words(tmp_path: Path, ads: Path) -> None:
    log = write_rows(tmp_path / "log.csv", ROWS, ALL)
    options = IngestOptions(words=VocabularyLimits(most=20, bigrams=True))
    stats = ingest([log], ads, tmp_path / "out", options)
    assert stats["vocabulary"] == {"queries": 20, "ads": 20}
    assert any(" " in name for name in open_clicks(tmp_path / "out").query_text.names())


def test_statistics_tell_of_unknown_words_and_of_frequencies(tmp_path: Path, ads: Path) -> None:
    rows = [
        {**ROWS[0], "query": q, "impressions": n, "clicks": 1, "time": t}
        for q, n, t in (("red", 1, 1), ("red shoes", 3, 1), ("blue", 8, 2), ("green", 1, 9), ("red green", 5, 9))
    ]
    log = write_rows(tmp_path / "log.csv", rows, (*COUNTS, "time"))
    stats = ingest([log], ads, tmp_path / "out", IngestOptions(since="5", prior=(1.0, 2.0)))
    assert stats["test_queries_without_known_word"] == 0.5
    frequencies = {f["from"]: f["queries"] for f in stats["query_frequency"]}
    assert frequencies == {0: 2, 1: 1, 2: 1, 4: 0, 8: 1}
    assert stats["queries"] == {"all": 5, "known": 3}
    assert stats["prior"] == {"a": 1.0, "b": 2.0, "mean": 0.5, "fitted": False}


def test_spellings_of_one_query_become_one(tmp_path: Path, ads: Path) -> None:
    ingest([write_rows(tmp_path / "log.csv", ROWS, ALL)], ads, tmp_path / "out")
    queries = open_clicks(tmp_path / "out").queries
    assert set(queries) == {spelled_alike(row["query"]) for row in ROWS}
    table = pq.read_table(tmp_path / "out" / "queries.parquet")
    assert table.schema.field("query").type == pa.string()


def test_real_judgements_are_ingested(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    data = real_data("esci-small")
    stats = ingest([data / "events.csv.gz"], data / "ads.csv.gz", tmp_path / "out", threads=2)
    assert stats["form"] == "judgements"
    assert stats["rejected"] == {}
    assert stats["queries"]["all"] == 150
    assert stats["train"]["pairs"] + stats["test"]["pairs"] == stats["rows"] == 6678
