"""Units for the tests of executors: functions that workers can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from core.errors import DataError
from core.executors import Tell
from core.format import written_aside
from core.work import save_text


def add(tell: Tell, out: Path, *given: Path | int) -> None:
    """The sum of numbers in files and of numbers."""
    total = sum(int(each.read_text()) if isinstance(each, Path) else each for each in given)
    tell(1, total)
    save_text(out, str(total))


def list_directory(tell: Tell, out: Path, directory: Path, more: Path) -> None:
    """A directory as result of another one, whose files may lie deeper."""
    with written_aside(out) as aside:
        for file in sorted(file for file in directory.rglob("*") if file.is_file()):
            target = aside / file.relative_to(directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes() + more.read_bytes())


def refuse(tell: Tell, out: Path) -> None:
    raise DataError("line 17: a number must be here, got 'seven'")


def fail(tell: Tell, out: Path) -> None:
    raise ZeroDivisionError("a mistake in a unit")


def wait_for(tell: Tell, out: Path, name: str) -> None:
    """Leaves a file when another one is there."""
    begun = Path(f"{name}.begun")
    begun.touch()
    while not Path(name).exists():
        tell(0, 0)  # so that a thread notices that it is stopped
        time.sleep(0.02)
    save_text(out, "waited")


def die_once(tell: Tell, out: Path, name: str) -> None:
    """Takes its worker along the first time."""
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        save_text(out, "second")
        return
    os.kill(os.getpid(), signal.SIGKILL)


def die(tell: Tell, out: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
