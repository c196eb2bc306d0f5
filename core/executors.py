"""Where units run. Units are pure functions of files, so an executor decides nothing but place and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

Task = Callable[[], "Iterable[Task]"]


def run_on_threads(tasks: Iterable[Task], threads: int) -> None:
    """Run tasks on threads of this process; a finished task may return further ones. The first error ends it all.

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
            pool.shutdown(wait=False, cancel_futures=True)
            raise
