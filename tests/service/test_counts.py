"""Counts are right across workers: they add up, never fall when a worker dies, and gauges go with it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from service.counts import Counts, Everything, Family, one_label
from tests.service.server import Running, copied, eventually, serving

FAMILIES = (
    Family("asked", "Asked.", "counter", ("kind",), one_label("a", "b", "other")),
    Family("now", "Now.", "gauge"),
    Family("took", "Took.", "histogram", buckets=(0.1, 1.0, 10.0)),
)


def shown(counts: Counts) -> list[str]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Everything(counts.collect))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


@given(st.lists(st.floats(0, 20) | st.sampled_from([0.1, 1.0, 10.0]), max_size=50))
def test_many_observations_at_once_are_those_of_prometheus_one_by_one(values: list[float]) -> None:
    counts = Counts(FAMILIES)
    counts.observe("took", values[:10])
    counts.observe("took", np.array(values[10:], np.float32).astype(np.float64))
    registry = CollectorRegistry()
    theirs = Histogram("took", "Took.", buckets=(0.1, 1.0, 10.0), registry=registry)
    for value in [*values[:10], *(float(np.float32(value)) for value in values[10:])]:
        theirs.observe(value)
    expected = [
        line for line in generate_latest(registry).decode().splitlines() if line.startswith(("took_b", "took_co"))
    ]
    assert [line for line in shown(counts) if line.startswith(("took_b", "took_co"))] == expected


def test_workers_add_up_and_a_dead_one_leaves_its_counts_but_not_its_gauges(tmp_path: Path) -> None:
    first, second = Counts(FAMILIES, tmp_path), Counts(FAMILIES, tmp_path)
    for counts, n in ((first, 2), (second, 5)):
        counts.add("asked", "a", by=n)
        counts.set("now", n)
        counts.name_release(f"r{n}")
    second.add("asked", "never heard of")
    for counts in (first, second):
        assert {'asked_total{kind="a"} 7.0', 'asked_total{kind="other"} 1.0', "now 7.0"} <= set(shown(counts))
        assert {"xreg_workers 2.0", 'xreg_release_info{release="r2"} 1.0'} <= set(shown(counts))
    del first, counts  # with its last mapping goes its lock, as with the death of its process
    assert {'asked_total{kind="a"} 7.0', "now 5.0", "xreg_workers 1.0"} <= set(shown(second))
    third = Counts(FAMILIES, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # it goes on with the file of the first
    third.add("asked", "a")
    assert {'asked_total{kind="a"} 8.0', "now 5.0", "xreg_workers 2.0"} <= set(shown(third))


@pytest.fixture
def pair(releases: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "releases"
    copied(releases, directory)
    return directory


def ask(running: Running, n: int) -> Counter[int]:
    """Over a connection each, so that both workers get some."""
    told = Counter[int]()
    for _ in range(n):
        with suppress(httpx.TransportError):
            told[httpx.post(f"{running.http.base_url}/predict", json={"query": "a"}).status_code] += 1
    return told


def test_metrics_count_all_workers_also_after_one_has_died(pair: Path, tmp_path: Path) -> None:
    asked = 'xreg_request_seconds_count{route="/predict",status="200"}'
    with serving(pair, tmp_path / "log", workers="2", watch_seconds="0.05") as running:
        eventually(lambda: running.metric("xreg_workers") == 2)
        total = ask(running, 40)[200]
        assert total == 40
        eventually(lambda: running.metric(asked) == 40)
        workers = {int(event["pid"]) for event in running.events() if event["event"] == "start"}
        assert len(workers) == 2
        os.kill(min(workers), signal.SIGKILL)
        eventually(lambda: len([e for e in running.events() if e["event"] == "start"]) == 3)
        with suppress(httpx.TransportError):
            running.http.get("/health/live")
        eventually(lambda: running.metric("xreg_workers") == 2)
        assert running.metric(asked) >= 40  # nothing that was counted is gone
        told = ask(running, 40)
        assert told == {200: 40}
        eventually(lambda: running.metric(asked) == 80)
        release = running.predict(query="a").json()["release"]
        assert running.metric(f'xreg_release_info{{release="{release}"}}') == 2
    assert running.process.returncode == 0


def test_workers_end_with_the_process_that_started_them(pair: Path, tmp_path: Path) -> None:
    with serving(pair, tmp_path / "log", workers="2") as running:
        workers = [int(event["pid"]) for event in running.events() if event["event"] == "start"]
        running.process.kill()
        running.process.wait(30)
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
