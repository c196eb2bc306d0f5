"""Refreshes that are killed at given places, one after the other, and a last one that is left to finish.

    python -m tests.training.killed DATA RELEASES DAYS PLACE …

A refresh dies when it is about to rename something to RELEASES/PLACE. After each, one line: its exit code and what is
served. Children are forked, since to start Python anew costs more than the refresh.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from core.releases import current
from tests.training.nightly import PLAN, terms
from training.release.refresh import refresh


def die_at(target: Path) -> None:
    """From now on, renaming something to this path kills the process."""

    def deadly(real: Any) -> Any:
        def call(source: Any, to: Any) -> None:
            if Path(to) == target:
                os.kill(os.getpid(), signal.SIGKILL)
            real(source, to)

        return call

    os.rename, os.replace = deadly(os.rename), deadly(os.replace)


def main(data: Path, releases: Path, days: int, places: list[str]) -> None:
    for place in [*places, None]:
        child = os.fork()
        if child == 0:
            try:
                if place is not None:
                    die_at(releases / place)
                refresh(data, PLAN, terms(releases, days, threads=1))
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(code, current(releases), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
