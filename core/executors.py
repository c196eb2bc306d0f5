"""Where units run. Units are pure functions of files, so an executor decides nothing but place and time.

    Unit            what to call, the files it reads, the one file or directory it leaves
    LocalExecutor   threads of this process, the default
    RayExecutor     the workers of a Ray cluster (core/ray_executor.py)

A unit whose result is there is not run again: that is all there is to going on after a kill. Who cuts the work says
what follows a finished unit; both executors ask the same question and so run the same units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, NamedTuple, Protocol

Task = Callable[[], "Iterable[Task]"]
Tell = Callable[[int, int], None]  # so much more is done; where (a depth, or what the caller likes)


class StoppedError(Exception):
    """A task ends early because another has failed; nobody is told."""


class Unit(NamedTuple):
    """A piece of work: do(tell, makes, *needs, *takes, *args).

    do     a function of a module, so that a worker elsewhere can import it
    makes  the file or directory that it leaves: whole or not there, the same bytes whoever runs it
    needs  files and directories that it reads
    takes  the same, of units before it, that nobody needs after it; they are removed when it is done
    args   small values
    rank   of units that are ready, those of the lowest rank go first, where an executor has a choice
    """

    do: Callable[..., None]
    makes: Path
    needs: tuple[Path, ...] = ()
    takes: tuple[Path, ...] = ()
    args: tuple[Any, ...] = ()
    rank: int = 0


After = Callable[[Unit, bool], Iterable[Unit]]  # a unit, whether it was run now or found: what follows it


class Executor(Protocol):
    """Runs units and what follows them. The first error ends it all and is raised."""

    remote: bool  # units run in other processes: what they read must be in files

    def run(self, units: Iterable[Unit], after: After, tell: Tell) -> None:
        """`after` and `tell` are never called by two threads at once."""


class LocalExecutor:
    """Threads of this process: kernels release the GIL and share the mapped inputs, so threads cost no copies."""

    remote = False

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def run(self, units: Iterable[Unit], after: After, tell: Tell) -> None:
        lock, stop = Lock(), Event()

        def told(done: int, where: int) -> None:
            if stop.is_set():
                raise StoppedError
            with lock:
                tell(done, where)

        def task(unit: Unit) -> Iterable[Task]:
            fresh = not unit.makes.exists()
            if fresh:
                unit.do(told, unit.makes, *unit.needs, *unit.takes, *unit.args)
            with lock:
                following = list(after(unit, fresh))
            discard(unit)
            return [partial(task, unit) for unit in following]

        run_on_threads([partial(task, unit) for unit in units], self.threads, stop)


def discard(unit: Unit) -> None:
    """Remove what a finished unit took."""
    for path in unit.takes:
        path.unlink(missing_ok=True)


def run_on_threads(tasks: Iterable[Task], threads: int, stop: Event | None = None) -> None:
    """Run tasks on threads of this process in the order they came; a finished task may return further ones. The first
    error ends it all: `stop` is set, so that tasks that look at it from time to time need not be waited for."""
    finished, running = SimpleQueue[Future[Iterable[Task]]](), 0
    with ThreadPoolExecutor(threads, thread_name_prefix="unit") as pool:

        def submit(tasks: Iterable[Task]) -> int:
            futures = [pool.submit(task) for task in tasks]
            for future in futures:
                future.add_done_callback(finished.put)
            return len(futures)

        try:
            running = submit(tasks)
            while running:
                running += submit(finished.get().result()) - 1
        except BaseException:
            if stop is not None:
                stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
