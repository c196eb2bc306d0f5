"""What came whole is answered where it stands; what has to wait goes on as a task, with its own errors and places."""

from __future__ import annotations

import asyncio

from service.admission import Admission
from service.telemetry import Telemetry
from service.turns import Turns, pause


def test_work_is_done_in_order_and_only_what_waits_becomes_a_task() -> None:
    done = list[str]()

    async def work(name: str, future: asyncio.Future[str] | None = None) -> None:
        done.append(name if future is None else await future)

    async def main() -> None:
        turns = Turns(Admission(8, Telemetry()))
        future = asyncio.get_running_loop().create_future()
        for one in (work("a"), work("b", future), work("c")):
            turns.add(one)
        assert not done  # what else was sent is read first
        await asyncio.sleep(0)
        assert (done, len(turns.tasks)) == (["a", "c"], 1)
        future.set_result("b")
        await asyncio.sleep(0.01)
        assert (done, turns.tasks) == (["a", "c", "b"], set())

    asyncio.run(main())


def test_what_waits_can_wait_again_and_be_cancelled() -> None:
    seen = list[str]()

    async def work() -> None:
        for name in ("first", "second"):
            await asyncio.sleep(0)
            seen.append(name)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        turns = Turns(Admission(8, Telemetry()))
        turns.add(work())
        await asyncio.sleep(0.01)
        (task,) = turns.tasks
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert seen == ["first", "second", "cancelled"]

    asyncio.run(main())


def test_what_fails_while_it_is_waited_for_fails_there() -> None:
    seen = list[str]()

    async def work(future: asyncio.Future[None]) -> None:
        try:
            await future
        except ValueError as error:
            seen.append(str(error))
        await asyncio.sleep(0.001)
        seen.append("done")

    async def main() -> None:
        turns = Turns(Admission(8, Telemetry()))
        future = asyncio.get_running_loop().create_future()
        turns.add(work(future))
        await asyncio.sleep(0)
        future.set_exception(ValueError("no"))
        await asyncio.gather(*turns.tasks)
        assert seen == ["no", "done"]

    asyncio.run(main())


def test_steps_are_taken_together() -> None:
    steps = list[tuple[str, int]]()

    async def work(name: str, n: int) -> None:
        for i in range(n):
            steps.append((name, i))
            await pause()

    async def main() -> None:
        turns = Turns(Admission(8, Telemetry()))
        for one in (work("a", 3), work("b", 1), work("c", 2)):
            turns.add(one)
        await asyncio.sleep(0)
        assert steps == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("c", 1), ("a", 2)]
        await work("in a task", 2)  # a pause there is a turn of the event loop
        assert steps[-2:] == [("in a task", 0), ("in a task", 1)]

    asyncio.run(main())


def test_the_places_of_a_turn_are_looked_at_when_it_ends() -> None:
    async def main() -> None:
        admission = Admission(32, Telemetry())
        turns = Turns(admission)
        while admission.enter():
            turns.add(_left(admission))
        await asyncio.sleep(0)
        assert [admission.enter() for _ in range(9)] == [True] * 8 + [False]  # after a turn that refused somebody


def test_a_request_that_fails_altogether_takes_no_other_with_it() -> None:
    done, said = list[int](), list[str]()

    async def work(i: int) -> None:
        await pause()
        if i == 1:
            raise MemoryError
        done.append(i)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context["message"]))
        turns = Turns(Admission(8, Telemetry()))
        for i in range(3):
            turns.add(work(i))
        await asyncio.sleep(0)
        assert (done, said) == ([0, 2], ["a request failed"])

    asyncio.run(main())


async def _left(admission: Admission) -> None:
    admission.leave()
