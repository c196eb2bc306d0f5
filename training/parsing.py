"""The repository's text rows, parsed by one Numba pass over the bytes.

Grammar of a line, after the header:

    single file   [label{,label}] SPACE {SPACE} [feature:value {SPACE feature:value}]
    pairs         [index:value {SPACE index:value}]

A value is decimal digits with an optional fraction and exponent: no sign, no `nan`, no `inf`. The kernel
only says *which* line it does not accept; `explain_line` then finds the cause in plain Python, so that the fast
path carries no messages. Tests hold the two to each other.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s

Bytes = npt.NDArray[np.uint8]

_SPACE, _NEWLINE, _RETURN, _COMMA, _COLON, _DOT, _TAB = 32, 10, 13, 44, 58, 46, 9
_LARGEST = float(np.finfo(np.float32).max)
_VALUE = re.compile(r"\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?", re.ASCII)


def count_lines(text: Bytes) -> int:
    """Lines of a text; the last may lack its newline."""
    return _count(text, _NEWLINE) + int(text.size > 0 and text[-1] != _NEWLINE)


def parse_rows(text: Bytes, n_rows: int, n_features: int, n_labels: int) -> tuple[Csr, Csr, int, int]:
    """Parse the first `n_rows` lines of a text. With n_labels = 0 the lines are pairs, without a label list.

    Returns features, labels (value 1 each), the number of the first bad row (or -1) and the rows seen in the
    text, which the caller compares with its header. Rows are as written: unsorted, with duplicates.
    """
    room = _count(text, _COLON)
    label_room = _count(text, _COMMA) + n_rows if n_labels else 0
    indptr, indices, values = np.zeros(n_rows + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
    label_indptr, label_ids = np.zeros(n_rows + 1, np.int64), np.empty(label_room, np.int32)
    bad, seen = _parse(text, n_features, n_labels, indptr, indices, values, label_indptr, label_ids)
    features = Csr(indptr, indices[: indptr[-1]], values[: indptr[-1]], n_features)
    n_label_ids = int(label_indptr[-1])
    labels = Csr(label_indptr, label_ids[:n_label_ids], np.ones(n_label_ids, np.float32), n_labels)
    return features, labels, bad, seen


@kernel()
def _count(text: Bytes, byte: int) -> int:
    n = 0
    for j in range(text.size):
        n += text[j] == byte
    return n


@kernel()
def _parse(
    text: Bytes,
    n_features: int,
    n_labels: int,
    indptr: Int64s,
    indices: Int32s,
    values: Floats,
    label_indptr: Int64s,
    label_ids: Int32s,
) -> tuple[int, int]:
    n_rows = indptr.size - 1
    at, row, n_pairs, n_ids = 0, 0, 0, 0
    size = text.size
    while at < size and row < n_rows:
        if n_labels > 0:
            at, n_ids, ok = _label_list(text, at, n_labels, label_ids, n_ids)
            if not ok:
                return row, row
        while True:
            while at < size and (text[at] == _SPACE or text[at] == _TAB or text[at] == _RETURN):
                at += 1
            if at >= size or text[at] == _NEWLINE:
                break
            at, feature = _integer(text, at, n_features)
            if feature < 0 or at >= size or text[at] != _COLON:
                return row, row
            at, value = _decimal(text, at + 1)
            if value < 0.0 or (at < size and not _ends_token(text[at])):
                return row, row
            indices[n_pairs] = feature
            values[n_pairs] = value
            n_pairs += 1
        at += 1
        row += 1
        indptr[row] = n_pairs
        label_indptr[row] = n_ids
    seen = row
    for j in range(at, size):  # lines beyond the promised number: counted, not parsed
        if text[j] == _NEWLINE or j == size - 1:
            seen += 1
    return -1, seen


@kernel(inline=True)
def _ends_token(byte: int) -> bool:
    return byte in (_SPACE, _NEWLINE, _RETURN, _TAB)


@kernel()
def _label_list(text: Bytes, at: int, n_labels: int, label_ids: Int32s, n_ids: int) -> tuple[int, int, bool]:
    """Labels up to the first space; an empty line and a line that begins with a space have none."""
    size = text.size
    if _ends_token(text[at]):
        return at, n_ids, True
    while True:
        at, label = _integer(text, at, n_labels)
        if label < 0:
            return at, n_ids, False
        label_ids[n_ids] = label
        n_ids += 1
        if at < size and text[at] == _COMMA:
            at += 1
            continue
        return at, n_ids, at < size and (text[at] == _SPACE or text[at] == _TAB)


@kernel()
def _integer(text: Bytes, at: int, limit: int) -> tuple[int, int]:
    """Digits below `limit`; -1 where there is no digit or the number is too large."""
    start, number = at, 0
    while at < text.size and 48 <= text[at] <= 57:
        number = number * 10 + (text[at] - 48)
        if number >= limit:
            return at, -1
        at += 1
    return (at, number) if at > start else (at, -1)


@kernel()
def _decimal(text: Bytes, at: int) -> tuple[int, float]:
    """digits[.digits][e[±]digits] as a float; -1.0 where it is none or exceeds float32."""
    mantissa, digits, exponent, seen, size = 0, 0, 0, 0, text.size
    while at < size and 48 <= text[at] <= 57:
        if digits < 18:
            mantissa = mantissa * 10 + (text[at] - 48)
            digits += 1 if mantissa > 0 else 0
        else:
            exponent += 1
        seen += 1
        at += 1
    if at < size and text[at] == _DOT:
        at += 1
        while at < size and 48 <= text[at] <= 57:
            if digits < 18:
                mantissa = mantissa * 10 + (text[at] - 48)
                digits += 1 if mantissa > 0 else 0
                exponent -= 1
            seen += 1
            at += 1
    if seen == 0:
        return at, -1.0
    if at < size and (text[at] == 101 or text[at] == 69):
        at += 1
        sign = 1
        if at < size and (text[at] == 43 or text[at] == 45):
            sign = -1 if text[at] == 45 else 1
            at += 1
        power, seen = 0, 0
        while at < size and 48 <= text[at] <= 57:
            power = min(power * 10 + (text[at] - 48), 9999)
            seen += 1
            at += 1
        if seen == 0:
            return at, -1.0
        exponent += sign * power
    value = _scaled(mantissa, exponent)
    return at, value if value <= _LARGEST else -1.0


@kernel()
def _scaled(mantissa: int, exponent: int) -> float:
    """mantissa · 10^exponent; powers up to 22 are exact in a double, so usual numbers round correctly."""
    value = np.float64(mantissa)
    if value == 0.0:
        return 0.0
    if exponent < 0:
        while exponent < -300:
            value /= 1e300
            exponent += 300
        return float(value / 10.0 ** (-exponent))
    return float(value * 10.0 ** min(exponent, 300))


def explain_line(line: str, n_features: int, n_labels: int) -> str:
    """What is wrong with a line that the kernel did not accept."""
    rest = line.rstrip("\r\n")
    if n_labels and rest and not rest[0].isspace():
        labels, _, rest = rest.replace("\t", " ").partition(" ")
        for label in labels.split(","):
            cause = _explain_id("label", label, n_labels)
            if cause:
                return cause
        if labels == line.rstrip("\r\n"):
            return "the line ends after its labels: truncated?"
    for token in rest.split():
        kind = "feature" if n_labels else "index"
        index, colon, value = token.partition(":")
        cause = _explain_id(kind, index, n_features)
        if cause:
            return cause
        if not colon or not value:
            return f"{kind} {index} has no value: truncated?"
        cause = _explain_value(value)
        if cause:
            return f"{kind} {index}: {cause}"
    return "the line has characters that do not belong there"


def _explain_id(kind: str, text: str, limit: int) -> str | None:
    if not (text.isascii() and text.isdigit()):
        return f"{kind} id {text!r} is not a number from 0 to {limit - 1}"
    if len(text.lstrip("0")) > 10 or int(text) >= limit:
        return f"{kind} id {text[:20]} is out of range; the header says {limit} (0 … {limit - 1})"
    return None


def _explain_value(text: str) -> str | None:
    lowered = text.lower().lstrip("+-")
    if lowered == "nan":
        return "the value is not a number (NaN)"
    if lowered in ("inf", "infinity"):
        return "the value is infinite"
    if text.startswith("-"):
        return f"the value {text} is negative; values must be 0 or more"
    if not _VALUE.fullmatch(text):
        return f"{text!r} is not a number"
    if float(text) > _LARGEST:
        return f"the value {text} is too large for a 32-bit float"
    return None
