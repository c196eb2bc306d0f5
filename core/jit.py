"""How every Numba kernel of xreg is compiled, and where it is kept.

Kernels are serial and release the GIL: parallelism is over points, nodes and units, never inside one.
Numba notices a change in a kernel's own file but not in kernels it calls from other files, so the cache
directory is named after the sources of all kernels: an edit anywhere compiles afresh, nothing stale is run.

An image carries its kernels compiled, for a named CPU level, in a directory that nobody may write to. Numba's own
cache refuses such a directory when a kernel is defined; `_SealedCache` reads from it. What is missing there is
compiled, kept in memory, and said in the log: in an image that is a mistake of the build.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator

F = TypeVar("F", bound=Callable[..., Any])

LOG = "xreg.kernels"
_ROOT = Path(__file__).parent.parent
_SOURCES = sorted([*_ROOT.glob("core/**/*.py"), *_ROOT.glob("training/**/*.py")])


class _Kept(NamedTuple):
    """Where compiled kernels are; `sealed`: to be read, not written."""

    directory: Path
    sealed: bool


def _kept() -> _Kept | None:
    """A private directory for this version of the sources, or None: then nothing is cached."""
    digest = hashlib.sha256()
    for source in _SOURCES:
        text = source.read_bytes()
        if b"@kernel" in text:
            digest.update(text)
    named = os.environ.get("XREG_KERNEL_CACHE")
    try:
        base = named or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    directory = Path(base) / "xreg-kernels" / digest.hexdigest()[:16]
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=directory):
            return _Kept(directory, sealed=False)
    except OSError:  # who names a directory is told what it lacks; a home that is read-only is nothing to speak of
        return _Kept(directory, sealed=True) if named or os.access(directory, os.R_OK | os.X_OK) else None


class _Sealed(UserProvidedCacheLocator):
    """Numba's directory for a file's kernels, without the attempt to write there."""

    def ensure_cache_path(self) -> None:
        pass


class _SealedImpl(CompileResultCacheImpl):
    _locator_classes = [_Sealed]  # noqa: RUF012  # Numba's own way


class _SealedCache(FunctionCache):
    """Reads what is there; what is not has just been compiled."""

    _impl_class = _SealedImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except OSError:  # the directory is another user's
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        name = f"{self._py_func.__module__}.{self._py_func.__qualname__}"
        logging.getLogger(LOG).warning("%s was compiled: it is not in %s", name, self.cache_path)


_KEPT = _kept()
if _KEPT is not None:
    numba.config.CACHE_DIR = str(_KEPT.directory)  # type: ignore[attr-defined]  # numba sets its options at run time


def kernel(*, fastmath: bool = False, inline: bool = False) -> Callable[[F], F]:
    """Compile a function with Numba: no Python objects, no GIL, cached on disk.

    `fastmath` lets sums be reordered (and so vectorised); kernels whose results are compared bit for bit
    with a reference leave it off.
    """
    sealed = _KEPT is not None and _KEPT.sealed
    compiled = numba.njit(
        nogil=True,
        cache=_KEPT is not None and not sealed,
        fastmath=fastmath,
        inline="always" if inline else "never",
        error_model="numpy",
    )

    def cached(function: F) -> F:
        dispatcher: Any = compiled(function)
        if sealed:
            dispatcher._cache = _SealedCache(function)  # type: ignore[no-untyped-call]  # as enable_caching() does
        return dispatcher  # type: ignore[no-any-return]

    return cached
