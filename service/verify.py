"""`python -m service.verify RELEASE`: may it be served? Says why not, and ends with 1.

A worker that serves has others verify what comes next: reading and checking every byte would hold up its requests, in a
thread too, since what checks the arrays holds the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from core.errors import ModelError
from service.problems import cause_of
from service.processes import Process

_NICE = 19  # requests come first; but what is new comes some time, however busy the machine is


async def verify_elsewhere(path: Path) -> None:
    """Verify a release in a process of its own; raises what is wrong with it."""
    process = await Process.start([sys.executable, "-m", "service.verify", str(path)])
    try:
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        said, _ = await asyncio.gather(process.out.read(), process.err.read())
        code = await process.wait()
    finally:
        await process.stop()
    if code != 0:
        cause = said.decode("utf-8", "replace").strip()
        raise ModelError(cause or f"{path}: its verification ended with {code}")


def main() -> None:
    from service.holder import open_release

    try:
        open_release(Path(sys.argv[1]))
    except Exception as error:  # whatever a damaged release leads to
        print(cause_of(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
