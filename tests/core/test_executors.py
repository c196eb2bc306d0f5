"""Where units run. One contract for all executors: threads, Ray where all see the files, Ray where files are sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from core.errors import ClusterError, DataError
from core.executors import Executor, LocalExecutor, StoppedError, Task, Unit, run_on_threads
from core.ray_executor import RayExecutor, Waiting
from tests.core import units
from tests.ray_cluster import cluster


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[Any]:
    with cluster(nodes=2) as started:
        yield started


@pytest.fixture(params=["threads", "ray, files shared", "ray, files sent"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "threads":
        yield LocalExecutor(2)
        return
    address = request.getfixturevalue("ray_nodes").address
    with RayExecutor(address, "auto" if "shared" in request.param else "sent") as opened:
        yield opened


def nothing(unit: Unit, fresh: bool) -> list[Unit]:
    return []


def quiet(done: int, where: int) -> None:
    pass


def contents(directory: Path) -> dict[str, str]:
    return {p.relative_to(directory).as_posix(): p.read_text() for p in directory.rglob("*") if p.is_file()}


def test_units_and_what_follows_them_are_run_and_told(executor: Executor, tmp_path: Path) -> None:
    """A binary tree of units: each reads the file of the one before it."""
    told = list[tuple[int, int]]()

    def after(unit: Unit, fresh: bool) -> list[Unit]:
        assert fresh
        if len(unit.makes.name) == 4:
            return []
        return [
            Unit(units.add, tmp_path / f"{unit.makes.name}{side}", (unit.makes,), args=(side, 1)) for side in (0, 1)
        ]

    executor.run([Unit(units.add, tmp_path / "r", args=(5,))], after, lambda done, where: told.append((done, where)))
    found = contents(tmp_path)
    assert len(found) == 1 + 2 + 4 + 8
    assert found["r"] == "5"
    assert found["r011"] == str(5 + 1 + 2 + 2)
    assert sum(done for done, _ in told) == 15
    assert sorted(where for _, where in told) == sorted(map(int, found.values()))


def test_a_unit_that_is_there_is_not_run_again(executor: Executor, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("7")
    seen = list[tuple[str, bool]]()

    def after(unit: Unit, fresh: bool) -> list[Unit]:
        seen.append((unit.makes.name, fresh))
        return [Unit(units.add, tmp_path / "b", (unit.makes,))] if unit.makes.name == "a" else []

    executor.run([Unit(units.fail, tmp_path / "a")], after, quiet)
    assert seen == [("a", False), ("b", True)]
    assert contents(tmp_path) == {"a": "7", "b": "7"}


def test_what_a_unit_takes_is_removed_and_what_it_needs_stays(executor: Executor, tmp_path: Path) -> None:
    for name in ("needed", "taken", "found"):
        (tmp_path / name).write_text("1")
    (tmp_path / "there").write_text("9")
    made = Unit(units.add, tmp_path / "made", (tmp_path / "needed",), (tmp_path / "taken",), (4,))
    there = Unit(units.fail, tmp_path / "there", takes=(tmp_path / "found",))
    executor.run([made, there], nothing, quiet)
    assert contents(tmp_path) == {"needed": "1", "made": "6", "there": "9"}


def test_directories_go_in_and_come_out(executor: Executor, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a").write_text("A")
    (tmp_path / "in" / "empty").write_text("")
    (tmp_path / "in" / "deep" / "b").write_text("B")
    (tmp_path / "more").write_text("+")
    executor.run([Unit(units.list_directory, tmp_path / "out", (tmp_path / "in", tmp_path / "more"))], nothing, quiet)
    assert contents(tmp_path / "out") == {"a": "A+", "deep/b": "B+", "empty": "+"}


def test_a_file_that_was_made_anew_is_read_anew(executor: Executor, tmp_path: Path) -> None:
    for text in ("1", "2"):
        aside = tmp_path / "aside"
        aside.write_text(text)
        aside.replace(tmp_path / "in")
        executor.run([Unit(units.add, tmp_path / f"out{text}", (tmp_path / "in",))], nothing, quiet)
    assert (tmp_path / "out2").read_text() == "2"


def test_what_a_unit_refuses_is_raised_as_it_is_and_nothing_is_left(executor: Executor, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 17: a number must be here"):
        executor.run([Unit(units.refuse, tmp_path / "a")], nothing, quiet)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_unit_ends_those_that_run_and_those_that_wait(executor: Executor, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    slow = Unit(units.wait_for, work / "slow", args=(str(tmp_path / "never"),))
    many = [Unit(units.add, work / f"many{i}", args=(i,)) for i in range(200)]
    with pytest.raises((ZeroDivisionError, ClusterError), match="a mistake in a unit"):
        executor.run([slow, Unit(units.fail, work / "fails"), *many], nothing, quiet)
    assert not (work / "slow").exists()
    assert len(list(work.iterdir())) < 200


def test_tell_and_after_are_never_called_by_two_threads_at_once(executor: Executor, tmp_path: Path) -> None:
    inside, most = 0, 0

    def enter() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.005)
        inside -= 1

    def after(unit: Unit, fresh: bool) -> list[Unit]:
        enter()
        return []

    executor.run([Unit(units.add, tmp_path / str(i), args=(i,)) for i in range(12)], after, lambda d, w: enter())
    assert most == 1


def test_of_units_that_are_ready_ray_gets_those_of_the_lowest_rank_first_in_the_order_they_came() -> None:
    waiting = Waiting(Unit(units.add, Path(name), rank=rank) for name, rank in (("a", 1), ("b", 0), ("c", 1)))
    assert waiting.pop().makes.name == "b"
    waiting.add([Unit(units.add, Path("d"), rank=2), Unit(units.add, Path("e"), rank=1)])
    assert [waiting.pop().makes.name for _ in range(len(waiting))] == ["a", "c", "e", "d"]


@pytest.mark.parametrize("threads", [1, 3])
def test_tasks_and_what_they_return_are_run(threads: int) -> None:
    seen = []

    def task(n: int) -> list[Task]:
        seen.append(n)
        return [partial(task, n - 1), partial(task, n - 1)] if n else []

    run_on_threads([partial(task, 3)], threads)
    assert sorted(seen) == [0] * 8 + [1] * 4 + [2] * 2 + [3]


def test_one_thread_runs_tasks_in_the_order_they_came() -> None:
    """So that a run that is killed at some unit has always finished the same ones before."""
    seen = []

    def task(name: str) -> list[Task]:
        seen.append(name)
        return [partial(task, name + end) for end in "abc"] if len(name) < 5 else []

    run_on_threads([partial(task, end) for end in "abc"], 1)
    assert seen == sorted(seen, key=lambda name: (len(name), name))
    assert len(seen) == sum(3**length for length in range(1, 6))


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


@pytest.mark.parametrize("files", ["shared", "sent"])
def test_a_unit_whose_worker_dies_is_run_again(ray_nodes: Any, tmp_path: Path, files: Any) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with RayExecutor(ray_nodes.address, files) as executor:
        executor.run([Unit(units.die_once, work / "a", args=(str(tmp_path / "died"),))], nothing, quiet)
    assert contents(work) == {"a": "second"}


def test_a_unit_that_kills_every_worker_ends_the_run(ray_nodes: Any, tmp_path: Path) -> None:
    with RayExecutor(ray_nodes.address) as executor, pytest.raises(ClusterError, match="given up after 6 attempts"):
        executor.run([Unit(units.die, tmp_path / "a")], nothing, quiet)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("files", ["shared", "sent"])
def test_a_node_lost_costs_its_unfinished_units_only(ray_nodes: Any, tmp_path: Path, files: Any) -> None:
    """Two units wait on two nodes; one node is killed; what both leave is there in the end."""
    work = tmp_path / "work"
    work.mkdir()
    doomed = ray_nodes.add_node(num_cpus=1, object_store_memory=150 * 2**20)
    names = [str(tmp_path / f"signal{i}") for i in range(3)]
    waiting = [Unit(units.wait_for, work / f"w{i}", args=(name,)) for i, name in enumerate(names)]
    finished = list[str]()

    def after(unit: Unit, fresh: bool) -> list[Unit]:
        finished.append(unit.makes.name)
        return []

    def kill() -> None:
        while not all(Path(f"{name}.begun").exists() for name in names):
            time.sleep(0.02)
        ray_nodes.remove_node(doomed, allow_graceful=False)
        for name in names:
            Path(name).touch()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with RayExecutor(ray_nodes.address, files) as executor:
        executor.run(waiting, after, quiet)
    killer.join()
    assert sorted(finished) == ["w0", "w1", "w2"]
    assert {name: text for name, text in contents(work).items() if "/" not in name} == dict.fromkeys(
        ("w0", "w1", "w2"), "waited"
    )
