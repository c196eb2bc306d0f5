"""How a worker ends: at the first signal it turns unready and goes on for a while, then uvicorn does the rest.

uvicorn ends at once with SIGTERM; balancers need a moment to see that a worker is not ready any more.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def delayed_signals(on_first: Callable[[int], None], seconds: float) -> Iterator[None]:
    """Inside, a first signal calls `on_first` and reaches its handler after `seconds`; a second one does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, seen = asyncio.get_running_loop(), False
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        handler = handlers[number]
        if seen or not callable(handler):
            _pass_on(handler, number)
            return
        seen = True
        on_first(number)
        loop.call_soon_threadsafe(loop.call_later, seconds, _pass_on, handler, number)

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, handlers[number])


def _pass_on(handler: Any, number: int) -> None:
    if callable(handler):
        handler(number, None)
