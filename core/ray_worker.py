"""What a Ray worker does with a unit: find or fetch the files it reads, run it, hand over what it left.

Where all machines see the work directory, a unit reads and renames there, like a thread of the driver would. Elsewhere
a node keeps a mirror of what its units read, fetched from the object store once and mapped by all of its workers:

    <temporary directory>/xreg-<user>/<run>-<node>/<key>/<name>    a file or directory of the driver's
                                                  /.alive          locked while a worker of the run lives

A result then travels back as bytes, and the driver renames it into place. The mirror goes away with the run; of a run
whose driver was killed, with the next one on that node.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
import numpy.typing as npt
import ray

from core import __version__, compile_once
from core.errors import ClusterError, XregError

compile_once.install()

Bytes = npt.NDArray[np.uint8]
_SOURCES = Path(__file__).parent.parent
_alive: dict[Path, BinaryIO] = {}


class Sent(NamedTuple):
    """A file or directory of the driver's in the object store: each file's name ("" for a file itself) and chunks."""

    key: str
    path: Path
    files: list[tuple[str, list[Any]]]


class Asked(NamedTuple):
    """A unit on its way to a worker; `needs` and `takes` are paths that the worker sees, or what was sent."""

    do: Callable[..., None]
    makes: Path
    needs: list[Path | Sent]
    takes: list[Path | Sent]
    args: tuple[Any, ...]
    sent: bool
    run: str
    about: dict[str, str]


class Done(NamedTuple):
    """What became of a unit: how much was told, where last; its files unless they are in place; what was refused."""

    told: int
    where: int
    files: list[tuple[str, Bytes]] | None
    error: Exception | None


@lru_cache(maxsize=1)
def about() -> dict[str, str]:
    """What must be the same on all machines for units to leave the same bytes."""
    digest = hashlib.sha256()
    for source in sorted([*_SOURCES.glob("core/**/*.py"), *_SOURCES.glob("training/**/*.py")]):
        digest.update(source.read_bytes())
    name, features = numba.config.CPU_NAME, numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    cpu = name or llvm.get_host_cpu_name()
    wide = features if features is not None else llvm.get_host_cpu_features().flatten()
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "xreg": f"{__version__} ({digest.hexdigest()[:12]})",
        "numpy": np.__version__,
        "numba": numba.__version__,
        "cpu": f"{cpu} ({hashlib.sha256(wide.encode()).hexdigest()[:8]})",
    }


def difference(here: dict[str, str], there: dict[str, str]) -> str | None:
    """What differs between two machines, in words."""
    told = [f"{name} {there.get(name)} there, {value} here" for name, value in here.items() if there.get(name) != value]
    return "; ".join(told) or None


def run_unit(asked: Asked) -> Done:
    """Run a unit. What it refuses is handed back as a value: it is no fault of the worker's."""
    told, where = 0, 0

    def tell(done: int, at: int) -> None:
        nonlocal told, where
        told, where = told + done, at

    if different := difference(asked.about, about()):
        return Done(0, 0, None, ClusterError(f"the worker at {_address()} is another than the driver: {different}"))
    try:
        files = None
        if asked.sent:
            files = _run_here(asked, tell)
        else:
            _run_in_place(asked, tell)
        return Done(told, where, files, None)
    except (XregError, OSError) as error:
        return Done(told, where, None, error)


def _address() -> str:
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]  # Ray's


def _run_in_place(asked: Asked, tell: Callable[[int, int], None]) -> None:
    """Write beside the result and rename. Names are the worker's own: a node taken for dead may still be writing."""
    makes = asked.makes
    mine = makes.with_name(f".{makes.name}.{uuid.uuid4().hex}")
    mine.mkdir()
    try:
        asked.do(tell, mine / makes.name, *asked.needs, *asked.takes, *asked.args)
        rename(mine / makes.name, makes)
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def rename(source: Path, target: Path) -> None:
    """Where the same result is there already, it stays."""
    try:
        source.replace(target)
    except OSError:
        if not target.is_dir():
            raise


def _run_here(asked: Asked, tell: Callable[[int, int], None]) -> list[tuple[str, Bytes]]:
    mirror = _mirror(asked.run)
    needs = [_fetched(source, mirror) for source in asked.needs]
    with tempfile.TemporaryDirectory(dir=mirror, prefix="unit-") as name:
        own = Path(name)
        takes = [_fetched(source, own) for source in asked.takes]
        try:
            asked.do(tell, own / asked.makes.name, *needs, *takes, *asked.args)
        except XregError as error:
            raise _in_words_of_the_driver(error, asked, [*needs, *takes]) from error
        return list(_files_of(own / asked.makes.name))


def _in_words_of_the_driver(error: XregError, asked: Asked, here: list[Path]) -> XregError:
    """The same error, with the names that its reader knows."""
    text = str(error)
    for source, local in zip([*asked.needs, *asked.takes], here, strict=True):
        text = text.replace(str(local), str(source.path if isinstance(source, Sent) else source))
    return type(error)(text)


def _files_of(path: Path) -> Iterator[tuple[str, Bytes]]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file():
                yield file.relative_to(path).as_posix(), np.fromfile(file, np.uint8)
    else:
        yield "", np.fromfile(path, np.uint8)


def _mirror(run: str) -> Path:
    """This node's directory for a run; those that runs left behind are removed."""
    base = _base()
    mirror = base / f"{run}-{ray.get_runtime_context().get_node_id()[:12]}"
    if mirror not in _alive:
        with _locked(base / ".lock"):
            mirror.mkdir(mode=0o700, exist_ok=True)
            _alive[mirror] = (mirror / ".alive").open("ab")
            fcntl.flock(_alive[mirror], fcntl.LOCK_SH)
            _sweep(base)
    return mirror


def _base() -> Path:
    base = Path(tempfile.gettempdir()) / f"xreg-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise ClusterError(f"{base} belongs to another user")
    return base


def _sweep(base: Path) -> None:
    for alive in base.glob("*/.alive"):
        with alive.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody is at home
                continue
            shutil.rmtree(alive.parent, ignore_errors=True)


def forget(run: str) -> None:
    """Remove this node's mirror of a run."""
    for mirror in _base().glob(f"{run}-{ray.get_runtime_context().get_node_id()[:12]}"):
        shutil.rmtree(mirror, ignore_errors=True)


def _fetched(source: Path | Sent, directory: Path) -> Path:
    """The file or directory, here; of workers that need it at once, one fetches it."""
    if isinstance(source, Path):
        return source
    target = directory / source.key
    if not target.exists():
        with _locked(directory / f".{source.key}.lock"):
            if not target.exists():
                aside = directory / f".{source.key}.fetching"
                shutil.rmtree(aside, ignore_errors=True)
                for name, chunks in source.files:
                    path = aside / source.path.name / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _write(path, chunks)
                aside.rename(target)
    return target / source.path.name


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(path: Path, chunks: list[Any]) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(ray.get(chunk).data)
