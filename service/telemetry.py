"""What is told to those who watch: metrics for Prometheus, and one JSON line per event.

What an answer holds is noted as plain numbers on the hot path and added up once a second, or by hundreds: an addition
for many costs what it would cost for one, and no answer is kept until then. A query's text is personal data: it is
logged as a hash, unless the settings say otherwise.
"""

from __future__ import annotations

import logging
import resource
import sys
import traceback
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO, get_args

import numpy as np
import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from xxhash import xxh3_128_hexdigest

from core.merge import SOURCES
from core.served import Found, Reason, Took
from service.counts import Counts, Everything, Family, gauge, one_label, two_labels

ROUTES = (
    "/predict", "/predict/batch", "/explain", "/labelwise", "/jobs", "/jobs/{job}", "/table/{query}", "/releases",
    "/admin/reload", "/admin/rollback", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready",
    "/v2/models/xreg", "/metrics", "/openapi.json", "/docs", "/", "other",
)  # fmt: skip
_STATUSES = (*map(str, (200, 202, 400, 401, 404, 405, 408, 409, 413, 415, 422, 499, 500, 503)), "other")
STAGES = ("read", *Took._fields, "write")
_SECONDS = (
    50e-6, 75e-6, 100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 750e-6,
    1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 1.0,
)  # fmt: skip
_SCORES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
_SHARES = tuple(round(0.1 * i, 1) for i in range(11))
_RELEASED, _TABLED = "released_at", "tabled_at"  # times of this worker's release; shown as ages

FAMILIES = (
    Family("xreg_request_seconds", "Time to answer.", "histogram", ("route", "status"),
           two_labels(ROUTES, _STATUSES), _SECONDS, always=False),
    Family("xreg_stage_seconds", "Time that the parts of an answer take.", "histogram", ("stage",),
           one_label(*STAGES), _SECONDS),
    Family("xreg_loop_lag_seconds", "How late the event loop is, looked at once a second.", "histogram",
           buckets=_SECONDS),
    Family("xreg_in_flight", "Requests being worked on.", "gauge"),
    Family("xreg_concurrency_limit", "Requests that may be worked on at once.", "gauge"),
    Family("xreg_shed", "Requests refused under pressure.", "counter", ("reason",),
           one_label("concurrency", "offload")),
    Family("xreg_degraded", "Answers whose beam was narrowed.", "counter"),
    Family("xreg_answers", "Ads answered, by where they come from.", "counter", ("source",), one_label(*SOURCES)),
    Family("xreg_empty_answers", "Answers without ads.", "counter", ("reason",), one_label(*get_args(Reason))),
    Family("xreg_words", "Words of queries, by whether the model knows them.", "counter", ("known",),
           one_label("true", "false")),
    Family("xreg_score", "Click probabilities that were answered.", "histogram", buckets=_SCORES),
    Family("xreg_cache", "Answers of /predict, by whether they were given before.", "counter", ("result",),
           one_label("hit", "miss")),
    Family("xreg_reloads", "Releases opened or refused.", "counter", ("result",), one_label("loaded", "refused")),
    Family("xreg_shadow", "Requests that were to be answered by the shadow too.", "counter", ("result",),
           one_label("compared", "failed", "dropped")),
    Family("xreg_shadow_overlap", "Share of the ads that the shadow answers too.", "histogram", buckets=_SHARES),
    Family("xreg_resident_bytes", "Memory of the workers.", "gauge"),
    Family("xreg_cpu_seconds", "Processor time of the workers.", "counter"),
    Family(_RELEASED, "", "gauge"),
    Family(_TABLED, "", "gauge"),
)  # fmt: skip
_BY_HUNDREDS = 512


class _Noted:
    """What answers held that are not yet added up."""

    def __init__(self) -> None:
        self.scores, self.sources = array("f"), array("B")  # of the ads
        self.totals, self.stages = array("d"), array("d")  # seconds, of /predict
        self.reasons = list[Reason]()
        self.n_words = self.n_known = self.n_cached = self.n_degraded = 0

    def add(self, found: Found) -> None:
        self.scores.frombytes(found.merged.scores.tobytes())
        self.sources.frombytes(found.merged.sources.tobytes())
        self.n_words += found.n_words
        self.n_known += found.n_known
        if found.reason is not None:
            self.reasons.append(found.reason)


class Telemetry:
    """The metrics of one worker, those of all, and the log."""

    def __init__(
        self, log_queries: bool = False, out: TextIO | None = None, directory: Path | None = None, limit: int = 0
    ) -> None:
        self._log_queries, self._out = log_queries, out
        self.counts = Counts(FAMILIES, directory)
        self.counts.set("xreg_concurrency_limit", limit)
        self._noted, self._n_refused = _Noted(), 0
        self._cpu = 0.0
        self.in_flight: Callable[[], int] = lambda: 0
        self.registry = CollectorRegistry(auto_describe=False)
        self._sources: list[Callable[[], Iterable[Metric]]] = [self._counted]
        self.registry.register(Everything(lambda: (metric for source in self._sources for metric in source())))

    def add_source(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Metrics that are read when somebody looks."""
        self._sources.append(source)

    def observe(self, route: str, status: int, seconds: float) -> None:
        self.counts.observe("xreg_request_seconds", [seconds], route if route in ROUTES else "other", str(status))

    def note(self, found: Found, degraded: bool, total: float, around: tuple[float, float] | None) -> None:
        """An answer of /predict; seconds in all, and of reading and writing. None: it was given before."""
        noted = self._noted
        noted.add(found)
        noted.totals.append(total)
        noted.n_degraded += degraded
        if around is None:
            noted.n_cached += 1
        elif found.took is not None:
            noted.stages.extend((around[0], *found.took, around[1]))
        if len(noted.totals) >= _BY_HUNDREDS:
            self._add_up()

    def note_refused(self) -> None:
        """A request for /predict that was refused as soon as it was read."""
        self._n_refused += 1

    def tick(self) -> None:
        """Once a second: what was noted, and what the process uses."""
        self._add_up()
        self.counts.set("xreg_in_flight", self.in_flight())
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used.ru_utime + used.ru_stime
        self.counts.add("xreg_cpu_seconds", by=cpu - self._cpu)
        self._cpu = cpu
        self.counts.set("xreg_resident_bytes", _resident())

    def note_batch(self, found: list[Found], degraded: bool) -> None:
        """Answers of /predict/batch."""
        for one in found:
            self._noted.add(one)
        self._noted.n_degraded += len(found) * degraded

    def _add_up(self) -> None:
        if self._n_refused:
            self.counts.add("xreg_shed", "concurrency", by=self._n_refused)
            self.counts.observe("xreg_request_seconds", np.zeros(self._n_refused), "/predict", "503")
            self._n_refused = 0
        noted, self._noted = self._noted, _Noted()
        add, observe = self.counts.add, self.counts.observe
        observe("xreg_score", np.frombuffer(noted.scores, np.float32))
        sources = np.bincount(np.frombuffer(noted.sources, np.uint8), minlength=len(SOURCES))
        for source, n in zip(SOURCES, sources.tolist(), strict=True):
            add("xreg_answers", source, by=n)
        for reason in noted.reasons:
            add("xreg_empty_answers", reason)
        add("xreg_words", "true", by=noted.n_known)
        add("xreg_words", "false", by=noted.n_words - noted.n_known)
        add("xreg_degraded", by=noted.n_degraded)
        observe("xreg_request_seconds", noted.totals, "/predict", "200")
        add("xreg_cache", "hit", by=noted.n_cached)
        add("xreg_cache", "miss", by=len(noted.totals) - noted.n_cached)
        for stage, seconds in zip(STAGES, np.frombuffer(noted.stages).reshape(-1, len(STAGES)).T, strict=True):
            observe("xreg_stage_seconds", seconds, stage)

    def shed(self, reason: str) -> None:
        self.counts.add("xreg_shed", reason)

    def loaded(self, release: str, created: datetime, tabled: datetime) -> None:
        self.counts.add("xreg_reloads", "loaded")
        self.counts.name_release(release)
        self.counts.set(_RELEASED, created.timestamp())
        self.counts.set(_TABLED, tabled.timestamp())

    def refused(self) -> None:
        self.counts.add("xreg_reloads", "refused")

    def metrics(self) -> bytes:
        """What was noted is added up by `tick`, which belongs to the event loop; this takes milliseconds."""
        return generate_latest(self.registry)

    def _counted(self) -> Iterator[Metric]:
        yield from (metric for metric in self.counts.collect() if metric.name not in (_RELEASED, _TABLED))
        for name, about, since in (
            ("xreg_release_age_seconds", "Since the release was made.", _RELEASED),
            ("xreg_table_age_seconds", "Since its table was filled.", _TABLED),
        ):
            age = self.counts.oldest(since)
            yield gauge(name, about, [] if age is None else [((), age)])

    def query(self, text: str) -> str:
        """A query as it may be logged."""
        return text if self._log_queries else "xxh3:" + xxh3_128_hexdigest(text.encode())

    def failure(self, error: Exception, request: bytes, trace: str | None, release: str | None) -> None:
        """Something that should not happen, with where it did."""
        where = "".join(traceback.format_exception(error))
        self.log("failure", request=request.decode(), trace=trace, release=release, cause=repr(error), where=where)

    def log(self, event: str, **fields: Any) -> None:
        """One line; fields that are None are left out."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        said = {key: _writable(value) for key, value in fields.items() if value is not None}
        line = orjson.dumps({"time": at, "event": event, **said}).decode()
        with suppress(OSError, ValueError):  # nobody reads it any more: no reason to stop
            print(line, file=self._out or sys.stderr, flush=True)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _writable(value: Any) -> Any:
    """As it is, or as text that has UTF-8: a file's name may have none."""
    return value if isinstance(value, (bool, int, float)) else str(value).encode("utf-8", "replace").decode()


class LogLines(logging.Handler):
    """What libraries log, as lines of ours."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(logging.WARNING)
        self._telemetry = telemetry

    def emit(self, record: logging.LogRecord) -> None:
        self._telemetry.log("log", source=record.name, level=record.levelname.lower(), message=record.getMessage())
