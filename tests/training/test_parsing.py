"""The fast parser accepts exactly what the plain one does, and reads the same numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import broken_values, lines, text_values
from training.parsing import explain_line, parse_rows

VALUE = re.compile(r"\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?", re.ASCII)


def plain(line: str, n_features: int, n_labels: int) -> tuple[list[int], list[tuple[int, float]]] | None:
    """Python's own reading of a single-file line; None where it is not one."""
    if line and not line[0].isspace() and " " not in line:
        return None
    head, _, rest = line.partition(" ")
    try:
        if any(not re.fullmatch(r"\d+", word) for word in head.split(",") if head):
            return None
        labels = [int(word) for word in head.split(",")] if head else []
        pairs = [token.split(":") for token in rest.split()]
        if any(len(p) != 2 or not re.fullmatch(r"\d+", p[0]) or not VALUE.fullmatch(p[1]) for p in pairs):
            return None
        features = [(int(f), float(v)) for f, v in pairs]
    except ValueError:
        return None
    good = all(v <= float(np.finfo(np.float32).max) for _, v in features)
    good = good and all(label < n_labels for label in labels) and all(f < n_features for f, _ in features)
    return (labels, features) if good else None


@given(st.lists(lines(20, 9, text_values()), min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_good_lines_are_read_as_python_reads_them(rows: list[str], newline: str, final: bool) -> None:
    text = newline.join(rows) + (newline if final else "")
    if not text:
        return
    features, labels, bad, seen = parse_rows(np.frombuffer(text.encode(), np.uint8), len(rows), 20, 9)
    if not final and not rows[-1]:
        return  # a last line of nothing, without its newline, is no line
    assert (bad, seen) == (-1, len(rows))
    for i, row in enumerate(rows):
        expected = plain(row, 20, 9)
        assert expected is not None
        assert labels.indices[labels.indptr[i] : labels.indptr[i + 1]].tolist() == expected[0]
        got = features.indices[features.indptr[i] : features.indptr[i + 1]].tolist()
        assert got == [f for f, _ in expected[1]]
        values = features.values[features.indptr[i] : features.indptr[i + 1]]
        assert values == pytest.approx(np.array([v for _, v in expected[1]], np.float32), rel=1e-6)


@given(st.one_of(lines(5, 3, broken_values()), st.text("0123456789:,. -eE\tn", max_size=12)))
def test_a_line_is_refused_exactly_when_python_refuses_it(line: str) -> None:
    if not line or line.strip("\t") != line:
        return
    _, _, bad, _ = parse_rows(np.frombuffer((line + "\n").encode(), np.uint8), 1, 5, 3)
    tabless = line.replace("\t", " ")
    assert (bad == 0) == (plain(tabless, 5, 3) is None)
    if bad == 0:
        assert explain_line(line, 5, 3)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("7 0:1", "label id 7 is out of range; the header says 3"),
        ("1,x 0:1", "label id 'x' is not a number"),
        ("1 9:1", "feature id 9 is out of range; the header says 5"),
        ("1 0:nan", "feature 0: the value is not a number"),
        ("1 0:inf", "feature 0: the value is infinite"),
        ("1 0:-2", "feature 0: the value -2 is negative"),
        ("1 0:abc", "feature 0: 'abc' is not a number"),
        ("1 0:1e300", "too large for a 32-bit float"),
        ("1 0:1 2", "feature 2 has no value: truncated?"),
        ("1 0:1 2:", "feature 2 has no value: truncated?"),
        ("1,2", "the line ends after its labels: truncated?"),
    ],
)
def test_the_cause_is_named(line: str, cause: str) -> None:
    assert parse_rows(np.frombuffer(line.encode(), np.uint8), 1, 5, 3)[2] == 0
    assert cause in explain_line(line, 5, 3)
