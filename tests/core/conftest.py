"""The servers of the shared table: started once, stopped at the end. A machine without redis-server fails, loudly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis_server import redis_server


def served(cluster: bool) -> Iterator[str]:
    try:
        with redis_server(cluster) as url:
            yield url
    except FileNotFoundError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def single() -> Iterator[str]:
    yield from served(cluster=False)


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    yield from served(cluster=True)


@pytest.fixture(params=["single", "cluster"])
def server(request: pytest.FixtureRequest) -> str:
    """The URL of each kind of server."""
    return str(request.getfixturevalue(request.param))
