"""Bodies that come in: decoded strictly, and refused with every fault that was found, named by a JSON pointer.

The fast way looks at a body once; only one that is refused is looked at again, slowly, to say why.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from service.problems import Fault, RefusedError, faults_of, invalid, not_json
from service.schemas import (
    BatchRequest,
    Features,
    LabelwiseRequest,
    NewAd,
    PredictRequest,
    RollbackRequest,
    Wishes,
)

Body = TypeVar("Body")
_BODIES = (PredictRequest, BatchRequest, LabelwiseRequest, RollbackRequest)
_INSIDE = {Features: "/features", NewAd: "/ads"}  # objects inside bodies, and where
_decoders: dict[type, msgspec.json.Decoder[Any]] = {body: msgspec.json.Decoder(body) for body in _BODIES}
_fields = {name: None for body in (*_BODIES, *_INSIDE) for name in body.__struct_fields__}
_NAMES = [f'"{name}"'.encode() for name in _fields]


def read_predict(body: bytes) -> PredictRequest:
    """The request in a body; raises RefusedError with every fault that was found."""
    asked = _decoded(body, PredictRequest)
    text, vector = asked.query is not UNSET, asked.features is not UNSET
    if text == vector or vector or asked.exclude or asked.candidates is not UNSET:
        _refuse_if(_wrong_point(asked) + _wrong_wishes(asked))
    return asked


def read_batch(body: bytes, most: int) -> BatchRequest:
    asked, faults = _decoded(body, BatchRequest), list[Fault]()
    if len(asked.queries) > most:
        faults.append(Fault("/queries", f"must be {most} at most, got {len(asked.queries)}"))
    _refuse_if(faults + _wrong_wishes(asked))
    return asked


def read_labelwise(body: bytes) -> LabelwiseRequest:
    asked = _decoded(body, LabelwiseRequest)
    given, named = asked.ads is not UNSET, asked.file is not UNSET
    if given == named:
        said = "must not be given beside ads" if given else "one of ads and file must be given"
        raise RefusedError(invalid(Fault("/file" if given else "", said)))
    if asked.ads is not UNSET:
        _refuse_if(_twice("/ads", [ad.ad_id for ad in asked.ads]))
    return asked


def read_rollback(body: bytes) -> RollbackRequest:
    return _decoded(body, RollbackRequest) if body else RollbackRequest()


def _decoded(body: bytes, kind: type[Body]) -> Body:
    try:
        asked: Body = _decoders[kind].decode(body)
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
        inside = next((where for body, where in _INSIDE.items() if twice in body.__struct_fields__), "")
        raise RefusedError(invalid(Fault(f"{inside}/{twice}", "must be given once")))


def _refuse_if(faults: list[Fault]) -> None:
    if faults:
        raise RefusedError(invalid(*faults))


def _wrong_point(asked: PredictRequest) -> list[Fault]:
    """What is wrong between query and features that are right one by one."""
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
    return faults


def _wrong_wishes(asked: Wishes) -> list[Fault]:
    return _twice("/exclude", asked.exclude) + _twice(
        "/candidates", [] if asked.candidates is UNSET else asked.candidates
    )


def _twice(pointer: str, given: list[Any]) -> list[Fault]:
    if len(set(given)) == len(given):
        return []
    first = {one: at for at, one in reversed(list(enumerate(given)))}
    at = next(at for at, one in enumerate(given) if first[one] < at)
    return [Fault(f"{pointer}/{at}", f"must be distinct, got {given[at]!r} again")]
