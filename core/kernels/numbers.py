"""Small numeric pieces of the kernels: bits, keys, and a σ that vectorises."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.sparse import Floats

NOTHING = np.float32(1e-30)  # scores up to this are 0: those of labels never seen are 2^-126 at most
_FEW = 32
UInt64s = npt.NDArray[np.uint64]
_LOG2_E = np.float32(1.4426950408889634)
_LARGEST = np.float32(126.0)  # 2^±126 are the outermost normal numbers


@kernel(inline=True)
def popcount(x: np.uint64) -> np.int64:
    """Bits that are set; the compiler knows this pattern and makes one instruction of it."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel(inline=True)
def key(score: np.float32, number: int) -> np.uint64:
    """Orders by score, then by lower number: floats that are not negative compare as their bits do."""
    bits = np.uint64(np.float32(score).view(np.uint32))
    return np.uint64(bits << np.uint64(32)) | np.uint64(np.uint64(0xFFFFFFFF) - np.uint64(number))


@kernel(inline=True)
def key_score(k: np.uint64) -> np.float32:
    return np.uint32(k >> np.uint64(32)).view(np.float32)


@kernel(inline=True)
def key_number(k: np.uint64) -> np.int64:
    return np.int64(np.uint64(0xFFFFFFFF) - (k & np.uint64(0xFFFFFFFF)))


@kernel(inline=True)
def logistic(v: np.float32) -> np.float32:
    """1 / (1 + e^−v), relative error below 2e-6 down to 2^-126: e^−v = 2^n · 2^f, a polynomial for 2^f. No call and no
    branch, so that loops over it become vectors."""
    t = min(max(-v * _LOG2_E, -_LARGEST), _LARGEST)
    n = np.floor(t + np.float32(0.5))
    f = t - n
    p = np.float32(1.5403530e-4)
    p = p * f + np.float32(1.33335581e-3)
    p = p * f + np.float32(9.61812911e-3)
    p = p * f + np.float32(5.55041087e-2)
    p = p * f + np.float32(2.40226507e-1)
    p = p * f + np.float32(6.93147181e-1)
    p = p * f + np.float32(1.0)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.float32(1.0) / (np.float32(1.0) + p * power)


@kernel(fastmath=True)
def sigmoid(values: Floats) -> None:
    """v → 1 / (1 + e^−v) in place."""
    for i in range(values.size):
        values[i] = logistic(values[i])


@kernel(fastmath=True)
def largest(values: Floats) -> np.float32:
    """The largest of numbers that are not negative; 0 of none."""
    most = np.float32(0.0)
    for i in range(values.size):
        most = max(most, values[i])
    return most


@kernel()
def least_of_largest(keys: UInt64s, n: int, most: int, work: UInt64s) -> np.uint64:
    """The most-th largest of the first n keys, all different; `work` [n] is overwritten."""
    if n > _FEW:
        return nth_largest(keys, n, most, work)
    for i in range(n):  # a key's rank by comparing it with all: no branch to guess, and it vectorises
        larger = np.uint64(0)
        for j in range(n):
            larger += np.uint64(keys[j] > keys[i])
        work[i] = larger
    least = ~np.uint64(0)
    for i in range(n):
        least = min(least, keys[i] if work[i] < np.uint64(most) else ~np.uint64(0))
    return least


@kernel()
def nth_largest(keys: UInt64s, n: int, rank: int, work: UInt64s) -> np.uint64:
    """The rank-th largest (from 1) of the first n keys, all different; `work` [n] is overwritten."""
    for i in range(n):
        work[i] = keys[i]
    low, high, wanted = 0, n - 1, rank - 1
    while low < high:
        pivot = work[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while work[i] > pivot:
                i += 1
            while work[j] < pivot:
                j -= 1
            if i <= j:
                work[i], work[j] = work[j], work[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return work[wanted]


@kernel()
def push(heap: UInt64s, size: int, k: np.uint64) -> None:
    """Add a key to a heap of `size` keys whose first is the largest."""
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if heap[up] >= k:
            break
        heap[at] = heap[up]
        at = up
    heap[at] = k


@kernel()
def pop(heap: UInt64s, size: int) -> None:
    """Remove the first key of a heap of `size`; the last takes its place and sinks."""
    k, at, n = heap[size - 1], 0, size - 1
    while True:
        down = 2 * at + 1
        if down >= n:
            break
        if down + 1 < n and heap[down + 1] > heap[down]:
            down += 1
        if heap[down] <= k:
            break
        heap[at] = heap[down]
        at = down
    heap[at] = k
