"""Answers that were given before, by the very bytes that asked for them: people ask the same things again and again.

A cache belongs to a release and goes with it, so it can never answer for another. Only answers that depend on nothing
but the body are kept: none of a narrowed beam, and none to a long body, which comes once. The answer that was not asked
for the longest time makes room for a new one.
"""

from __future__ import annotations

from typing import NamedTuple

from core.served import Found

_LONGEST = 1024  # bytes of a body


class Kept(NamedTuple):
    """An answer's body, and what it holds, for the counts."""

    body: bytes
    found: Found


class AnswerCache:
    """So many answers at most; 0: none."""

    def __init__(self, most: int) -> None:
        self._most, self._kept = most, dict[bytes, Kept]()

    def get(self, asked: bytes) -> Kept | None:
        kept = self._kept.pop(asked, None)
        if kept is not None:
            self._kept[asked] = kept  # a dict keeps the order of insertion: the newest is last
        return kept

    def put(self, asked: bytes, kept: Kept) -> None:
        if not self._most or len(asked) > _LONGEST:
            return
        if len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]
        self._kept[asked] = kept

    def __len__(self) -> int:
        return len(self._kept)
