"""The numbers that are watched, right across workers: each worker adds to a block of its own, `/metrics` adds up all.

A block is a row of float64, mapped from a file in a directory that the workers share and locked while its worker lives.
A worker that died leaves its counts behind, so that counters never fall; the one that takes its place goes on with the
same file. Gauges count only while their worker lives. Nothing here locks or waits: a count is one addition to memory.
prometheus_client writes the text; its own multi-process mode has no bulk observation, and that is what makes counting
cheap here (service/telemetry.py).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, product
from pathlib import Path
from time import time
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Block = npt.NDArray[np.float64]
Labels = tuple[str, ...]
_NAME_BYTES = 64  # a release's name, at the head of a block's file


class Family(NamedTuple):
    """A metric: what it is called, what it means, and every combination of labels that it may have.

    always   series are shown from the start, also at 0: an alert needs the 0 before the first 1
    """

    name: str
    about: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Labels = ()
    series: tuple[Labels, ...] = ((),)
    buckets: tuple[float, ...] = ()
    always: bool = True

    @property
    def width(self) -> int:
        """Numbers of one series: of a histogram a count per bucket, the count beyond them, and the sum."""
        return len(self.buckets) + 2 if self.kind == "histogram" else 1


def one_label(*values: str) -> tuple[Labels, ...]:
    return tuple((value,) for value in values)


def two_labels(first: Sequence[str], second: Sequence[str]) -> tuple[Labels, ...]:
    return tuple(product(first, second))


class Counts:
    """The numbers of this worker, and the sums of all."""

    def __init__(self, families: Sequence[Family], directory: Path | None = None) -> None:
        self._families, self._directory = {family.name: family for family in families}, directory
        self._place = dict[tuple[str, Labels], slice]()
        size = 0
        for family in families:
            for labels in family.series:
                self._place[family.name, labels] = slice(size, size + family.width)
                size += family.width
        self._size = size
        self._edges = {family.name: np.array(family.buckets) for family in families}
        self._name, self._own = _claimed(directory, size)
        for family in families:
            if family.kind == "gauge":
                for labels in family.series:
                    self._own[self._place[family.name, labels]] = 0.0
        self.name_release("")

    def series(self, name: str, *labels: str) -> Block:
        """The numbers of one series, to add to; of unknown labels those whose values are all `other`."""
        place = self._place.get((name, labels))
        if place is None:
            place = self._place[name, (*labels[:-1], "other")] if labels else self._place[name, ("other",)]
        return self._own[place]

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        self.series(name, *labels)[0] += by

    def set(self, name: str, value: float) -> None:
        self.series(name)[0] = value

    def observe(self, name: str, values: npt.ArrayLike, *labels: str) -> None:
        """Add observations to a histogram, any number at once."""
        given, numbers = np.asarray(values, np.float64), self.series(name, *labels)
        places = np.searchsorted(self._edges[name], given, side="left")  # a bucket holds what is ≤ its edge
        numbers[:-1] += np.bincount(places, minlength=len(numbers) - 1)
        numbers[-1] += given.sum()

    def name_release(self, release: str) -> None:
        """What this worker serves."""
        raw = release.encode()[:_NAME_BYTES]
        self._name[:] = np.frombuffer(raw.ljust(_NAME_BYTES, b"\0"), np.uint8)

    def blocks(self) -> Iterator[tuple[bool, str, Block]]:
        """(its worker lives, what it serves, its numbers), of every worker there is or was."""
        if self._directory is None:
            yield True, _text(self._name.tobytes()), self._own
            return
        for path in sorted(self._directory.iterdir()):
            with path.open("rb") as file:
                lives = not _locks(file, fcntl.LOCK_SH)
                data = file.read()
            if len(data) == _NAME_BYTES + 8 * self._size:
                yield lives, _text(data[:_NAME_BYTES]), np.frombuffer(data, np.float64, offset=_NAME_BYTES)

    def collect(self) -> Iterator[Metric]:
        """Everything added up, as prometheus_client wants it."""
        blocks = list(self.blocks())
        zero = np.zeros(self._size)
        every: Block = np.sum([block for _, _, block in blocks] or [zero], axis=0)
        living: Block = np.sum([block for lives, _, block in blocks if lives] or [zero], axis=0)
        for family in self._families.values():
            yield self._metric(family, living if family.kind == "gauge" else every)
        names = [name for lives, name, _ in blocks if lives]
        yield gauge("xreg_workers", "Processes that answer.", [((), len(names))])
        served = [((name,), names.count(name)) for name in sorted(set(names)) if name]
        yield gauge("xreg_release_info", "Workers that serve the release.", served, "release")

    def oldest(self, name: str) -> float | None:
        """Seconds since the earliest of the times that living workers have set; None where nobody has."""
        place = self._place[name, ()]
        times = [float(block[place][0]) for lives, _, block in self.blocks() if lives and block[place][0] > 0]
        return time() - min(times) if times else None

    def _metric(self, family: Family, numbers: Block) -> Metric:
        kinds: dict[str, Any] = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "histogram": HistogramMetricFamily,
        }
        metric: Metric = kinds[family.kind](family.name, family.about, labels=family.labels)
        for labels in family.series:
            here = numbers[self._place[family.name, labels]]
            if not (family.always or here.any()):
                continue
            if isinstance(metric, HistogramMetricFamily):
                counts = np.cumsum(here[:-1]).tolist()
                edges = [*map(floatToGoString, family.buckets), "+Inf"]
                metric.add_metric(labels, list(zip(edges, counts, strict=True)), float(here[-1]))
            elif isinstance(metric, (CounterMetricFamily, GaugeMetricFamily)):
                metric.add_metric(labels, float(here[0]))
        return metric


class Everything(Collector):
    """The counts, and metrics that are read when somebody looks."""

    def __init__(self, *sources: Any) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        for source in self._sources:
            yield from source()


def gauge(name: str, about: str, values: Iterable[tuple[Labels, float]], *labels: str) -> Metric:
    metric = GaugeMetricFamily(name, about, labels=labels)
    for given, value in values:
        metric.add_metric(given, value)
    return metric


def _claimed(directory: Path | None, size: int) -> tuple[npt.NDArray[np.uint8], Block]:
    """The block of a worker that is no more, or a new one, locked for as long as it is mapped; without a directory,
    memory of this process."""
    if directory is None:
        return np.zeros(_NAME_BYTES, np.uint8), np.zeros(size)
    for number in count():
        with os.fdopen(os.open(directory / str(number), os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            if _locks(file, fcntl.LOCK_EX):
                file.truncate(_NAME_BYTES + 8 * size)
                block = np.memmap(file, np.float64, "r+", offset=_NAME_BYTES, shape=(size,))
                return np.memmap(file, np.uint8, "r+", shape=(_NAME_BYTES,)), block
    raise AssertionError("unreachable: numbers do not end")


def _locks(file: IO[bytes], kind: int) -> bool:
    """Whether the lock could be taken; it is the operating system's, so it ends with its process."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "replace")
