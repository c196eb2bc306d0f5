"""`xreg serve --releases s3://…`: served from a mirror that follows the store, and goes on without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import StorageError
from core.remote_releases import push
from core.storage import Store, uri_of
from tests.s3_server import KEYS, address, s3_server
from tests.service.server import copied, eventually, serving


def test_what_a_store_publishes_is_served_and_goes_on_when_the_store_is_away(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**KEYS, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XREG_KERNEL_CACHE", os.environ.get("XREG_KERNEL_CACHE") or str(Path.home() / ".cache"))
    names = copied(releases, tmp_path / "made")
    with s3_server() as endpoint:
        place = address(endpoint, "releases")
        push(Store(place), tmp_path / "made", names[0], None)
        # A pathlib path would eat a slash of the address, as the service's own setting does.
        with serving(place, tmp_path / "log", watch_seconds="0.1") as running:  # type: ignore[arg-type]
            assert running.predict(query="a").json()["release"] == names[0]
            push(Store(place), tmp_path / "made", names[1], names[0])
            eventually(lambda: running.predict(query="a").json()["release"] == names[1])
            os.kill(_server_of(endpoint), signal.SIGKILL)
            eventually(lambda: "cannot be read" in (tmp_path / "log").read_text())
            assert running.predict(query="a").json()["release"] == names[1]


def _server_of(endpoint: str) -> int:
    """The process that was started with this port."""
    port = endpoint.rpartition(":")[2].encode()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = line.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"moto.server" in words and port in words:
            return int(line.parent.name)
    raise AssertionError("no server")


def test_a_store_that_is_not_there_ends_the_start_with_its_cause(tmp_path: Path) -> None:
    place = address("127.0.0.1:1", "releases")
    env = {**os.environ, **KEYS, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "service.command", "--releases", place, "--port", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, env=env)
    assert ran.returncode == StorageError.exit_code
    assert "error: s3://market/releases cannot be read: " in ran.stderr


@pytest.mark.parametrize("uri", ["s3://bucket/a?region=x", "gs://b/c", "file:///mnt/x"])
def test_an_address_is_known_though_a_path_was_made_of_it(uri: str) -> None:
    assert uri_of(Path(uri)) == uri
    assert uri_of(Path("/mnt/s3/releases")) is None
    assert uri_of(Path("releases")) is None
