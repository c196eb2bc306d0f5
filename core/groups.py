"""The trees of an ensemble by group: how labelwise inference walks through them.

A search asks many groups about one point and wants rows by feature (core/trie.py); labelwise inference asks one group
about many points and wants the rows of a group side by side. Groups, not nodes: one look at a point's features serves
all fused levels, and a row moves from one order to the other as it is. Only in narrow groups, of one vector, rows that
were not dense become so: there a vector takes hardly more space, and a point adds up without a branch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.sparse import Int, Int32s, Int64s
from core.trie import VECTOR, Entries, Places, Trie, UInt32s, is_dense, layer_rows, row_stride


class Groups(NamedTuple):
    """All trees in one set of arrays: nodes and edges as in a `Trie`, rows and entries by group, which its head names.

    tree_ptr … edge_step  as in `Trie`
    parent, parent_edge   as in `Places`
    n_edges [n]           for heads: edges of the group; they follow on edge_ptr[head]
    row_ptr [n+1]         for heads: rows of the group that have entries, by rising feature; other nodes have none
    row_feature [r]       feature of a row
    row_start [r]         first entry of a row, counted from the group's first
    entry_ptr [n+1]       entries of a group
    entry [j]             as in `Trie`: edge of the group << 8 | weight, or a dense row, as all are in a narrow group
    """

    tree_ptr: Int64s
    node_leaf: npt.NDArray[np.uint8]
    node_head: npt.NDArray[np.uint8]
    node_frac: npt.NDArray[np.float32]
    edge_ptr: Int64s
    edge_target: Int32s
    edge_bias: npt.NDArray[np.float32]
    edge_step: npt.NDArray[np.float32]
    parent: Int32s
    parent_edge: Int32s
    n_edges: Int32s
    row_ptr: Int64s
    row_feature: UInt32s
    row_start: UInt32s
    entry_ptr: Int64s
    entry: Entries


def group_major(t: Trie, p: Places, n_features: int) -> Groups:
    """The same rows by group. Layers come in the order of their nodes, so that each continues where the last ended."""
    n_nodes = len(t.node_leaf)
    strides = np.array([row_stride(words) for words in t.layer_words])
    n_rows = np.diff(t.layer_row) // strides - 1  # one more closes a layer
    narrow = np.isin(np.arange(len(strides)), p.layer[(t.node_head == 1) & (p.n_edges <= VECTOR)])
    vector = VECTOR // t.entry.itemsize
    row_ptr, entry_ptr = np.zeros(n_nodes + 1, np.int64), np.zeros(n_nodes + 1, np.int64)
    feature_of, start_of = np.empty(n_rows.sum(), np.uint32), np.empty(n_rows.sum(), np.uint32)
    entry = np.empty(len(t.entry) + vector * n_rows[narrow].sum(), t.entry.dtype)  # no page of it is there before use
    node_ptr = np.searchsorted(p.layer, np.arange(len(t.layer_words) + 1))
    for layer, feature, group in layer_rows(t, p, n_features):
        rows = t.row[t.layer_row[layer] : t.layer_row[layer + 1]]
        entries = t.entry[t.layer_entry[layer] : t.layer_entry[layer + 1]]
        first, stop = node_ptr[layer], node_ptr[layer + 1]
        places = p.n_edges[first:stop], row_ptr[first : stop + 1], entry_ptr[first : stop + 1]
        _by_group(rows, entries, strides[layer], feature, group, first, *places, feature_of, start_of, entry)
    return Groups(
        t.tree_ptr, t.node_leaf, t.node_head, t.node_frac, t.edge_ptr, t.edge_target, t.edge_bias, t.edge_step,
        p.parent, p.parent_edge, p.n_edges, row_ptr, feature_of, start_of, entry_ptr, entry,
    )  # fmt: skip


@kernel()
def _by_group(
    rows: UInt32s,
    entries: Entries,
    stride: Int,
    feature: Int32s,
    group: Int32s,
    first: Int,
    n_edges: Int32s,
    row_ptr: Int64s,
    entry_ptr: Int64s,
    row_feature: UInt32s,
    row_start: UInt32s,
    entry: Entries,
) -> None:
    """Hand a layer's rows to their groups. n_edges, row_ptr and entry_ptr are those of the layer, from its `first` node
    on; the two begin where the layer above ends."""
    size = entry.itemsize
    for r in range(feature.size):
        g, length = group[r] - first, np.int64(rows[(r + 1) * stride]) - np.int64(rows[r * stride])
        row_ptr[g + 1] += 1 if length > 0 else 0
        entry_ptr[g + 1] += length if n_edges[g] > VECTOR or length == 0 else VECTOR // size
    for node in range(row_ptr.size - 1):
        row_ptr[node + 1] += row_ptr[node]
        entry_ptr[node + 1] += entry_ptr[node]
    at_row, at_entry, raw = row_ptr.copy(), entry_ptr.copy(), entry.view(np.int8)
    for r in range(feature.size):
        g, start, stop = group[r] - first, np.int64(rows[r * stride]), np.int64(rows[(r + 1) * stride])
        if start == stop:
            continue
        row, at = at_row[g], at_entry[g]
        row_feature[row], row_start[row] = feature[r], at - entry_ptr[g]
        at_row[g] = row + 1
        if n_edges[g] > VECTOR or is_dense(entries, start, stop, n_edges[g]):
            for i in range(stop - start):
                entry[at + i] = entries[start + i]
            at_entry[g] = at + stop - start
        else:
            _write_vector(entries[start:stop], raw[at * size : at * size + VECTOR])
            at_entry[g] = at + VECTOR // size


@kernel(inline=True)
def _write_vector(entries: Entries, out: npt.NDArray[np.int8]) -> None:
    for k in range(VECTOR):
        out[k] = 0
    for packed in entries:
        out[packed >> 8] = np.int8(packed & 255)
