"""Where units run: all of them, and not for long after one has failed."""

from __future__ import annotations

import time
from functools import partial
from threading import Event

import pytest

from core.executors import StoppedError, Task, run_on_threads


@pytest.mark.parametrize("threads", [1, 3])
def test_tasks_and_what_they_return_are_run(threads: int) -> None:
    seen = []

    def task(n: int) -> list[Task]:
        seen.append(n)
        return [partial(task, n - 1), partial(task, n - 1)] if n else []

    run_on_threads([partial(task, 3)], threads)
    assert sorted(seen) == [0] * 8 + [1] * 4 + [2] * 2 + [3]


def test_an_error_is_told_to_tasks_that_still_run_and_ends_those_that_wait() -> None:
    stop, told, begun = Event(), list[bool](), list[bool]()

    def slow() -> tuple[()]:
        told.append(stop.wait(20))
        raise StoppedError

    def failing() -> tuple[()]:
        raise OSError("the disk is full")

    def further() -> tuple[()]:
        begun.append(True)
        time.sleep(0.1)
        return ()

    with pytest.raises(OSError, match="the disk is full"):
        run_on_threads([slow, failing, *[further] * 50], 2, stop)
    assert told == [True]
    assert len(begun) < 50
