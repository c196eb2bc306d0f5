"""What is said when a request is refused: RFC 9457 problems, which name the field and what must hold.

A body that is no JSON is 400, one that says something impossible 422. msgspec says what it expected and where; here the
value that came is added. Where the bytes are no text or no JSON, a tolerant reader looks for the field.
"""

from __future__ import annotations

import json
import math
import re
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from core.errors import XregError

_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(.*)`$", re.DOTALL)


class Fault(Struct, frozen=True):
    """One thing that is wrong: where (a JSON pointer into the body), and what must hold."""

    pointer: str
    detail: str


class Problem(Struct, frozen=True):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] = []


class RefusedError(Exception):
    """A request that gets a problem for an answer."""

    def __init__(self, problem: Problem, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(problem.detail)
        self.problem, self.headers = problem, headers


def problem(status: int, kind: str, detail: str, *errors: Fault) -> Problem:
    return Problem(f"urn:xreg:problem:{kind}", HTTPStatus(status).phrase, status, detail, list(errors))


def problem_of(error: XregError) -> Problem:
    """An error of ours: its class decides the status."""
    return problem(error.status, type(error).__name__.removesuffix("Error").lower(), str(error))


def cause_of(error: Exception) -> str:
    """An error in one line: ours speak for themselves."""
    return str(error) if isinstance(error, XregError) else f"{type(error).__name__}: {error}"


FAILURE = problem(500, "failure", "something went wrong; the log says what, by the request's id")


def invalid(*faults: Fault) -> Problem:
    first = faults[0]
    return problem(422, "invalid", f"{first.pointer or 'the body'}: {first.detail}", *faults)


def faults_of(body: bytes, error: msgspec.ValidationError) -> list[Fault]:
    """msgspec's complaint with a pointer and the value that came."""
    found = _WHERE.match(str(error))
    assert found is not None  # it matches anything
    what, steps = found["what"], [name or int(at) for name, at in _STEP.findall(found["path"] or "")]
    unknown, missing = _UNKNOWN.match(what), _MISSING.match(what)
    if unknown:
        return [Fault(_pointer([*steps, unknown[1]]), "is not a known field")]
    if missing:
        return [Fault(_pointer([*steps, missing[1]]), "must be given")]
    what = what.replace("`", "").replace(">=", "≥").replace("<=", "≤")
    what = re.sub(r"^Expected ", "must be ", what)
    what = re.sub(r"^Invalid enum value .*$", "must be one of the values in /openapi.json", what, flags=re.DOTALL)
    return [Fault(_pointer(steps), what if ", got " in what else f"{what}, got {_shown(body, steps)}")]


def not_json(body: bytes, error: Exception) -> Problem:
    """No JSON, or no text; the field is named where a tolerant reader can find it."""
    try:
        read = json.loads(body.decode("utf-8", "surrogateescape"))
        faults = _unreadable(read, [])
    except (ValueError, RecursionError):
        faults = []
    cause = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    fault = faults[0] if faults else Fault("", f"must be JSON in UTF-8: {_printable(cause)}")
    return problem(400, "not-json", f"{fault.pointer or 'the body'}: {fault.detail}", fault)


def _unreadable(value: Any, steps: list[str | int]) -> list[Fault]:
    """Strings that are no Unicode and numbers that are none."""
    if isinstance(value, dict):
        keys = [Fault(_pointer(steps), "has a field whose name is not Unicode") for key in value if _is_broken(key)]
        return keys[:1] or [fault for key, inner in value.items() for fault in _unreadable(inner, [*steps, key])]
    if isinstance(value, list):
        return [fault for i, inner in enumerate(value) for fault in _unreadable(inner, [*steps, i])]
    if isinstance(value, str) and _is_broken(value):
        return [Fault(_pointer(steps), "must be Unicode text, got a lone surrogate or invalid UTF-8")]
    if isinstance(value, float) and not math.isfinite(value):
        return [Fault(_pointer(steps), f"must be a finite number, got {value}")]
    return []


def _is_broken(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _shown(body: bytes, steps: list[str | int]) -> str:
    """The value at a place of a body, short; the body is JSON up to there."""
    try:
        value = json.loads(body)
        for step in steps:
            value = value[step]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "something else"
    if isinstance(value, (str, list)) and len(value) > 20:
        return f"{len(value)} {'characters' if isinstance(value, str) else 'entries'}"
    return _printable(json.dumps(value))


def _printable(text: str) -> str:
    cut = text if len(text) <= 80 else text[:79] + "…"
    return cut.encode("utf-8", "replace").decode()


def _pointer(steps: list[str | int]) -> str:
    return "".join("/" + _printable(str(step)).replace("~", "~0").replace("/", "~1") for step in steps)
