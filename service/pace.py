"""Deadlines: how many milliseconds a client gives, and the beam that fits into them by what searches took lately."""

from __future__ import annotations

import re

from service.problems import RefusedError, problem

_AHEAD = 0.05  # share of the newest search in the mean
_MILLISECONDS = re.compile(r"\d{1,9}(\.\d{1,6})?", re.ASCII)


class Pace:
    """What a node of the beam took lately, in seconds."""

    def __init__(self) -> None:
        self._per_node = 5e-6

    def within(self, beam: int, seconds: float) -> int:
        """The widest beam, not above the one asked for, that should be done in time."""
        return max(1, min(beam, int(seconds / self._per_node)))

    def took(self, beam: int, seconds: float) -> None:
        self._per_node += _AHEAD * (seconds / beam - self._per_node)


def deadline_of(given: str | None) -> float | None:
    """Seconds after the request came by which it wants its answer, from X-Deadline-Ms; None: it did not say."""
    if given is None:
        return None
    if not _MILLISECONDS.fullmatch(given) or float(given) == 0:
        raise RefusedError(problem(400, "deadline", f"X-Deadline-Ms must be a number above 0, got {given[:20]!r}"))
    return float(given) / 1e3
