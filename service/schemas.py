"""Bodies in and out, each defined once: what decodes and encodes them also writes the OpenAPI document.

What a type can say, it says (ranges, lengths, unknown fields); `read_predict` adds what concerns several values. Every
refusal names the field by a JSON pointer. The fast way looks at a body once; only one that is refused is looked at
again, slowly, to say why.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from core.merge import Origin
from core.served import Rank, Reason, Source
from service.problems import Fault, RefusedError, faults_of, invalid, not_json

MOST_IDS = 1000
AdId = Annotated[str, Meta(min_length=1, max_length=256)]
AdIds = Annotated[list[AdId], Meta(max_length=MOST_IDS)]


class Features(Struct, forbid_unknown_fields=True, frozen=True):
    """A query as features of the online model: distinct ids, and a value for each."""

    indices: Annotated[list[Annotated[int, Meta(ge=0, le=2**31 - 1)]], Meta(max_length=MOST_IDS)]
    values: Annotated[list[Annotated[float, Meta(ge=0, le=1e9)]], Meta(max_length=MOST_IDS)]


class PredictRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """One query, as text or as features; everything else may be left out."""

    query: Annotated[str, Meta(max_length=1000, description="as it was typed; or give features")] | UnsetType = UNSET
    features: Features | UnsetType = UNSET
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


_predict = msgspec.json.Decoder(PredictRequest)
_NAMES = [
    f'"{name}"'.encode() for body in (PredictRequest, Features, RollbackRequest) for name in body.__struct_fields__
]
_rollback = msgspec.json.Decoder(RollbackRequest)
encode = msgspec.json.Encoder().encode


def read_predict(body: bytes) -> PredictRequest:
    """The request in a body; raises RefusedError with every fault that was found."""
    asked: PredictRequest = _decoded(body, _predict)
    text, vector = asked.query is not UNSET, asked.features is not UNSET
    if text == vector or vector or asked.exclude or asked.candidates is not UNSET:
        faults = _faults_among(asked)
        if faults:
            raise RefusedError(invalid(*faults))
    return asked


def read_rollback(body: bytes) -> RollbackRequest:
    asked: RollbackRequest = _decoded(body, _rollback) if body else RollbackRequest()
    return asked


def _decoded(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        asked = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RefusedError(invalid(*faults_of(body, error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(not_json(body, error)) from error
    if b"\\" in body or max(map(body.count, _NAMES)) > 1:  # else no name can be there twice
        json.loads(body, object_pairs_hook=_distinct)
    return asked


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        inside = "/features" if twice in Features.__struct_fields__ else ""
        raise RefusedError(invalid(Fault(f"{inside}/{twice}", "must be given once")))


def _faults_among(asked: PredictRequest) -> list[Fault]:
    """What is wrong between values that are right one by one."""
    faults = list[Fault]()
    features = asked.features
    if asked.query is UNSET and features is UNSET:
        faults.append(Fault("", "one of query and features must be given"))
    if features is not UNSET:
        if asked.query is not UNSET:
            faults.append(Fault("/features", "must not be given beside query"))
        if asked.source == "table":
            faults.append(Fault("/source", "must be auto or model with features: the table is looked up by text"))
        if len(features.indices) != len(features.values):
            n, m = len(features.indices), len(features.values)
            faults.append(Fault("/features/values", f"must be as many as the indices: {n}, got {m}"))
        faults += _twice("/features/indices", features.indices)
    faults += _twice("/exclude", asked.exclude)
    if asked.candidates is not UNSET:
        faults += _twice("/candidates", asked.candidates)
    return faults


def _twice(pointer: str, given: list[Any]) -> list[Fault]:
    if len(set(given)) == len(given):
        return []
    first = {one: at for at, one in reversed(list(enumerate(given)))}
    at = next(at for at, one in enumerate(given) if first[one] < at)
    return [Fault(f"{pointer}/{at}", f"must be distinct, got {given[at]!r} again")]
