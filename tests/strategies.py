"""Hypothesis strategies, in one place."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from core.sparse import Csr, from_scipy


def text_values() -> st.SearchStrategy[str]:
    """Numbers as people write them in data files."""
    plain = st.floats(0, 1e6, allow_nan=False).map(repr)
    short = st.decimals(0, 100, places=4).map(str)
    return st.one_of(plain, short, st.integers(0, 10**25).map(str), st.sampled_from(["0", "1e-3", "2E+2", ".5", "3."]))


def broken_values() -> st.SearchStrategy[str]:
    return st.sampled_from(
        ["nan", "NaN", "inf", "-1", "-0.5", "", "1.2.3", "e5", "1e", "0x10", "1e99", "½", "+1", "1_0"]
    )


@st.composite
def lines(draw: st.DrawFn, n_features: int, n_labels: int, values: st.SearchStrategy[str]) -> str:
    """A line of the single-file form; ids may repeat and come in any order."""
    labels = draw(st.lists(st.integers(0, n_labels - 1), max_size=4))
    features = draw(st.lists(st.tuples(st.integers(0, n_features - 1), values), max_size=6))
    return ",".join(map(str, labels)) + " " + " ".join(f"{f}:{v}" for f, v in features)


@st.composite
def matrices(draw: st.DrawFn, rows: int, cols: int, density: float = 0.3) -> Csr:
    """Sparse non-negative matrices with many ties."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dense = random.integers(1, 5, (rows, cols)) / 4 * (random.random((rows, cols)) < density)
    return from_scipy(sparse.csr_matrix(dense))


TableRows = dict[str, list[tuple[int, float]]]


def table_rows() -> st.SearchStrategy[TableRows]:
    """Query → (ad, score), best first; some queries without ads."""
    score = st.floats(-1e6, 1e6, width=32)
    row = st.lists(st.tuples(st.integers(0, 2**31 - 1), score), max_size=5, unique_by=lambda entry: entry[0])
    falling = row.map(lambda entries: sorted(entries, key=lambda entry: -entry[1]))
    return st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=6), falling, max_size=12)
