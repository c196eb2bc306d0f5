"""Units on a Ray cluster: Ray decides where, moves the bytes and runs anew what died; here stands only what is ours.

A unit is a Ray task of one CPU. The driver submits what is ready, takes results as they come, and asks what follows:
the same question that the threads of `LocalExecutor` ask, so the same units. Where every machine sees the work
directory, units read and write there; otherwise the driver puts what they read into the object store, once for all, and
renames what comes back into place (core/ray_worker.py). Either way a finished unit is a file in the work directory,
and a driver that was killed goes on from those.

Before the first unit every machine is asked what it is: another version of xreg, NumPy or Numba, or another CPU, would
leave other bytes.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from core import __version__
from core.errors import ClusterError, UsageError
from core.executors import After, Tell, Unit, discard
from core.format import sync, written_aside

if TYPE_CHECKING:
    from core.ray_worker import Done, Sent

Files = Literal["auto", "shared", "sent"]
RETRIES = 5  # of a unit whose worker or node died; a unit that kills its worker must end some time
_CHUNK = 1 << 24  # of a file that is sent: 64 MB take a fifth more CPU to move
_PATIENCE = 5.0  # seconds until an address that does not answer is given up
_INSTALL = f"install xreg {__version__} with the extra `ray` on every machine of the cluster"
_STARTING = 60.0  # seconds that a node may take to start a worker


class RayExecutor:
    """Units on the workers of a Ray cluster, from `with` to its end.

    address  of a running cluster: host:port, or ray://host:port; None: RAY_ADDRESS, or the cluster of this machine
    files    "shared": all machines see the work directory; "sent": they do not; "auto": find out
    """

    remote = True

    def __init__(self, address: str | None = None, files: Files = "auto") -> None:
        self.address, self.files, self.run_id = address, files, uuid.uuid4().hex[:12]
        self._put: dict[Path, Sent] = {}
        self._using = Counter[Path]()
        self._mine = False

    def __enter__(self) -> RayExecutor:
        self._ray = _import_ray()
        if not self._ray.is_initialized():
            connect(self._ray, self.address)
            self._mine = True
        try:
            self._check_nodes()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._put.clear()
        try:
            if self.files != "shared" and kind is None:
                self._on_nodes(_forgetting(self.run_id), _PATIENCE)
        except ClusterError:  # what is left there goes with the next run
            pass
        finally:
            if self._mine:
                self._ray.shutdown()

    def _check_nodes(self) -> None:
        """Refuse machines that would leave other bytes, or none."""
        from core.ray_worker import about, difference

        self._about = about()
        found = self._on_nodes(_asking(), _STARTING)
        if not found:
            raise ClusterError("the Ray cluster has no CPUs to run units on")
        for address, there in found:
            if there is None:
                raise ClusterError(f"the Ray node at {address} did not start a worker within {_STARTING:.0f} s")
            if "missing" in there:
                raise ClusterError(f"the worker at {address} cannot import xreg ({there['missing']}): {_INSTALL}")
            if different := difference(self._about, there):
                raise ClusterError(
                    f"the worker at {address} is another than the driver: {different}; install the same versions "
                    "everywhere, and where CPUs differ set NUMBA_CPU_NAME and NUMBA_CPU_FEATURES to the same"
                )

    def _on_nodes(self, do: Callable[[], Any], patience: float) -> list[tuple[str, Any]]:
        """Address and what a function gives, of every node that has CPUs; None where that takes too long. A node that
        goes away meanwhile is left out."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        task, refs = self._ray.remote(num_cpus=0, max_retries=1)(do), dict[Any, str]()
        for node in nodes:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            refs[task.options(scheduling_strategy=here).remote()] = node["NodeManagerAddress"]
        done, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=patience) if refs else ([], [])
        found, gone = list[tuple[str, Any]](), self._ray.exceptions
        for ref, address in refs.items():
            try:
                found.append((address, self._ray.get(ref) if ref in done else None))
            except (gone.TaskUnschedulableError, gone.WorkerCrashedError, gone.NodeDiedError):
                continue
            except gone.RayError as error:
                raise ClusterError(f"the Ray node at {address} does not run tasks: {_first_line(error)}") from error
        return found

    def run(self, units: Iterable[Unit], after: After, tell: Tell) -> None:
        waiting = Waiting(units)
        sent = self.files == "sent" or (self.files == "auto" and not self._see_all(list(waiting)))
        task = self._ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_runner())
        running, limit = dict[Any, Unit](), _Limit(self._ray)
        try:
            while waiting or running:
                while waiting and len(running) < limit.now():
                    unit = waiting.pop()
                    if unit.makes.exists():
                        waiting.add(after(unit, False))
                        discard(unit)
                    else:
                        running[task.remote(self._asked(unit, sent))] = unit
                for ref in self._ray.wait(list(running), num_returns=1)[0] if running else []:
                    unit = running.pop(ref)
                    self._finish(unit, ref, tell)
                    del ref
                    waiting.add(after(unit, True))
                    discard(unit)
        except BaseException:
            for ref in running:
                self._ray.cancel(ref, force=True)
            raise

    def _see_all(self, units: list[Unit]) -> bool:
        """Whether every machine sees the work directory and what the first units read."""
        if not units:
            return True
        token = units[0].makes.with_name(f".{self.run_id}")
        token.write_text(self.run_id)
        try:
            paths = {token, *(path for unit in units for path in unit.needs)}
            seen = self._on_nodes(_looking([str(path.absolute()) for path in paths]), _STARTING)
            return all(there for _, there in seen)
        finally:
            token.unlink()

    def _asked(self, unit: Unit, sent: bool) -> Any:
        from core.ray_worker import Asked

        given = self._sent if sent else Path.absolute
        needs, takes = [given(path) for path in unit.needs], [given(path) for path in unit.takes]
        return Asked(unit.do, unit.makes.absolute(), needs, takes, unit.args, sent, self.run_id, self._about)

    def _sent(self, path: Path) -> Sent:
        """A file or directory in the object store, put there when the first unit needs it."""
        from core.ray_worker import Sent

        self._using[path] += 1
        if path not in self._put:
            status = path.stat()
            told = f"{path.absolute()} {status.st_ino} {status.st_mtime_ns} {status.st_size}"
            files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
            names = [file.relative_to(path).as_posix() if path.is_dir() else "" for file in files]
            chunks = [list(self._chunks(file)) for file in files]
            key = hashlib.sha256(told.encode()).hexdigest()[:16]
            self._put[path] = Sent(key, path, list(zip(names, chunks, strict=True)))
        return self._put[path]

    def _chunks(self, file: Path) -> Iterable[Any]:
        """The store copies from the mapped file: nothing is read into memory of ours first."""
        mapped = np.memmap(file, np.uint8, "r").view(np.ndarray) if file.stat().st_size else np.empty(0, np.uint8)
        for first in range(0, len(mapped), _CHUNK):
            yield self._ray.put(mapped[first : first + _CHUNK])

    def _finish(self, unit: Unit, ref: Any, tell: Tell) -> None:
        """Take a unit's result, or say why there is none."""
        exceptions = self._ray.exceptions
        try:
            done: Done = self._ray.get(ref)
        except exceptions.RayTaskError as error:
            if "No module named 'core" in str(error):  # a machine that came later
                raise ClusterError(f"a worker cannot import xreg (No module named 'core'): {_INSTALL}") from error
            raise ClusterError(f"{unit.makes.name}: {_first_line(error.cause)}") from error
        except exceptions.RayError as error:
            raise ClusterError(
                f"{unit.makes.name}: given up after {RETRIES + 1} attempts; the last worker was lost: "
                f"{_first_line(error)}"
            ) from error
        if done.error is not None:
            raise done.error
        if done.files is not None:
            _store(unit.makes, done.files)
        for path in {*unit.needs, *unit.takes} & self._put.keys():
            self._using[path] -= 1
            if not self._using[path]:
                del self._put[path]
        tell(done.told, done.where)


class Waiting:
    """Units that are ready, by rank; of the same rank, those that came first."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._heap, self._number = list[tuple[int, int, Unit]](), count()
        self.add(units)

    def add(self, units: Iterable[Unit]) -> None:
        for unit in units:
            heappush(self._heap, (unit.rank, next(self._number), unit))

    def pop(self) -> Unit:
        return heappop(self._heap)[2]

    def __iter__(self) -> Iterator[Unit]:
        return (unit for _, _, unit in self._heap)

    def __len__(self) -> int:
        return len(self._heap)


class _Limit:
    """How many units are with Ray at a time: enough for all CPUs, and few enough that what they read is not all in the
    object store at once. Nodes come and go: it is asked again now and then."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._until, self._units = ray, 0.0, 8

    def now(self) -> int:
        if time.monotonic() > self._until:
            self._units = 8 + 2 * int(self._ray.cluster_resources().get("CPU", 0))
            self._until = time.monotonic() + 5
        return self._units


def _store(makes: Path, files: list[tuple[str, Any]]) -> None:
    """Write what a unit left elsewhere aside and rename it into place."""
    if files and files[0][0] == "":
        aside = makes.with_name(f".{makes.name}.writing")
        files[0][1].tofile(aside)
        sync(aside)
        aside.replace(makes)
        return
    with written_aside(makes) as directory:
        for name, data in files:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            data.tofile(directory / name)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UsageError("the executor `ray` needs the package Ray: pip install 'xreg[ray]'") from error
    return ray


def connect(ray: Any, address: str | None) -> None:
    """Connect to a running cluster, or say within seconds why not. Nothing is started here."""
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    if where == "auto":
        where = _address_of_this_machine()
    if "://" not in where:
        check_listening(where)
    elif not where.startswith("ray://"):
        raise UsageError(f"--ray-address must be host:port or ray://host:port, got {where}")
    else:
        check_listening(where.removeprefix("ray://"))
    try:
        ray.init(address=where, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises RuntimeError, ConnectionError, ValueError and others of its own
        text = " ".join(str(error).split())
        if "Version mismatch" in text:
            raise ClusterError(f"the Ray cluster at {where} is of another version: {text}") from error
        raise ClusterError(f"no connection to the Ray cluster at {where}: {text[:400]}") from error


def _address_of_this_machine() -> str:
    """Where `ray start` on this machine says that its cluster is."""
    path = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ClusterError(
            "there is no Ray cluster on this machine: start one with `ray start --head`, or say where it is with "
            "--ray-address host:port"
        ) from error


def check_listening(address: str) -> None:
    """Ray itself may wait for minutes for an address where nobody is; a gRPC server says at once that it is one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--ray-address must be host:port or ray://host:port, got {address}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE) as connection:
            connection.settimeout(_PATIENCE)
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            frame = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise ClusterError(f"there is no Ray cluster at {address}: {error}") from error
    if len(frame) < 9 or frame[3] != 4:  # the settings with which HTTP/2 begins
        raise ClusterError(f"what answers at {address} is no Ray cluster; its port is that of `ray start --head`, 6379")


def _first_line(error: object) -> str:
    lines = str(error).strip().splitlines() or [""]
    kind = type(error).__name__
    return f"{kind}: {lines[0]}" if isinstance(error, Exception) else lines[0]


# Functions within functions travel to workers as they are: a worker without xreg can run them, and say so.


def _asking() -> Callable[[], dict[str, str]]:
    def ask() -> dict[str, str]:
        try:
            from core.ray_worker import about

            return about()
        except ImportError as error:
            return {"missing": str(error)}

    return ask


def _looking(paths: list[str]) -> Callable[[], bool]:
    def look() -> bool:
        import os

        return all(os.path.exists(path) for path in paths)  # noqa: PTH110  # a worker may be without this module

    return look


def _forgetting(run: str) -> Callable[[], None]:
    def forget_run() -> None:
        from core.ray_worker import forget

        forget(run)

    return forget_run


def _runner() -> Any:
    from core.ray_worker import run_unit

    return run_unit
