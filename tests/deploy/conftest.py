"""A real server, for what it exports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.server import serving
from tests.small_releases import small_releases


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small releases; no test changes them."""
    return small_releases(tmp_path_factory)


@pytest.fixture(scope="session")
def metrics(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The text of /metrics after one answer."""
    with serving(small, tmp_path_factory.mktemp("server") / "log", watch_seconds="0") as running:
        assert running.predict(query="a").status_code == 200
        yield running.http.get("/metrics").text


@pytest.fixture(scope="session")
def exported(metrics: str) -> set[str]:
    """The names that rules and dashboards may use, also of what has not happened yet."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    families = list(text_string_to_metric_families(metrics))
    assert families
    return {family.name + suffix for family in families for suffix in suffixes.get(family.type, ("",))}
