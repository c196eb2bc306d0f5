"""Bodies in and out, each defined once: what decodes and encodes them also writes the OpenAPI document.

What a type can say, it says (ranges, lengths, unknown fields); service/reading.py adds what concerns several values.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from core.merge import Origin
from core.served import Rank, Reason, Source

encode = msgspec.json.Encoder().encode
MOST_IDS = 1000
AdId = Annotated[str, Meta(min_length=1, max_length=256)]
AdIds = Annotated[list[AdId], Meta(max_length=MOST_IDS)]
Text = Annotated[str, Meta(max_length=1000, description="a query, as it was typed")]


class Features(Struct, forbid_unknown_fields=True, frozen=True):
    """A query as features of the online model: distinct ids, and a value for each."""

    indices: Annotated[list[Annotated[int, Meta(ge=0, le=2**31 - 1)]], Meta(max_length=MOST_IDS)]
    values: Annotated[list[Annotated[float, Meta(ge=0, le=1e9)]], Meta(max_length=MOST_IDS)]


class Wishes(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What an answer is to be; everything may be left out."""

    k: Annotated[int, Meta(ge=1, le=100, description="ads at most")] = 10
    beam: (
        Annotated[int, Meta(ge=1, le=100, description="nodes kept per level; as the model was trained if left out")]
        | UnsetType
    ) = UNSET
    threshold: Annotated[float, Meta(ge=0, le=1, description="least relevance of an ad")] = 0.0
    source: Annotated[Source, Meta(description="table and model merged, or one alone")] = "auto"
    rank: Annotated[Rank, Meta(description="by relevance, or by relevance · bid · quality")] = "relevance"
    exclude: Annotated[AdIds, Meta(description="ads not to answer; unknown ones are ignored")] = []
    candidates: (
        Annotated[list[AdId], Meta(min_length=1, max_length=MOST_IDS, description="score just these")] | UnsetType
    ) = UNSET


class PredictRequest(Wishes, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One query, as text or as features."""

    query: Text | UnsetType = UNSET
    features: Features | UnsetType = UNSET


class BatchRequest(Wishes, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Many queries, with the same wishes."""

    queries: Annotated[list[Text], Meta(min_length=1)]


class Ad(Struct, frozen=True, gc=False):
    """An ad and the probability that it is clicked."""

    ad: str
    relevance: float
    source: Origin
    rank_score: float


class PredictAnswer(Struct, frozen=True):
    """Ads, best first; where there are none, the reason."""

    release: str
    degraded: bool
    ads: list[Ad]
    reason: Reason | None


class OneAnswer(Struct, frozen=True):
    """The ads of one query of a batch; where there are none, the reason."""

    ads: list[Ad]
    reason: Reason | None


class BatchAnswer(Struct, frozen=True):
    """Answers in the order of the queries."""

    release: str
    degraded: bool
    answers: list[OneAnswer]


class WordPush(Struct, frozen=True):
    """How far a word moves a logit: of one edge, or of all edges on the way, in the mean of the trees."""

    word: str
    push: float


class PathEdge(Struct, frozen=True):
    """A step towards the ad: the edge out of a node, its probability, what the constant feature and the words push."""

    node: int
    probability: float
    bias: float
    words: list[WordPush]


class TreePath(Struct, frozen=True):
    """One tree's way to the ad: its score is factor · probability of the last edge."""

    score: float
    factor: float
    path: list[PathEdge]


class ModelWhy(Struct, frozen=True):
    """What the model says: the mean over its trees."""

    score: float
    trees: list[TreePath]


class TableWhy(Struct, frozen=True):
    """What the table says: the ad's place in the query's row, from 1, and its score."""

    rank: int
    score: float


class ExplainAnswer(Struct, frozen=True):
    """Why an ad has its relevance for a query. source is null where neither names the ad; model is null where it does
    not know the ad, or none of the words."""

    release: str
    query: str
    ad: str
    title: str
    url: str
    relevance: float
    source: Origin | None
    words: list[WordPush]
    model: ModelWhy | None
    table: TableWhy | None


class TableEntry(Struct, frozen=True, gc=False):
    """An ad in a row of the table, with the labelwise model's score."""

    ad: str
    score: float


class TableRow(Struct, frozen=True):
    """What the table says about a query, in its canonical form."""

    release: str
    query: str
    ads: list[TableEntry]


class Health(Struct, frozen=True, omit_defaults=True):
    """Whether the service is live or ready."""

    status: str
    release: str | None = None


class OneRelease(Struct, frozen=True):
    """A published release."""

    name: str
    created: str
    kind: str
    served: bool
    figures: dict[str, float]


class Releases(Struct, frozen=True):
    """What CURRENT says, what this process serves, and what there is."""

    current: str | None
    served: str | None
    releases: list[OneRelease]


class Reloaded(Struct, frozen=True):
    """What became of a wish to serve another release."""

    result: Literal["loaded", "unchanged", "refused"]
    release: str | None
    detail: str | None = None


class RollbackRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Which release to serve; the one before the current one if left out."""

    to: Annotated[str, Meta(max_length=100)] | None = None


_Word = Annotated[str, Meta(max_length=1000)]
_Number = Annotated[float, Meta(ge=0, le=3.4e38)]


class NewAd(Struct, forbid_unknown_fields=True, frozen=True):
    """An ad as the catalogue has it; its words are those of title and text."""

    ad_id: AdId
    title: _Word
    text: Annotated[str, Meta(max_length=100_000)] = ""
    url: Annotated[str, Meta(max_length=2000)] = ""
    bid: _Number = 1.0
    quality: _Number = 1.0


class LabelwiseRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Fill the query→ad table anew for a changed catalogue: ads given here, or in a file of the data directory."""

    ads: Annotated[list[NewAd], Meta(min_length=1)] | UnsetType = UNSET
    file: (
        Annotated[str, Meta(min_length=1, max_length=1000, description=".csv, .csv.gz or .parquet, by its path inside")]
        | UnsetType
    ) = UNSET
    mode: Annotated[
        Literal["add", "replace"],
        Meta(description="add: the ads are new or changed, all others stay; replace: they are the whole catalogue"),
    ] = "add"


JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class Job(Struct, frozen=True):
    """A job: how far it is, what it does at the moment, and what came of it: a release, or a cause."""

    id: str
    state: JobState
    mode: Literal["add", "replace"]
    ads: str
    created: str
    started: str | None
    ended: str | None
    step: str | None
    progress: float
    release: str | None
    detail: str | None


class Jobs(Struct, frozen=True):
    """The jobs, newest first."""

    jobs: list[Job]
