"""Where units run. Units are pure functions of files, so an executor decides nothing but place and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event

Task = Callable[[], "Iterable[Task]"]


class StoppedError(Exception):
    """A task ends early because another has failed; nobody is told."""


def run_on_threads(tasks: Iterable[Task], threads: int, stop: Event | None = None) -> None:
    """Run tasks on threads of this process; a finished task may return further ones. The first error ends it all:
    `stop` is set, so that tasks that look at it from time to time need not be waited for.

    Kernels release the GIL and share the mapped inputs, so threads cost no copies.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="unit") as pool:
        waiting: set[Future[Iterable[Task]]] = {pool.submit(task) for task in tasks}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    waiting |= {pool.submit(task) for task in future.result()}
        except BaseException:
            if stop is not None:
                stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
