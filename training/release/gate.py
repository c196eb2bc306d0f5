"""The gate: a release that is clearly worse than the one being served is not published.

Both are judged on the same held-out queries. Small differences are noise and pass; a figure that falls by more than its
allowance stops the release, and the message says which and by how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

from core.errors import GateError


class Allowance(NamedTuple):
    """By how much a figure may get worse: by this share of what it was, and by this much in its own unit besides."""

    higher_is_better: bool
    share: float
    amount: float


ALLOWED = {
    "WP@5": Allowance(True, 0.03, 0.5),
    "XMAD@5": Allowance(False, 0.05, 0.002),
    "ECE@10": Allowance(False, 0.25, 0.01),
    "query coverage": Allowance(True, 0.03, 0.5),
    "table queries": Allowance(True, 0.1, 10.0),
    "megabytes": Allowance(False, 1.0, 10.0),
}


class Check(NamedTuple):
    """One figure, before and after."""

    figure: str
    before: float
    after: float
    allowed: float
    failed: bool

    def __str__(self) -> str:
        direction = "fell" if self.after < self.before else "rose"
        return f"{self.figure} {direction} from {self.before:.4g} to {self.after:.4g} (allowed: {self.allowed:.4g})"


def compare(before: Mapping[str, float], after: Mapping[str, float]) -> list[Check]:
    """Every figure of the gate that both releases have."""
    checks = []
    for figure, rule in ALLOWED.items():
        if figure not in before or figure not in after:
            continue
        sign = -1.0 if rule.higher_is_better else 1.0
        allowed = before[figure] + sign * (abs(before[figure]) * rule.share + rule.amount)
        failed = not sign * (after[figure] - allowed) <= 0  # so that NaN, which is no judgement, does not pass
        checks.append(Check(figure, before[figure], after[figure], allowed, failed))
    return [_pardoned(check, checks) for check in checks]


def _pardoned(check: Check, checks: list[Check]) -> Check:
    """Held-out relevances lean on their prior, and large errors can grow while probabilities get right: XMAD stops a
    release only where the calibration error has not fallen."""
    better = any(other.figure == "ECE@10" and other.after < other.before for other in checks)
    return check._replace(failed=False) if check.figure == "XMAD@5" and better and isfinite(check.after) else check


def enforce(checks: list[Check], force: bool) -> None:
    failed = [check for check in checks if check.failed]
    if failed and not force:
        raise GateError(
            f"not published, since it is worse than the release being served: {'; '.join(map(str, failed))}. "
            "--force publishes it all the same"
        )
