"""Click logs and a catalogue to a data set of clicks. docs/ingest.md says what goes in and what comes out.

    <out>.work/catalogue.parquet     the ads, checked and sorted
    <out>.work/span00000.json …      the first and last time of every file, where the split is by time
    <out>.work/unit00000/ …          a file's events, cleaned and spread over buckets; its rejects
    <out>.work/bucket00/ …           a bucket's events of all files, added up; then its pairs with their relevances
    <out>                            the data set, written aside and renamed

A unit is a pure function of one file and the options. A job that was killed goes on from its finished units, and ends
byte for byte where an uninterrupted one would; so does one with the same rows in other files.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from core import __version__
from core.errors import DataError, UsageError
from core.executors import Executor, LocalExecutor, Tell, Unit
from core.format import written_aside
from core.work import claim, locked, remove, save_text, work_of
from training.catalogue import read_catalogue
from training.ingest.buckets import N_SLOTS, Split, merge_bucket, n_buckets, write_events
from training.ingest.events import NO_TIME, Events, clean, times
from training.ingest.logs import Layout, OnBytes, find_files, layout_of, read_raw
from training.ingest.options import IngestOptions, parse_time, time_as_text
from training.ingest.output import Log, write_clicks

OnProgress = Callable[[str, int, int], None]  # stage, done, in all (bytes where files are read, else steps)
REJECTS = ("file", "row", "reason", "raw")


def ingest(
    events: Sequence[Path],
    ads: Path,
    out: Path,
    options: IngestOptions | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
    resume: bool = False,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Make the data set `out`, which must not exist, and return its statistics."""
    options, out, work = options or IngestOptions(), Path(out), work_of(Path(out))
    if out.exists() and not (resume and work.exists()):
        raise UsageError(f"{out} exists; remove it or choose another name")
    files = find_files(events)
    layout = layout_of(files)
    if options.since is not None and "time" not in layout.columns:
        raise UsageError("since needs a log with a column time; this one has none")
    catalogue = read_catalogue(ads)
    work.mkdir(parents=True, exist_ok=True)
    with locked(work):
        claim(work, _job(files, ads, options), resume)
        if not out.exists():  # else the run was killed between its last two steps
            try:
                told = on_progress or (lambda stage, done, total: None)
                where = executor or LocalExecutor(threads)
                _Run(files, layout, catalogue, options, work, out, where, told).run()
            except DataError:
                remove(work)  # going on would find the same
                raise
        remove(work)
    stats: dict[str, Any] = json.loads((out / "stats.json").read_text(encoding="utf-8"))
    return stats


def _job(files: Sequence[Path], ads: Path, options: IngestOptions) -> str:
    inputs = [[str(path.resolve()), path.stat().st_size, _hash(path)] for path in (*files, Path(ads))]
    return json.dumps({"xreg": __version__, "options": options.as_json(), "inputs": inputs}, indent=1)


def _hash(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


class How(NamedTuple):
    """How files of a log are cleaned."""

    layout: Layout
    split: Split
    positions: int
    rejects_written: int


def clean_unit(tell: Tell, directory: Path, file: Path, catalogue: Path, how: How) -> None:
    """One file of the log → events by bucket, rejects and counts, in a directory that appears when it is whole."""
    ids = pq.read_table(catalogue, columns=["ad_id"]).column("ad_id").combine_chunks().cast(pa.binary())
    n_rows, rejected = 0, Counter[str]()
    with written_aside(directory) as aside:
        with (aside / "rejects.csv").open("w", encoding="utf-8", newline="") as rejects:
            writer = csv.writer(rejects, lineterminator="\n")

            def cleaned() -> Iterator[Events]:
                nonlocal n_rows
                for raw in read_raw(file, how.layout.columns, lambda read: tell(read, 0)):
                    good, bad = clean(raw, how.layout, ids, how.positions)
                    room = how.rejects_written - rejected.total()
                    writer.writerows((file.name, *told) for told in bad.first(max(room, 0)))
                    n_rows += len(raw.rows) + len(raw.malformed)
                    rejected.update(bad.counted())
                    yield good

            try:
                write_events(aside / "events.arrow", cleaned(), how.split, len(ids))
            except pa.ArrowException as error:
                raise DataError(f"{file}: a column's values cannot be read ({error})") from error
        (aside / "counts.json").write_text(json.dumps({"rows": n_rows, "rejected": rejected}))


def span_unit(tell: Tell, out: Path, file: Path) -> None:
    """The first and last time of one file."""
    save_text(out, json.dumps(time_span(file, lambda read: tell(read, 0))))


def merge_unit(tell: Tell, directory: Path, *given: Any) -> None:
    """A bucket: `given` are the events of all files, then the bucket's slots and the number of ads."""
    *events, slots, n_ads = given
    with written_aside(directory) as aside:
        merge_bucket(events, slots, n_ads, aside)
    tell(1, 0)


def time_span(file: Path, on_bytes: OnBytes) -> tuple[int, int] | None:
    """First and last time of a file, in microseconds; None where it has none."""
    spans = list[int]()
    for raw in read_raw(file, ["time"], on_bytes):
        found = times(raw.columns["time"])
        found = found[found != NO_TIME]
        if len(found):
            spans += [int(found.min()), int(found.max())]
    return (min(spans), max(spans)) if spans else None


@dataclass
class _Run:
    """The job's steps, each leaving files that a later run need not make again."""

    files: list[Path]
    layout: Layout
    ads: pa.Table
    options: IngestOptions
    work: Path
    out: Path
    executor: Executor
    on_progress: OnProgress

    def run(self) -> None:
        self._write_catalogue()
        split = self._split()
        units = self._clean(split)
        log = self._check(units, split)
        buckets = self._merge(units, n_buckets(log.rows))
        with written_aside(self.out) as aside:
            self._write_rejects(aside / "rejects.csv", units)
            write_clicks(aside, self.ads, buckets, log, self.options, self.on_progress)

    def _write_catalogue(self) -> None:
        path = self.work / "catalogue.parquet"
        if not path.exists():
            aside = path.with_suffix(".writing")
            pq.write_table(self.ads.select(["ad_id"]), aside)
            aside.replace(path)

    def _run(self, stage: str, units: list[Unit], sizes: list[int]) -> None:
        """Units that nothing follows; what one that was there already would have told is its size."""
        done, total, size_of = 0, sum(sizes), {unit.makes: size for unit, size in zip(units, sizes, strict=True)}

        def tell(more: int, where: int) -> None:
            nonlocal done
            done += more
            self.on_progress(stage, done, total)

        def after(unit: Unit, fresh: bool) -> list[Unit]:
            if not fresh:
                tell(size_of[unit.makes], 0)
            return []

        self.executor.run(units, after, tell)

    def _split(self) -> Split:
        """What is held out; by time it takes a look at the times of all files first."""
        options = self.options
        if options.since is not None:
            return Split(parse_time(options.since.encode()), 0.0)
        if "time" not in self.layout.columns or options.hold_out == 0:
            return Split(None, options.hold_out)
        spans = [self.work / f"span{i:05}.json" for i in range(len(self.files))]
        units = [Unit(span_unit, path, (file,)) for file, path in zip(self.files, spans, strict=True)]
        self._run("time span", units, self._sizes())
        found = [pair for pair in (json.loads(path.read_text()) for path in spans) if pair is not None]
        if not found:
            raise DataError(f"{self.files[0]}: no row has a time; ISO 8601 or Unix seconds are read")
        first, last = min(pair[0] for pair in found), max(pair[1] for pair in found)
        return Split(last - round((last - first) * options.hold_out), 0.0)

    def _sizes(self) -> list[int]:
        return [file.stat().st_size for file in self.files]

    def _clean(self, split: Split) -> list[Path]:
        paths = [self.work / f"unit{i:05}" for i in range(len(self.files))]
        how = How(self.layout, split, self.options.positions, self.options.rejects_written)
        catalogue = self.work / "catalogue.parquet"
        units = [
            Unit(clean_unit, path, (file, catalogue), args=(how,)) for file, path in zip(self.files, paths, strict=True)
        ]
        self._run("reading", units, self._sizes())
        return paths

    def _check(self, units: list[Path], split: Split) -> Log:
        """What the units counted; refused where too much of it is unusable."""
        n_rows, rejected = 0, Counter[str]()
        for path in units:
            counts = json.loads((path / "counts.json").read_text())
            n_rows += counts["rows"]
            rejected.update(counts["rejected"])
        if n_rows == 0:
            raise DataError(f"{self.files[0]}: the log holds no rows")
        if rejected.total() > self.options.most_rejected * n_rows:
            told = self.out.with_name(f"{self.out.name}.rejects.csv")
            self._write_rejects(told, units)
            reasons = ", ".join(f"{reason} ({n:,})" for reason, n in rejected.most_common(3))
            raise DataError(
                f"{rejected.total():,} of {n_rows:,} rows cannot be used, {rejected.total() / n_rows:.1%}; at most "
                f"{self.options.most_rejected:.1%} may be: {reasons}; see {told}"
            )
        since = None if split.since is None else time_as_text(split.since)
        return Log(self.layout.form, "position" in self.layout.columns, n_rows, dict(rejected), since)

    def _merge(self, units: list[Path], count: int) -> list[Path]:
        paths, events = [self.work / f"bucket{i:02}" for i in range(count)], tuple(u / "events.arrow" for u in units)
        slots, n_ads = (
            [range(i * N_SLOTS // count, (i + 1) * N_SLOTS // count) for i in range(count)],
            self.ads.num_rows,
        )
        merges = [Unit(merge_unit, path, events, args=(s, n_ads)) for path, s in zip(paths, slots, strict=True)]
        self._run("merging", merges, [1] * count)
        return paths

    def _write_rejects(self, path: Path, units: list[Path]) -> None:
        """The units' rejects one after the other, as many as may be."""
        room = self.options.rejects_written
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(REJECTS)
            for unit in units:
                with (unit / "rejects.csv").open(encoding="utf-8", newline="") as source:
                    for row in csv.reader(source):
                        if room == 0:
                            return
                        writer.writerow(row)
                        room -= 1
