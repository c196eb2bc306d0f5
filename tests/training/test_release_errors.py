"""Nights on which the machine does not play along: one line, an exit code, and the served release untouched."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.releases import current, listing
from core.served import Served
from tests.training.market import digest_of
from training.release.staging import served_release

LIMIT = 40_000  # bytes of a file: less than the largest of a model


def refresh(
    data: Path, releases: Path, before: tuple[str, ...] = (), limited: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "training.cli", "refresh", "--data", data, "--releases", releases]
    return subprocess.run(
        [*map(str, command), "--trees", "2", "--max-leaf", "20"],
        capture_output=True, text=True, check=False, preexec_fn=limited,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], message: str, code: int = 1) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert message in line


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


def test_files_that_cannot_grow_stop_the_refresh_and_it_goes_on_when_they_can(market: Path, releases: Path) -> None:
    old, before = current(releases), digest_of(served_release(releases))
    refused(refresh(market / "clicks", releases, limited=limit_files), "File too large")
    assert (current(releases), digest_of(served_release(releases))) == (old, before)
    assert (releases / ".refresh" / "begun.json").exists()
    done = refresh(market / "clicks", releases)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == current(releases) != old


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with hardly more room than one release takes."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_stops_the_refresh_and_it_goes_on_when_there_is_room(
    market: Path, night: Path, small_disk: Path
) -> None:
    releases = Path(shutil.copytree(night, small_disk / "releases"))
    old = current(releases)
    for size in ("2400k", "3m"):
        subprocess.run(["mount", "-o", f"remount,size={size}", str(small_disk)], check=True)
        refused(refresh(market / "clicks", releases), "No space left on device")
        assert current(releases) == old
        Served.open(served_release(releases))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    done = refresh(market / "clicks", releases)
    assert done.returncode == 0, done.stderr
    assert listing(releases) == [old, done.stdout.strip()]
    Served.open(served_release(releases))


def test_a_read_only_release_directory_is_said_and_left_alone(market: Path, releases: Path) -> None:
    before: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root may write anywhere, unless it gives that up
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not here: root cannot be kept from writing")
        before = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
    old = digest_of(releases)
    releases.chmod(0o555)
    refused(refresh(market / "clicks", releases, before), "Permission denied")
    releases.chmod(0o755)
    assert digest_of(releases) == old


def test_a_release_directory_that_is_a_file_is_said(market: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(refresh(market / "clicks", tmp_path / "file"), "file")
    refused(refresh(market / "clicks", tmp_path / "file" / "below"), "Not a directory")
    assert (tmp_path / "file").read_text() == "mine"
