"""What a person decides about an ingest, as one frozen value with defaults and checks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from core.errors import UsageError
from core.text import VocabularyLimits

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = 253_402_300_800  # seconds to the year 10000: what is later was not meant as seconds


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Everything that decides which data set comes out of which files.

    hold_out         share held out: of the time span where the log has times (the end of it), else of the queries
    since            events from this time on are held out (ISO 8601, or Unix seconds); None: by `hold_out`
    min_impressions  a pair shown less often gets relevance 0
    min_clicks       a pair with fewer clicks gets relevance 0
    prior            (a, b) of the rates' Gamma prior: relevance = (clicks + a) / (impressions + b); None: fitted
    share_prior      in a log of clicks only, relevance = clicks / (clicks of the query + share_prior)
    positions        positions with an examination probability of their own; those beyond share one
    most_rejected    share of the rows that may be unusable; above it the ingest fails
    rejects_written  rows at most in rejects.csv; all are counted
    words            which words of queries and of ads become features
    """

    hold_out: float = 0.1
    since: str | None = None
    min_impressions: float = 1
    min_clicks: float = 0
    prior: tuple[float, float] | None = None
    share_prior: float = 1.0
    positions: int = 20
    most_rejected: float = 0.05
    rejects_written: int = 100_000
    words: VocabularyLimits = field(default_factory=VocabularyLimits)

    def __post_init__(self) -> None:
        _must(0 <= self.hold_out < 1, "hold_out must be at least 0 and below 1", self.hold_out)
        _must(
            self.since is None or parse_time(self.since.encode("utf-8", "replace")) is not None,
            "since must be a time as ISO 8601 or in Unix seconds",
            self.since,
        )
        _must(0 <= self.min_impressions < math.inf, "min_impressions must be 0 or more", self.min_impressions)
        _must(0 <= self.min_clicks < math.inf, "min_clicks must be 0 or more", self.min_clicks)
        if self.prior is not None:
            holds = len(self.prior) == 2 and all(0 < x < math.inf for x in self.prior)
            _must(holds, "prior must be two numbers above 0, a and b", self.prior)
        _must(0 <= self.share_prior < math.inf, "share_prior must be 0 or more", self.share_prior)
        _must(1 <= self.positions <= 250, "positions must be between 1 and 250", self.positions)
        _must(0 <= self.most_rejected <= 1, "most_rejected must be between 0 and 1", self.most_rejected)
        _must(self.rejects_written >= 0, "rejects_written must be 0 or more", self.rejects_written)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _must(holds: bool, rule: str, got: object) -> None:
    if not holds:
        raise UsageError(f"{rule}, got {got}")


def parse_time(text: bytes) -> int | None:
    """Microseconds since 1970 of a time as ISO 8601 (UTC where it names no zone) or in Unix seconds, or None."""
    try:
        seconds = float(text)
        return round(seconds * 1e6) if abs(seconds) < LATEST else None
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text.decode("ascii").strip())
        since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def time_as_text(time: int) -> str:
    """ISO 8601 in UTC; a whole second has no fraction."""
    return datetime.fromtimestamp(time // 1_000_000, UTC).replace(microsecond=time % 1_000_000).isoformat()
