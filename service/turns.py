"""Requests that came whole are answered in turns of the event loop: first all that was sent is read, then all of it is
answered, step by step together.

Who answers says with `pause` where a step ends: all requests of a turn are understood, then all are searched for, then
all answers are written. What one step needs of code and data does not fit into the nearest caches together with what
the others need; done many times in a row it is there (bench/README.md). An answer waits for nothing else, so no task is
made for it; only one that does wait, for a thread, becomes one.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any

from service.admission import Admission

Work = Coroutine[Any, Any, None]


class Turns:
    """What was read in this turn and is not yet answered; `tasks` are those that wait."""

    def __init__(self, admission: Admission) -> None:
        self._admission, self._due = admission, list[Work]()
        self.tasks = set[asyncio.Task[None]]()

    def add(self, work: Work) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._run)
        self._due.append(work)

    def _run(self) -> None:
        due, self._due = self._due, []
        while due:
            due = [work for work in due if self._goes_on(work)]
        self._admission.end_turn()

    def _goes_on(self, work: Work) -> bool:
        """Do a step; whether there is another one in this turn."""
        try:
            awaited = work.send(None)
        except StopIteration:
            return False
        except BaseException as error:  # of one request: the others go on
            asyncio.get_running_loop().call_exception_handler({"message": "a request failed", "exception": error})
            return False
        if awaited is None:
            return True
        task = asyncio.get_running_loop().create_task(_rest(work, awaited))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return False


@types.coroutine
def pause() -> Generator[None, None, None]:
    """The end of a step: others of the same turn come first. In a task, others of the event loop."""
    yield


@types.coroutine
def _rest(work: Work, awaited: Any) -> Generator[Any, Any, None]:
    """A coroutine that was begun outside of a task and waits for something, as one that a task can go on with."""
    while True:
        try:
            yield awaited
        except BaseException as error:  # what it waits for failed, or it is cancelled: its own to know
            step = partial(work.throw, error)
        else:
            step = partial(work.send, None)
        try:
            awaited = step()
        except StopIteration:
            return
