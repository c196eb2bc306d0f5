"""A market's releases, one server for all tests that do not change what it serves, and the application in-process."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.releases import current
from core.served import Served
from service.app import Service, create_app
from service.settings import Settings
from service.telemetry import Telemetry
from tests.service.server import Running, serving
from tests.small_releases import small_releases


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_releases(tmp_path_factory)


@pytest.fixture(scope="session")
def served(releases: Path) -> Served:
    """The release of the shared server, opened here: what it must answer."""
    return Served.open(releases / str(current(releases)))


@pytest.fixture(scope="session")
def server(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(releases, tmp_path_factory.mktemp("server") / "log", watch_seconds="0") as running:
        yield running


@pytest.fixture(scope="session")
def app(releases: Path) -> Service:
    """With a release, without a server."""
    service = create_app(Settings(releases=releases, max_concurrency=2), Telemetry(out=io.StringIO()))
    assert asyncio.run(service.holder.reload()).result == "loaded"
    return service
