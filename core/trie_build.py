"""An ensemble's trees by node → tries by feature (core/trie.py).

Rows are made from the leaves up: the rows of a layer are what its own nodes know and what the rows below are below, in
the order of (feature, group), so that a row's children lie side by side in the layer below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.ensemble import Ensemble
from core.errors import DataError
from core.jit import kernel
from core.sparse import Int, Int32s, Int64s
from core.trie import Entries, Trie, UInt32s, dense_from, padded, row_stride

_TOP_LEVELS = (4, 5, 6)  # binary levels in the root's group; every group below has three
_LOWER_LEVELS = 3
_MOST_EDGES = 256  # of the root's group in a wide tree
_MOST = 1 << 32  # rows and entries of one layer are counted in 32 bits


def build(e: Ensemble, n_features: int, n_labels: int) -> tuple[Trie, Int64s]:
    """The tries of an ensemble, and for each of its nodes the node of the ensemble that it was."""
    tries, orders = zip(*(build_tree(e, tree, n_features, n_labels) for tree in range(e.n_trees)), strict=True)
    return joined(tries), np.concatenate(orders)


def build_tree(e: Ensemble, tree: int, n_features: int, n_labels: int) -> tuple[Trie, Int64s]:
    """The trie of one tree, counting from 0, and for each of its nodes the node of the ensemble that it was."""
    first, last = int(e.tree_ptr[tree]), int(e.tree_ptr[tree + 1])
    head = _heads(e, first, last)
    order, group_ptr, above, way, depth = _grouped(e, first, last, head)
    number = np.full(last, -1, np.int64)  # of each node of the ensemble, in the trie
    number[order] = np.arange(len(order))
    edge_ptr = np.concatenate([[0], np.cumsum(e.edge_ptr[order + 1] - e.edge_ptr[order])])
    edges = np.repeat(e.edge_ptr[order] - edge_ptr[:-1], np.diff(edge_ptr)) + np.arange(edge_ptr[-1])
    leaf = e.node_leaf[order]
    target = e.edge_target[edges]
    inner_edge = np.repeat(leaf, np.diff(edge_ptr)) == 0
    target[inner_edge] = number[target[inner_edge]]
    widest = int((edge_ptr[group_ptr[1:]] - edge_ptr[group_ptr[:-1]]).max())
    kind = np.uint16 if widest <= 256 else np.uint32
    layers = _layers(e, order, edge_ptr, group_ptr, above, way, depth, n_features, kind)
    label_leaf, label_position = np.zeros(n_labels, np.int32), np.zeros(n_labels, np.uint16)
    node = np.repeat(np.arange(len(order)), np.diff(edge_ptr))[~inner_edge]
    label_leaf[target[~inner_edge]] = node
    label_position[target[~inner_edge]] = (np.arange(edge_ptr[-1])[~inner_edge] - edge_ptr[node]).astype(np.uint16)
    trie = Trie(
        tree_ptr=np.array([0, len(order)], np.int64),
        node_leaf=leaf,
        node_head=head[order - first].astype(np.uint8),
        node_frac=e.node_frac[order],
        edge_ptr=edge_ptr,
        edge_target=target,
        edge_bias=e.edge_bias[edges],
        edge_step=e.edge_step[edges],
        layer_ptr=np.array([0, len(layers)], np.int64),
        layer_words=np.array([words for words, _, _ in layers], np.int64),
        layer_row=_pointers([len(rows) for _, rows, _ in layers]),
        layer_entry=_pointers([len(entries) for _, _, entries in layers]),
        row=np.concatenate([rows for _, rows, _ in layers]),
        entry=np.concatenate([entries for _, _, entries in layers]),
        label_leaf=label_leaf,
        label_position=label_position,
    )
    return trie, order


def _pointers(lengths: list[int]) -> Int64s:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _heads(e: Ensemble, first: int, last: int) -> npt.NDArray[np.bool_]:
    """Which nodes begin a group: leaves and the root. The root of a binary tree takes four to six levels with it, and
    below it every third level begins one; that of a wide tree takes whole levels while their edges fit in a byte, and
    below it every node is a group."""
    leaf = e.node_leaf[first:last] == 1
    inner = np.flatnonzero(~leaf) + first
    depth = np.zeros(last - first, np.int64)
    for node in inner:
        depth[e.edge_target[e.edge_ptr[node] : e.edge_ptr[node + 1]] - first] = depth[node - first] + 1
    edges = e.edge_ptr[inner + 1] - e.edge_ptr[inner]
    if len(inner) and int(edges.max()) > 2:
        down_to = np.cumsum(np.bincount(depth[inner - first], weights=edges))
        return np.asarray(leaf | (depth == 0) | (depth >= max(1, int((down_to <= _MOST_EDGES).sum()))))
    height = int(depth.max())
    top = next((levels for levels in _TOP_LEVELS if (height - levels) % _LOWER_LEVELS == 0), height)
    below_top = (depth >= top) & ((depth - top) % _LOWER_LEVELS == 0)
    return np.asarray(leaf | (depth == 0) | below_top)


def _grouped(e: Ensemble, first: int, last: int, head: npt.NDArray[np.bool_]) -> tuple[Int64s, ...]:
    """Nodes in the order of groups: (order, group_ptr, and of each group: the group above, its way, its depth)."""
    n = last - first
    order, group_ptr, above, way, depth = (np.zeros(n + 1, np.int64) for _ in range(5))
    n_groups = _group(e.edge_ptr, e.edge_target, e.node_leaf, first, head, order, group_ptr, above, way, depth)
    return order[:n], group_ptr[: n_groups + 1], above[:n_groups], way[:n_groups], depth[:n_groups]


@kernel()
def _group(
    edge_ptr: Int64s,
    edge_target: Int32s,
    node_leaf: npt.NDArray[np.uint8],
    first: int,
    head: npt.NDArray[np.bool_],
    order: Int64s,
    group_ptr: Int64s,
    above: Int64s,
    way: Int64s,
    depth: Int64s,
) -> int:
    heads = np.empty(order.size, np.int64)
    heads[0] = first
    n_groups, group, n = 1, 0, 0
    while group < n_groups:
        group_ptr[group] = n
        order[n] = heads[group]
        done, n, ways = n, n + 1, 0
        while done < n:
            node = order[done]
            done += 1
            if node_leaf[node]:
                continue
            for e in range(edge_ptr[node], edge_ptr[node + 1]):
                child = edge_target[e]
                if head[child - first]:
                    heads[n_groups], above[n_groups], way[n_groups] = child, group, ways
                    depth[n_groups] = depth[group] + 1
                    n_groups += 1
                    ways += 1
                else:
                    order[n] = child
                    n += 1
        group += 1
    group_ptr[n_groups] = n
    return n_groups


def _layers(
    e: Ensemble,
    order: Int64s,
    edge_ptr: Int64s,
    group_ptr: Int64s,
    above: Int64s,
    way: Int64s,
    depth: Int64s,
    n_features: int,
    kind: npt.DTypeLike,
) -> list[tuple[int, UInt32s, Entries]]:
    """(words of a mask, rows, entries) of every layer, from the root's down; made from the leaves up."""
    layers = []
    below = (np.empty(0, np.int32), np.empty(0, np.int32))
    for d in range(int(depth.max()), -1, -1):
        groups = np.flatnonzero(depth == d)
        n_ways = int(way[depth == d + 1].max(initial=-1)) + 1
        if d == 0:  # the root has a row for every feature, so that it needs no search either
            mine = (np.arange(n_features, dtype=np.int32), np.zeros(n_features, np.int32))
        else:
            mine = _known(e, order, group_ptr, int(groups[0]), int(groups[-1]) + 1, above, *below, n_features)
        words = -(-n_ways // 32)
        size = int(sum((e.entry_ptr[order + 1] - e.entry_ptr[order])[group_ptr[groups[0]] : group_ptr[groups[-1] + 1]]))
        if len(mine[0]) >= _MOST or size >= _MOST:
            raise DataError("a layer of a tree has more than 2^32 rows or entries: train on fewer labels per model")
        rows = np.zeros((len(mine[0]) + 1) * int(row_stride(words)), np.uint32)
        entries = np.empty(4 * size, kind)  # at most: a dense row of two weights takes eight places
        n = _fill(e, order, edge_ptr, group_ptr, above, way, *mine, *below, words, rows, entries)
        layers.append((words, rows, entries[:n].copy()))
        below = mine
    return layers[::-1]


def _known(
    e: Ensemble,
    order: Int64s,
    group_ptr: Int64s,
    first: int,
    last: int,
    above: Int64s,
    feature: Int32s,
    group: Int32s,
    n_features: int,
) -> tuple[Int32s, Int32s]:
    """(feature, group) of every row of a layer, ascending: what its nodes know, and what the rows below are below."""
    own_ptr = np.zeros(n_features + 1, np.int64)
    own = np.empty(int((e.row_ptr[order + 1] - e.row_ptr[order]).sum()), np.int32)
    n = _own(e.row_ptr, e.row_feature, order, group_ptr, first, last, own_ptr, own)
    out = np.empty(n + len(feature), np.int32), np.empty(n + len(feature), np.int32)
    n = _merge(own_ptr, own, above, feature, group, *out)
    return out[0][:n].copy(), out[1][:n].copy()


@kernel()
def _own(
    row_ptr: Int64s,
    row_feature: UInt32s,
    order: Int64s,
    group_ptr: Int64s,
    first: int,
    last: int,
    own_ptr: Int64s,
    own: Int32s,
) -> int:
    """Groups first:last by the features that their own nodes know: own[own_ptr[f]:own_ptr[f+1]], ascending."""
    n_features = own_ptr.size - 1
    seen = np.full(n_features, -1, np.int64)
    cursor = np.zeros(n_features, np.int64)
    for fill in range(2):
        for group in range(first, last):
            for at in range(group_ptr[group], group_ptr[group + 1]):
                for row in range(row_ptr[order[at]], row_ptr[order[at] + 1]):
                    f = np.int64(row_feature[row])
                    if seen[f] == group:
                        continue
                    seen[f] = group
                    if fill:
                        own[cursor[f]] = group
                        cursor[f] += 1
                    else:
                        own_ptr[f + 1] += 1
        if not fill:
            for feature in range(n_features):
                own_ptr[feature + 1] += own_ptr[feature]
                cursor[feature] = own_ptr[feature]
                seen[feature] = -1
    return int(own_ptr[n_features])


@kernel()
def _merge(
    own_ptr: Int64s,
    own: Int32s,
    above: Int64s,
    feature: Int32s,
    group: Int32s,
    out_feature: Int32s,
    out_group: Int32s,
) -> int:
    n, below = 0, 0
    for f in range(own_ptr.size - 1):
        at = own_ptr[f]
        while at < own_ptr[f + 1] or (below < feature.size and feature[below] == f):
            has_below = below < feature.size and feature[below] == f
            g = np.int64(own[at]) if at < own_ptr[f + 1] else above[group[below]]
            if has_below:
                g = min(g, above[group[below]])
            if at < own_ptr[f + 1] and own[at] == g:
                at += 1
            while below < feature.size and feature[below] == f and above[group[below]] == g:
                below += 1
            out_feature[n], out_group[n] = f, g
            n += 1
    return n


@kernel()
def _fill(
    e: Ensemble,
    order: Int64s,
    edge_ptr: Int64s,
    group_ptr: Int64s,
    above: Int64s,
    way: Int64s,
    feature: Int32s,
    group: Int32s,
    below_feature: Int32s,
    below_group: Int32s,
    words: int,
    rows: UInt32s,
    entries: Entries,
) -> int:
    """Rows and entries of a layer; returns how many entries. Its rows come by rising feature, and so do those of every
    node and of the layer below: one cursor each."""
    cursor = e.row_ptr[order]
    stride = row_stride(words)
    weights = np.zeros(padded(_widest(edge_ptr, group_ptr)), np.int8)
    n, below = 0, 0
    for r in range(feature.size):
        f, g, at = feature[r], group[r], r * stride
        rows[at] = n
        for word in range(words):
            rows[at + 1 + 2 * word] = below
            while below < below_feature.size and below_feature[below] == f and above[below_group[below]] == g:
                bit = way[below_group[below]]
                if bit >> 5 != word:
                    break
                rows[at + 2 + 2 * word] |= np.uint32(1) << np.uint32(bit & 31)
                below += 1
        first_edge, last_edge = edge_ptr[group_ptr[g]], edge_ptr[group_ptr[g + 1]]
        for i in range(group_ptr[g], group_ptr[g + 1]):
            if cursor[i] < e.row_ptr[order[i] + 1] and e.row_feature[cursor[i]] == f:
                _spread(e, order[i], cursor[i], weights[edge_ptr[i] - first_edge :])
                cursor[i] += 1
        n = _store(weights[: padded(last_edge - first_edge)], entries, n)
    rows[feature.size * stride] = n
    if words:
        rows[feature.size * stride + 1] = below
    return n


@kernel()
def _widest(edge_ptr: Int64s, group_ptr: Int64s) -> Int:
    widest = np.int64(0)
    for g in range(group_ptr.size - 1):
        widest = max(widest, edge_ptr[group_ptr[g + 1]] - edge_ptr[group_ptr[g]])
    return widest


@kernel()
def _spread(e: Ensemble, node: int, row: int, weights: npt.NDArray[np.int8]) -> None:
    """weights[edge] of one row of a node; an edge of step 0 has none."""
    start = e.entry_ptr[node] + np.int64(e.row_start[row])
    stop = e.entry_ptr[node + 1]
    if row + 1 < e.row_ptr[node + 1]:
        stop = e.entry_ptr[node] + np.int64(e.row_start[row + 1])
    for j in range(start, stop):
        if e.edge_step[e.edge_ptr[node] + e.entry_edge[j]] != 0.0:
            weights[e.entry_edge[j]] = e.entry_weight[j]


@kernel()
def _store(weights: npt.NDArray[np.int8], entries: Entries, n: int) -> int:
    """Append a row and clear its weights; returns where the next one begins.

    A sparse row is always shorter than a dense one, which is how a reader tells them apart. Weights of 0 say nothing
    and are left out.
    """
    size = entries.itemsize
    count = 0
    for edge in range(weights.size):
        count += 1 if weights[edge] != 0 else 0
    if count >= dense_from(weights.size, size):
        entries.view(np.int8)[n * size : n * size + weights.size] = weights
        n += weights.size // size
    else:
        for edge in range(weights.size):
            if weights[edge] != 0:
                entries[n] = np.uint32(edge << 8) | np.uint32(np.uint8(weights[edge]))
                n += 1
    weights[:] = 0
    return n


class Offsets(NamedTuple):
    """How many nodes, edges, layers, places in `row` and entries the trees before have."""

    node: int = 0
    edge: int = 0
    layer: int = 0
    row: int = 0
    entry: int = 0

    def after(self, t: Trie) -> Offsets:
        sizes = len(t.node_leaf), len(t.edge_target), len(t.layer_words), len(t.row), len(t.entry)
        return Offsets(*(before + size for before, size in zip(self, sizes, strict=True)))


POINTERS = ("tree_ptr", "edge_ptr", "layer_ptr", "layer_row", "layer_entry")  # each tree's begins where the last ended
BY_LABEL = ("label_leaf", "label_position")


def shifted(t: Trie, first: Offsets) -> Trie:
    """A tree that counts on from the trees before it."""
    inner = np.repeat(t.node_leaf, np.diff(t.edge_ptr)) == 0
    return t._replace(
        tree_ptr=t.tree_ptr + first.node,
        edge_ptr=t.edge_ptr + first.edge,
        edge_target=(t.edge_target + np.where(inner, first.node, 0)).astype(np.int32),
        layer_ptr=t.layer_ptr + first.layer,
        layer_row=t.layer_row + first.row,
        layer_entry=t.layer_entry + first.entry,
        label_leaf=(t.label_leaf + first.node).astype(np.int32),
    )


def joined(tries: Sequence[Trie]) -> Trie:
    """Several trees as one ensemble."""
    first, parts = Offsets(), list[Trie]()
    for t in tries:
        parts.append(shifted(t, first))
        first = first.after(t)
    whole: dict[str, Any] = {}
    for name in Trie._fields:
        arrays = [getattr(t, name) for t in parts]
        if name in POINTERS:
            arrays[1:] = [array[1:] for array in arrays[1:]]
        whole[name] = np.stack(arrays, axis=1).ravel() if name in BY_LABEL else np.concatenate(arrays)
    return Trie(**whole)
