"""Kernels are compiled by one process of a machine; the others that want the same one wait for it and load it.

Numba's cache is shared between processes, but processes that start together all miss in it and all compile. Workers of
a cluster do start together. Here a process that misses takes the function's lock (the operating system's: a killed
process leaves none behind), looks again, and keeps the lock until what it compiled is saved. A kernel waits only for
those that it calls, so nobody waits in a circle. This reaches into Numba's cache class, since Numba has no such hook;
were the class to change, `install` would raise in a test, and kernels would be compiled once per worker again.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any, BinaryIO

from numba.core import caching

_held: dict[str, BinaryIO] = {}  # locks of the kernels being compiled; Numba compiles on one thread at a time


def install() -> None:
    """From now on, for all kernels of this process."""
    cache: Any = caching.Cache
    load, save = cache.load_overload, cache.save_overload
    if getattr(load, "once", False):
        return

    def load_overload(self: Any, sig: Any, target_context: Any) -> Any:
        found = load(self, sig, target_context)
        name = str(self._cache_file._index_path)
        if found is not None or name in _held:
            return found
        try:
            self._impl.locator.ensure_cache_path()
            file = Path(f"{name}.lock").open("ab")  # noqa: SIM115  # it is closed when the kernel is saved
        except OSError:  # nobody can save here: there is nothing to wait for
            return None
        fcntl.flock(file, fcntl.LOCK_EX)
        found = load(self, sig, target_context)
        if found is None:
            _held[name] = file
        else:
            file.close()
        return found

    def save_overload(self: Any, sig: Any, data: Any) -> None:
        try:
            save(self, sig, data)
        finally:
            lock = _held.pop(str(self._cache_file._index_path), None)
            if lock is not None:
                lock.close()

    load_overload.once = True  # type: ignore[attr-defined]  # so that a second call changes nothing
    cache.load_overload, cache.save_overload = load_overload, save_overload
