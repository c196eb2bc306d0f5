"""Processes beside a worker, for what would hold up its requests.

uvloop forks to start one, which copies the page tables of all that is mapped here: 8 ms in which nobody is answered,
and then every page that is written to is copied first. `Popen` shares the memory until the other program runs: 0.2 ms.
Their end is seen through a file descriptor, so nobody waits in a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen
from typing import IO

_PATIENCE = 10.0  # seconds that a process has to end
_LONGEST_LINE = 1 << 24


class Process:
    """A program that runs; `start` makes one, and `stop` is always to be called. What it says must be read."""

    out: asyncio.StreamReader
    err: asyncio.StreamReader

    def __init__(self, command: Sequence[str]) -> None:
        self._popen = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
        self._ended, self._pipes = asyncio.Event(), list[asyncio.ReadTransport]()
        self.pid = self._popen.pid
        handle = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(handle, self._note_end, handle)

    @classmethod
    async def start(cls, command: Sequence[str]) -> Process:
        process = cls(command)
        process.out = await process._heard(process._popen.stdout)
        process.err = await process._heard(process._popen.stderr)
        return process

    async def _heard(self, pipe: IO[bytes] | None) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        connect = asyncio.get_running_loop().connect_read_pipe
        transport, _ = await connect(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._pipes.append(transport)
        return reader

    def _note_end(self, handle: int) -> None:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
        self._popen.wait()
        self._ended.set()

    async def wait(self) -> int:
        """Its exit code, once it has ended; the number of the signal that ended it, below 0."""
        await self._ended.wait()
        return int(self._popen.returncode)

    async def stop(self) -> None:
        """End it if it has not ended, asking first; nothing more is heard of it."""
        for end in (self._popen.terminate, self._popen.kill):
            if not self._ended.is_set():
                end()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), _PATIENCE)
        for pipe in self._pipes:
            pipe.close()
