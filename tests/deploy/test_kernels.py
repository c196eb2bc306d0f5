"""Kernels that an image carries: read from a directory that nobody may write to, by another user, nothing compiled."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

from core.jit import LOG
from core.releases import current
from core.served import Served
from tests.deploy.sealed import NOBODY, as_another, events, seal, sealed_service, unseal, variables
from tests.deploy.tools import ROOT
from tests.service.server import eventually

LEVEL = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
MODULE = """
import sys
from core.jit import kernel

@kernel()
def known(x):
    return 2 * x

@kernel()
def unknown(x):
    return 3 * x

print(sum(globals()[name](7) for name in sys.argv[1:]))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users can reach, which pytest's own are not; `writable` in it is theirs."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        path.chmod(0o755)
        (path / "writable").mkdir()
        (path / "writable").chmod(0o700)
        if os.getuid() == 0:
            os.chown(path / "writable", NOBODY, NOBODY)
        yield path
        unseal(path)


def _run(place: Path, cpu: dict[str, str], *kernels: str, sealed: bool = True) -> subprocess.CompletedProcess[str]:
    """Kernels of a module, called by another user, or by the one that builds."""
    command = [*(as_another() if sealed else []), sys.executable, str(place / "module.py"), *kernels]
    environment = variables(place / "kernels", **cpu)
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True)


def test_kernels_are_read_from_a_directory_that_cannot_be_written_and_what_is_missing_is_said(place: Path) -> None:
    (place / "module.py").write_text(MODULE)
    assert _run(place, LEVEL, "known", sealed=False).stdout == "14\n"
    seal(place / "kernels")
    before = sorted((place / "kernels").rglob("*"))
    found = _run(place, LEVEL, "known")
    assert (found.stdout, found.stderr) == ("14\n", "")
    missing = _run(place, LEVEL, "known", "unknown")
    assert missing.stdout == "35\n"
    assert re.findall(r"(\w+) was compiled: it is not in", missing.stderr) == ["unknown"]
    other_cpu = _run(place, {**LEVEL, "NUMBA_CPU_NAME": "x86-64-v2"}, "known")
    assert re.findall(r"(\w+) was compiled: it is not in", other_cpu.stderr) == ["known"]
    assert sorted((place / "kernels").rglob("*")) == before


def test_a_cache_that_is_named_and_not_there_is_said_and_one_that_nobody_named_is_not(place: Path) -> None:
    (place / "module.py").write_text(MODULE)
    place.chmod(0o555)
    assert "known was compiled" in _run(place, {}, "known").stderr
    command = [*as_another(), sys.executable, str(place / "module.py"), "known"]
    environment = variables(place) | {"XREG_KERNEL_CACHE": "", "XDG_CACHE_HOME": str(place / "home")}
    run = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("14\n", "")


def _image(kernels: Path) -> None:
    """What the build leaves in the image: the files that deploy/kernels.py loads from this user's cache, or adds to it.

    Compiling all of them afresh would take minutes."""
    cache = Path(str(numba.config.CACHE_DIR))  # type: ignore[attr-defined]  # set by core/jit.py
    environment = os.environ | {"NUMBA_DEBUG_CACHE": "1", "XREG_KERNEL_CACHE": str(cache.parent.parent)}
    command = [sys.executable, str(ROOT / "deploy" / "kernels.py")]
    run = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    used = {Path(name) for name in re.findall(r"(?:loaded from|saved to) '(.*)'", run.stdout)}
    assert used
    for file in used:
        target = kernels / file.relative_to(cache.parent.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _loaded(place: Path) -> int:
    return sum(event["event"] == "release loaded" for event in events(place / "writable"))


def test_the_service_compiles_nothing_on_a_read_only_tree(place: Path, small: Path) -> None:
    """Two workers of another user without a home; every kind of question; nothing stays in the one writable place."""
    as_another()
    _image(place / "kernels")
    shutil.copytree(small, place / "releases")
    for name in ("kernels", "releases"):
        seal(place / name)
    served = Served.open(place / "releases" / str(current(small)))
    query, row = next(iter(served.table.rows()))
    ad = served.catalogue.ids.name(int(row.ads[0]))
    with sealed_service(place / "releases", place / "kernels", place / "writable", workers="2") as http:
        eventually(lambda: _loaded(place) == 2)
        for _ in range(4):  # both workers
            for asked in (
                {"query": query},
                {"query": query, "source": "table"},
                {"query": query, "rank": "revenue", "exclude": [ad], "threshold": 0.01},
                {"query": query, "candidates": [ad]},
                {"features": {"indices": [1, 2], "values": [1, 0.5]}, "k": 100, "beam": 100},
            ):
                assert http.post("/predict", json=asked).status_code == 200
            assert http.post("/predict/batch", json={"queries": [query, "\u2603"]}).status_code == 200
            assert http.get("/explain", params={"query": query, "ad": ad}).status_code == 200
        assert http.get("/metrics").status_code == 200
    said = events(place / "writable")
    assert [event for event in said if event.get("source") == LOG] == []
    assert [event for event in said if event["event"] in ("failure", "log")] == []
    assert list((place / "writable").iterdir()) == []
