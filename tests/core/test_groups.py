"""Trees by group hold the regressors that trees by node hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from core.groups import group_major
from core.kernels.groups import edge_columns
from core.model import open_model
from core.trie import node_major, places_of


def test_every_weight_of_every_edge_is_there(model: Path) -> None:
    opened = open_model(model)
    e = node_major(opened.trie, opened.n_features)
    expected = np.zeros((len(e.edge_bias), opened.n_features), np.int8)
    for node in range(len(e.node_leaf)):
        rows, entries = slice(*e.row_ptr[node : node + 2]), slice(*e.entry_ptr[node : node + 2])
        row = np.searchsorted(e.row_start[rows], np.arange(entries.stop - entries.start), side="right") - 1
        feature = e.row_feature[rows][row]
        expected[e.edge_ptr[node] + e.entry_edge[entries].astype(np.int64), feature] = e.entry_weight[entries]
    g, got = group_major(opened.trie, places_of(opened.trie), opened.n_features), np.zeros_like(expected)
    for head in np.flatnonzero(g.node_head).tolist():
        ptr, features, weights = edge_columns(g, head)
        edges = g.edge_ptr[head] + np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
        got[edges, features] = weights
    assert np.array_equal(got, expected)
