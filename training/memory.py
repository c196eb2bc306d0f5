"""Arrays give their memory back when they go.

glibc serves large requests with pages of their own, but raises the size that counts as large, up to 32 MB, whenever
such a block is freed. From then on arrays come from the heaps of threads, and what is freed there mostly stays with the
process: after training, more than the model. A fixed size keeps larger arrays apart. It is a choice for a whole
process, so a command makes it, never a library function.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
_LARGE = 4 << 20  # a leaf's arrays are smaller: fetching pages for them again and again would cost several per cent


def return_large_arrays() -> None:
    """Fix what counts as large, and how much a heap may keep at its end, where the C library has such a choice."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE)
