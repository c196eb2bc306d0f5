"""What is told to those who watch: metrics for Prometheus, and one JSON line per event.

A query's text is personal data: it is logged as a hash, unless the settings say otherwise. Children of labelled metrics
are looked up once and kept, since looking them up costs as much as counting.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from time import time
from typing import Any, TextIO

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from xxhash import xxh3_128_hexdigest

from core.merge import SOURCES
from core.served import Found

_BUCKETS = (
    50e-6, 75e-6, 100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 750e-6,
    1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 1.0,
)  # fmt: skip


class Telemetry:
    """The metrics of one process, and its log."""

    def __init__(self, log_queries: bool = False, out: TextIO | None = None) -> None:
        self._log_queries, self._out = log_queries, out
        self.registry = registry = CollectorRegistry()
        seconds = Histogram(
            "xreg_request_seconds", "Time to answer.", ["route", "status"], buckets=_BUCKETS, registry=registry
        )
        answers = Counter("xreg_answers", "Ads answered, by where they come from.", ["source"], registry=registry)
        empty = Counter("xreg_empty_answers", "Answers without ads.", ["reason"], registry=registry)
        words = Counter("xreg_words", "Words of queries.", ["known"], registry=registry)
        shed = Counter("xreg_shed", "Requests refused under pressure.", ["reason"], registry=registry)
        self.in_flight = Gauge("xreg_in_flight", "Requests being worked on.", registry=registry)
        self._reloads = Counter("xreg_reloads", "Releases opened or refused.", ["result"], registry=registry)
        self._release = Gauge("xreg_release_info", "The release being served.", ["release"], registry=registry)
        self._age = Gauge("xreg_release_age_seconds", "Since the release was made.", registry=registry)
        self._seconds: Callable[[str, int], Any] = cache(lambda route, status: seconds.labels(route, str(status)))
        self._answers = [answers.labels(source) for source in SOURCES]
        self._empty: Callable[[str], Any] = cache(empty.labels)
        self._shed: Callable[[str], Any] = cache(shed.labels)
        self._known, self._unknown = words.labels("true"), words.labels("false")
        for result in ("loaded", "refused"):
            self._reloads.labels(result)
        self._shed("concurrency")

    def observe(self, route: str, status: int, seconds: float) -> None:
        self._seconds(route, status).observe(seconds)

    def count(self, found: Found) -> None:
        """What an answer holds."""
        sources = found.merged.sources.tolist()
        for source in set(sources):
            self._answers[source].inc(sources.count(source))
        if found.reason:
            self._empty(found.reason).inc()
        if found.n_known:
            self._known.inc(found.n_known)
        if found.n_words > found.n_known:
            self._unknown.inc(found.n_words - found.n_known)

    def shed(self, reason: str) -> None:
        self._shed(reason).inc()

    def loaded(self, release: str, created: datetime) -> None:
        self._reloads.labels("loaded").inc()
        self._release.clear()
        self._release.labels(release).set(1)
        self._age.set_function(lambda: time() - created.timestamp())

    def refused(self) -> None:
        self._reloads.labels("refused").inc()

    def metrics(self) -> bytes:
        return generate_latest(self.registry)

    def query(self, text: str) -> str:
        """A query as it may be logged."""
        return text if self._log_queries else "xxh3:" + xxh3_128_hexdigest(text.encode())

    def failure(self, error: Exception, request: bytes, release: str | None) -> None:
        """Something that should not happen, with where it did."""
        where = "".join(traceback.format_exception(error))
        self.log("failure", request=request.decode(), release=release, cause=repr(error), where=where)

    def log(self, event: str, **fields: Any) -> None:
        """One line; fields that are None are left out."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        said = {key: _writable(value) for key, value in fields.items() if value is not None}
        line = orjson.dumps({"time": at, "event": event, **said}).decode()
        print(line, file=self._out or sys.stderr, flush=True)


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
