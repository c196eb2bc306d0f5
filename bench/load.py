"""A load generator for one core: HTTP/1.1 over keep-alive connections, an open or a closed loop, every answer judged.

Open loop: requests are due on a schedule (Poisson), whatever the server does, and latency counts from when a request
was due. A request that finds no free connection waits here; that counts too, and how many did is told. Closed loop:
every connection asks again as soon as it was answered, which shows what the server can do at most. Requests are bytes
made beforehand; waiting for the next is a busy loop, since timers are a thousand times too coarse.

A connection that the server ends under a request is either a loss or not: if the server had read the request, the end
is an orderly one (CLOSE_WAIT here); if the request lay unread or came too late, the kernel answers with a reset and
the request may be sent again elsewhere. Only the first is counted as lost.
"""

from __future__ import annotations

import asyncio
import socket
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import nan
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

RIGHT, REFUSED, FAILED, MIXED, LOST, UNREAD, PENDING, DROPPED = range(8)
_SPIN = 2e-3  # a request that is due sooner than this is waited for busily
_CLOSE_WAIT = 8  # of Linux's TCP states: the other side ended the connection after it had read everything
_ACCEPTED = 5e-4  # seconds for each connection: libuv accepts one per turn of its loop, so they are waited for
_PATIENCE = 20.0  # seconds that the last answers may take

Doubles = npt.NDArray[np.float64]
Meanwhile = Callable[["Run"], Awaitable[None]]


class Judge(Protocol):
    """Says what an answer to the question of that number is: RIGHT, REFUSED, FAILED or MIXED."""

    def __call__(self, question: int, status: int, head: bytes, body: bytes) -> int: ...


class Target(NamedTuple):
    """A server on this machine, what it is asked in turn, and who judges what it says."""

    port: int
    requests: Sequence[bytes]
    judge: Judge


class Outcome(NamedTuple):
    """What became of each request, in the order in which they were due; times in seconds from the start."""

    seconds: float  # of the schedule, or of the loop
    due: Doubles
    sent: Doubles
    done: Doubles  # NaN: never
    verdict: npt.NDArray[np.uint8]
    waited: int  # requests that found no free connection

    def count(self, verdict: int) -> int:
        return int(np.count_nonzero(self.verdict == verdict))

    @property
    def errors(self) -> int:
        """Neither answered rightly nor refused as it should be."""
        return len(self.verdict) - self.count(RIGHT) - self.count(REFUSED)

    @property
    def goodput(self) -> float:
        """Right answers per second within the schedule."""
        return int(np.count_nonzero((self.verdict == RIGHT) & (self.done <= self.seconds))) / self.seconds

    def latency(self, percent: float, since_sent: bool = False) -> float:
        """Percentile of the seconds that right answers took, since they were due or since they were sent."""
        right = self.verdict == RIGHT
        since = self.sent if since_sent else self.due
        return float(np.percentile(self.done[right] - since[right], percent)) if right.any() else nan

    def late(self, percent: float) -> float:
        """How long requests waited here before they were sent."""
        went = ~np.isnan(self.sent)
        return float(np.percentile(self.sent[went] - self.due[went], percent)) if went.any() else nan


def request_bytes(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def header(head: bytes, name: bytes) -> bytes:
    """The value of a header, whose name is written as the server does; empty if it is not there."""
    at = head.find(b"\r\n" + name + b": ")
    if at < 0:
        return b""
    at += len(name) + 4
    end = head.find(b"\r\n", at)
    return head[at:] if end < 0 else head[at:end]


class Connection(asyncio.Protocol):
    """One connection with at most one request under way."""

    __slots__ = ("_parts", "_run", "_socket", "request", "transport")

    def __init__(self, run: Run, own: socket.socket) -> None:
        self._run, self._socket, self._parts, self.request = run, own, b"", -1
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parts:
            data = self._parts + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._parts = data
            return
        head, start = data[:end], end + 4
        if len(data) < start + int(header(head, b"content-length") or b"0"):
            self._parts = data
            return
        self._parts = b""
        request, self.request = self.request, -1
        self._run.answered(self, request, int(head[9:12]), head, data[start:])

    def send(self, request: int, data: bytes) -> None:
        """At once and past uvloop, which would wait until all answers that came together are judged."""
        self.request = request
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # ended, and not noticed yet
            self.transport.abort()
            return
        if sent < len(data):
            self.transport.write(data[sent:])

    def eof_received(self) -> None:
        self._end(LOST if self._state() == _CLOSE_WAIT or self._parts else UNREAD)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(LOST if self._parts else UNREAD)

    def _end(self, verdict: int) -> None:
        request, self.request, self._parts = self.request, -1, b""
        self._run.ended(self, request, verdict)

    def _state(self) -> int:
        with suppress(OSError):
            return int(self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])
        return 0


class Run:
    """The requests of one loop, and what becomes of them."""

    def __init__(self, target: Target, due: Sequence[float], closed: bool = False) -> None:
        n = len(due)
        self._target, self._due, self._closed = target, array("d", due), closed
        self._sent, self._done = array("d", [nan]) * n, array("d", [nan]) * n
        self._verdict = bytearray([PENDING]) * n
        self._at = self._under_way = self._waited = 0
        self._free, self._waiting = deque[Connection](), deque[int]()
        self._connections, self._tasks = set[Connection](), set[asyncio.Future[None]]()
        self._stopped, self._end, self._start = False, asyncio.Event(), 0.0
        self.n_answered = 0
        self.gone = False  # the server takes no connections any more

    async def go(self, connections: int, patience: float) -> None:
        """Connect, ask, and wait for the last answer."""
        for _ in range(connections):
            await self._connect()
        await asyncio.sleep(connections * _ACCEPTED)
        self._start = perf_counter()
        if self._closed:
            for connection in list(self._free):
                self._is_free(connection)
        else:
            self._pump()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._end.wait()
        self._stopped = True
        for connection in list(self._connections):
            connection.transport.close()
        self._connections.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """Ask nothing more; what is under way is waited for."""
        self._stopped = True
        while self._waiting:
            self._verdict[self._waiting.popleft()] = DROPPED
        self._check_end()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return perf_counter() - self._start

    @property
    def under_way(self) -> int:
        """Requests that were sent and not answered yet."""
        return self._under_way

    @property
    def over(self) -> bool:
        """Everything was asked and answered."""
        return self._end.is_set()

    async def _connect(self) -> None:
        own, loop = socket.socket(), asyncio.get_running_loop()
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.sock_connect(own, ("127.0.0.1", self._target.port))
            _, connection = await loop.create_connection(lambda: Connection(self, own), sock=own)
        except BaseException:  # also where the loop ends meanwhile
            own.close()
            raise
        if self.over:
            connection.transport.abort()
            return
        self._connections.add(connection)
        if self._start:
            self._is_free(connection)
        else:
            self._free.append(connection)

    async def _again(self) -> None:
        try:
            await self._connect()
        except OSError:
            self.gone = True
            self.stop()

    def _pump(self) -> None:
        """Send what is due; come back for the next."""
        now, due, n = perf_counter() - self._start, self._due, len(self._due)
        while self._at < n and due[self._at] <= now and not self._stopped:
            if self._free:
                self._send(self._free.popleft(), self._at)
            else:
                self._waited += 1
                self._waiting.append(self._at)
            self._at += 1
        if self._at == n or self._stopped:
            self._check_end()
            return
        gap, loop = due[self._at] - now, asyncio.get_running_loop()
        if gap > _SPIN:
            loop.call_later(gap - _SPIN / 2, self._pump)
        else:
            loop.call_soon(self._pump)

    def _send(self, connection: Connection, request: int) -> None:
        self._under_way += 1
        self._sent[request] = perf_counter() - self._start
        connection.send(request, self._target.requests[request % len(self._target.requests)])

    def _is_free(self, connection: Connection) -> None:
        if self._waiting:
            self._send(connection, self._waiting.popleft())
        elif not self._closed:
            self._free.append(connection)
        elif self._at < len(self._due) and not self._stopped:
            self._at += 1
            self._send(connection, self._at - 1)

    def answered(self, connection: Connection, request: int, status: int, head: bytes, body: bytes) -> None:
        self._done[request] = perf_counter() - self._start
        self._under_way -= 1
        self.n_answered += 1
        verdict = self._target.judge(request % len(self._target.requests), status, head, body)
        self._verdict[request] = verdict
        if verdict == FAILED or header(head, b"connection") == b"close":
            connection.transport.close()  # and `ended` makes another
        else:
            self._is_free(connection)
        if not self._under_way:
            self._check_end()

    def ended(self, connection: Connection, request: int, verdict: int) -> None:
        """The server, or we, ended a connection; under a request if its number is not negative."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        with suppress(ValueError):
            self._free.remove(connection)
        if request >= 0:
            self._verdict[request] = verdict
            self._under_way -= 1
        if not self._stopped:
            task = asyncio.ensure_future(self._again())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._check_end()

    def _check_end(self) -> None:
        if (self._stopped or self._at == len(self._due)) and not self._under_way and not self._waiting:
            self._end.set()

    def outcome(self, seconds: float | None = None) -> Outcome:
        """Of what was asked; the loop's time is that of the last answer if none is given."""
        verdict = np.frombuffer(self._verdict, np.uint8)[: self._at].copy()
        kept = verdict != DROPPED
        due, sent, done = (np.array(times)[: self._at][kept] for times in (self._due, self._sent, self._done))
        return Outcome(
            seconds or float(np.max(done, initial=0.0, where=~np.isnan(done))),
            due,
            sent,
            done,
            verdict[kept],
            self._waited,
        )


async def open_loop(
    target: Target,
    rate: float,
    seconds: float,
    connections: int = 128,
    meanwhile: Meanwhile | None = None,
    seed: int = 0,
) -> Outcome:
    """`rate` requests per second for so long, due at random; `meanwhile` goes on beside it and may stop it."""
    most = int(rate * seconds + 6 * (rate * seconds) ** 0.5) + 10
    due = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, most))
    run = Run(target, due[due < seconds].tolist())
    other = asyncio.ensure_future(meanwhile(run)) if meanwhile else None
    await run.go(connections, seconds + _PATIENCE)
    if other:
        await other
    return run.outcome(seconds)


async def closed_loop(target: Target, requests: int, connections: int) -> Outcome:
    """So many requests, each connection asking as soon as it was answered: latency counts from the sending."""
    run = Run(target, [0.0] * requests, closed=True)
    await run.go(connections, 60 + _PATIENCE)
    outcome = run.outcome()
    return outcome._replace(due=outcome.sent)
