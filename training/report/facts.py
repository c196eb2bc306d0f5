"""What a release's report is made of: the structure of its stats.json.

Plain JSON: objects, lists, text, numbers. Any part may be missing (the report says so), any number may be null.
A source is whoever answered: "merged" (what is served), "table", "model", or a baseline by name. Shares and rates are
in 0 … 1; figures are as core.metrics gives them (ranking figures in percent).

    {"release": {"name": "2026-11-18T03-12", "created": "2026-11-18T03:12:44Z", "xreg": "0.3.0", "parent": null,
                 "data": "market", "forced": false, "merge": {"rule": "maximum", "weight": 0.6},
                 "gate": [{"figure": "WP@5", "before": 61.2, "after": 61.9, "allowed": 60.2, "failed": false}]},
     "figures": {"merged": {"WP@1": 58.1, …}, "bm25": {…}},
     "reliability": {"merged": {"before": [{"predicted": 0.02, "observed": 0.03, "weight": 812}], "after": […]}},
     "ece": {"merged": {"before": 0.021, "after": 0.004, "rate": 0.062}},
     "precision_recall": {"merged": [{"threshold": 0.01, "precision": 0.05, "recall": 0.9}]},
     "coverage": {"unseen": {"merged": 0.93, "table": 0.88, "model": 0.71}},
     "sizes": {"table": 31000000}, "counts": {"ads": 20000, "queries": 50000},
     "previous": {"WP@5": [61.2, 61.9]},
     "rows": 1000000, "rejects": {"unknown ad": 120},
     "examples": [{"query": "running shoes",
                   "ads": [{"ad": "a17", "title": "…", "relevance": 0.12, "source": "table"}]}]}
"""

from __future__ import annotations

from typing import Any, TypedDict

Number = float | None
SOURCES = ("merged", "table", "model", "popular", "bm25", "memory")  # in this order; others follow
SERVED = SOURCES[:3]
BUCKETS = ("unseen", "1", "2–4", "5–19", "20–99", "100+")  # of a query's training impressions


class GateFigure(TypedDict):
    """One comparison of the gate. `allowed` is the worst value that would have passed."""

    figure: str
    before: Number
    after: Number
    allowed: Number
    failed: bool


class ReleaseFacts(TypedDict, total=False):
    """The release itself. `parent` is the release it was compared with; `merge` the merge rule, part by part."""

    name: str
    created: str
    xreg: str
    parent: str | None
    data: str
    forced: bool
    gate: list[GateFigure]
    merge: dict[str, Any]


class ReliabilityPoint(TypedDict):
    """A run of neighbouring scores: their mean, the click rate observed, and how many (or how much) they are."""

    predicted: Number
    observed: Number
    weight: Number


class Reliability(TypedDict, total=False):
    """Of one source, without and with the release's calibration."""

    before: list[ReliabilityPoint]
    after: list[ReliabilityPoint]


class CalibrationError(TypedDict, total=False):
    """Expected calibration error without and with calibration; `rate` is the mean click rate, to compare it with."""

    before: Number
    after: Number
    rate: Number


class Threshold(TypedDict):
    """Of all pairs scored at least `threshold`: mean relevance, and the share of all relevant pairs."""

    threshold: Number
    precision: Number
    recall: Number


class ExampleAd(TypedDict, total=False):
    """An answer. `source` says where it came from."""

    ad: str
    title: str
    url: str
    relevance: Number
    source: str


class Example(TypedDict):
    """A query and its best ads, best first."""

    query: str
    ads: list[ExampleAd]


class Facts(TypedDict, total=False):
    """All of it. `sizes` are bytes by part of the release; `previous` holds [old, new] of every figure compared;
    `rows` is the number of rows read, `rejects` how many of them could not be used, by reason."""

    release: ReleaseFacts
    figures: dict[str, dict[str, Number]]
    reliability: dict[str, Reliability]
    ece: dict[str, CalibrationError]
    precision_recall: dict[str, list[Threshold]]
    coverage: dict[str, dict[str, Number]]
    sizes: dict[str, int]
    counts: dict[str, int]
    previous: dict[str, list[Number]]
    rows: int
    rejects: dict[str, int]
    examples: list[Example]


def ordered(sources: Any) -> list[str]:
    """The sources that are there: the usual ones first, in their order."""
    return [*(s for s in SOURCES if s in sources), *(s for s in sources if s not in SOURCES)]


def slots(sources: Any) -> dict[str, int]:
    """A source has the same colour in every chart."""
    return {s: SOURCES.index(s) if s in SOURCES else len(SOURCES) + i for i, s in enumerate(ordered(sources))}
