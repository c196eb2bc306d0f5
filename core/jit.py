"""How every Numba kernel of xreg is compiled.

Kernels are serial and release the GIL: parallelism is over points, nodes and units, never inside one.
Numba notices a change in a kernel's own file but not in kernels it calls from other files, so the cache
directory is named after the sources of all kernels: an edit anywhere compiles afresh, nothing stale is run.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

_ROOT = Path(__file__).parent.parent
_SOURCES = sorted([*_ROOT.glob("core/**/*.py"), *_ROOT.glob("training/**/*.py")])


def _cache_directory() -> str | None:
    """A private, writable directory for this version of the sources, or None: then nothing is cached."""
    digest = hashlib.sha256()
    for source in _SOURCES:
        text = source.read_bytes()
        if b"@kernel" in text:
            digest.update(text)
    try:
        base = os.environ.get("XREG_KERNEL_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        directory = Path(base) / "xreg-kernels" / digest.hexdigest()[:16]
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=directory):
            return str(directory)
    except (OSError, RuntimeError):  # read-only, or a user without a home
        return None


_CACHE = _cache_directory()
if _CACHE is not None:
    numba.config.CACHE_DIR = _CACHE  # type: ignore[attr-defined]  # numba sets its options at run time


def kernel(*, fastmath: bool = False, inline: bool = False) -> Callable[[F], F]:
    """Compile a function with Numba: no Python objects, no GIL, cached on disk.

    `fastmath` lets sums be reordered (and so vectorised); kernels whose results are compared bit for bit
    with a reference leave it off.
    """
    return numba.njit(  # type: ignore[return-value]
        nogil=True,
        cache=_CACHE is not None,
        fastmath=fastmath,
        inline="always" if inline else "never",
        error_model="numpy",
    )
