"""What makes the arrays of a model a lie: every access of a search is covered here, once, before a model is used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.sparse import Int32s, Int64s
from core.trie import VECTOR, Entries, Places, Trie, UInt32s, layer_rows, padded, places_of, row_stride


def wrong_lengths(t: Trie, n_labels: int, n_trees: int) -> str | None:
    """What is wrong with the lengths, all of which follow from a few numbers."""
    if n_trees < 1 or len(t.tree_ptr) != n_trees + 1 or len(t.edge_ptr) < 2:
        return f"tree_ptr has {len(t.tree_ptr)} entries for {n_trees} trees"
    n_nodes, n_edges, n_layers = len(t.edge_ptr) - 1, len(t.edge_target), len(t.layer_words)
    for name, length in (
        ("node_leaf", n_nodes),
        ("node_head", n_nodes),
        ("node_frac", n_nodes),
        ("edge_bias", n_edges),
        ("edge_step", n_edges),
        ("layer_ptr", n_trees + 1),
        ("layer_row", n_layers + 1),
        ("layer_entry", n_layers + 1),
        ("label_leaf", n_labels * n_trees),
        ("label_position", n_labels * n_trees),
    ):
        if len(getattr(t, name)) != length:
            return f"{name} has {len(getattr(t, name))} entries, {length} were expected"
    return None


def wrong_structure(t: Trie, n_features: int, n_labels: int) -> str | None:
    """What in a trie of the right lengths would send a reader astray."""
    for name, ptr, size in (
        ("tree_ptr", t.tree_ptr, len(t.node_leaf)),
        ("edge_ptr", t.edge_ptr, len(t.edge_target)),
        ("layer_ptr", t.layer_ptr, len(t.layer_words)),
        ("layer_row", t.layer_row, len(t.row)),
        ("layer_entry", t.layer_entry, len(t.entry)),
    ):
        if ptr[0] != 0 or ptr[-1] != size or (np.diff(ptr) < 0).any():
            return f"{name} must rise from 0 to {size}"
    if (np.diff(t.tree_ptr) < 1).any() or (np.diff(t.edge_ptr) < 1).any() or (np.diff(t.layer_ptr) < 1).any():
        return "a tree without nodes or layers, or a node without edges"
    for name, flags in (("node_leaf", t.node_leaf), ("node_head", t.node_head)):
        if (flags > 1).any():
            return f"{name} must be 0 or 1"
    if (t.layer_words < 0).any() or (t.layer_words > 1 << 20).any():
        return "layer_words has a number that cannot be"
    return _wrong_targets(t, n_labels) or _wrong_groups(t) or _wrong_labels(t, n_labels) or _wrong_layers(t, n_features)


def _wrong_targets(t: Trie, n_labels: int) -> str | None:
    """In each tree every node but the root is the child of one earlier node, and every label hangs from one leaf."""
    counts = np.diff(t.edge_ptr)
    leaf_edge = np.repeat(t.node_leaf, counts) == 1
    parent = np.repeat(np.arange(len(counts)), counts)
    tree_of_node = np.repeat(np.arange(t.n_trees), np.diff(t.tree_ptr))
    labels, children, parents = t.edge_target[leaf_edge], t.edge_target[~leaf_edge], parent[~leaf_edge]
    for tree in range(t.n_trees):
        nodes = np.arange(t.tree_ptr[tree] + 1, t.tree_ptr[tree + 1])
        mine = tree_of_node[parents] == tree
        if not np.array_equal(np.sort(children[mine]), nodes):
            return f"tree {tree}: its edges do not lead to each of its nodes once"
        if (children[mine] <= parents[mine]).any():
            return f"tree {tree}: a child comes before its parent"
        if not np.array_equal(np.sort(labels[tree_of_node[parent[leaf_edge]] == tree]), np.arange(n_labels)):
            return f"tree {tree}: its leaves do not hold each label once"
    return None


def _wrong_groups(t: Trie) -> str | None:
    """Roots and leaves are heads; other nodes follow their parent's head; the groups below follow one another."""
    if not t.node_head[t.tree_ptr[:-1]].all() or not t.node_head[t.node_leaf == 1].all():
        return "node_head: every root and every leaf begins a group"
    order = np.flatnonzero(t.node_head)
    head = order[np.searchsorted(order, np.arange(len(t.node_head)), side="right") - 1]
    inner = np.flatnonzero(np.repeat(t.node_leaf, np.diff(t.edge_ptr)) == 0)
    child = t.edge_target[inner]
    parent = np.repeat(np.arange(len(head)), np.diff(t.edge_ptr))[inner]
    same = t.node_head[child] == 0
    if (head[child[same]] != head[parent[same]]).any():
        return "node_head: a node is not in its parent's group"
    above = np.full(len(head), -1, np.int64)
    above[child] = head[parent]
    below = above[(t.node_head == 1) & (above >= 0)]
    entered = child[~same]  # by group and edge
    if (np.diff(below) < 0).any() or (np.diff(entered) < 0).any():
        return "node_head: groups are not numbered breadth-first"
    depth = np.zeros(len(head), np.int64)
    for node in order[above[order] >= 0]:
        depth[node] = depth[above[node]] + 1
    deepest = np.maximum.reduceat(depth, t.tree_ptr[:-1]) + 1
    if not np.array_equal(deepest, np.diff(t.layer_ptr)):
        return "layer_ptr: a tree has one layer per depth of groups"
    return None


def _wrong_labels(t: Trie, n_labels: int) -> str | None:
    tree = np.tile(np.arange(t.n_trees), n_labels)
    leaf = t.label_leaf.astype(np.int64)
    if (leaf < t.tree_ptr[tree]).any() or (leaf >= t.tree_ptr[tree + 1]).any() or not t.node_leaf[leaf].all():
        return "label_leaf: not a leaf of the tree"
    edge = t.edge_ptr[leaf] + t.label_position
    if (edge >= t.edge_ptr[leaf + 1]).any():
        return "label_position: the leaf has fewer edges"
    label = np.repeat(np.arange(n_labels), t.n_trees)
    return None if np.array_equal(t.edge_target[edge], label) else "label_leaf and label_position: not the label's edge"


_ROW_FAULTS = (
    None,
    "layer_row: the rows of a layer do not fill it",
    "row: the entries of a layer must rise from 0 to its end",
    "row: the rows of the layer below must rise from 0 to its end",
    "row: a mask leads to a group that is not there",
    "entry: an edge is not of its group, or out of order",
    "entry: a row of a narrow group is neither dense nor a single entry",
)


def _wrong_layers(t: Trie, n_features: int) -> str | None:
    p = places_of(t)
    ways = np.zeros(len(t.node_leaf), np.int32)
    np.maximum.at(ways, p.head[p.parent[p.way >= 0]], p.way[p.way >= 0] + 1)
    lengths = zip(np.diff(t.layer_row), t.layer_words, strict=True)
    rows_of = [int(length) / int(row_stride(words)) - 1 for length, words in lengths]
    if min(rows_of) < 0 or any(n != int(n) for n in rows_of):
        return _ROW_FAULTS[1]
    last = set((t.layer_ptr[1:] - 1).tolist())
    for layer, feature, group in layer_rows(t, p, n_features):  # which goes on to a layer when the one above is right
        if len(feature) != rows_of[layer]:
            return _ROW_FAULTS[1]
        if (t.layer_words[layer] == 0) != (layer in last):
            return "layer_words: only the last layer of a tree has no masks"
        n_below = 0 if layer in last else int(rows_of[layer + 1])
        fault = _row_fault(*_layer(t, layer), t.layer_words[layer], group, ways, p, n_below)
        if fault:
            return _ROW_FAULTS[fault]
    return None


def _layer(t: Trie, layer: int) -> tuple[UInt32s, Entries]:
    return (
        t.row[t.layer_row[layer] : t.layer_row[layer + 1]],
        t.entry[t.layer_entry[layer] : t.layer_entry[layer + 1]],
    )


@kernel()
def _row_fault(
    rows: UInt32s, entries: Entries, words: int, group: Int32s, ways: Int32s, p: Places, n_below: int
) -> int:
    """An index into _ROW_FAULTS."""
    stride, below = row_stride(words), np.int64(0)
    if rows[0] != 0 or rows[group.size * stride] != entries.size:
        return 2
    for r in range(group.size):
        at = r * stride
        start, stop = np.int64(rows[at]), np.int64(rows[at + stride])
        if start > stop or stop > entries.size:
            return 2
        for word in range(words):
            if rows[at + 1 + 2 * word] != below:
                return 3
            for bit in range(32):
                if (rows[at + 2 + 2 * word] >> np.uint32(bit)) & np.uint32(1):
                    if 32 * word + bit >= ways[group[r]]:
                        return 4
                    below += 1
        n_edges = np.int64(p.n_edges[group[r]])
        dense = padded(n_edges) // entries.itemsize
        if stop - start > dense:
            return 5
        if padded(n_edges) == VECTOR and 1 < stop - start < dense:
            return 6
        if stop - start < dense:
            before = np.int64(-1)
            for i in range(start, stop):
                edge = np.int64(entries[i]) >> 8
                if edge <= before or edge >= n_edges:
                    return 5
                before = edge
    if words and (rows[group.size * stride + 1] != below or below != n_below):
        return 3
    return 0


def not_finite(arrays: dict[str, npt.NDArray[np.float32]]) -> str | None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            return f"{name} has a value that is not finite"
    return None


def wrong_rows(ptr: Int64s, indices: Int32s, n_cols: int, name: str) -> str | None:
    """What is wrong with the pointers and indices of CSR rows."""
    if ptr[0] != 0 or ptr[-1] != len(indices) or (np.diff(ptr) < 0).any():
        return f"{name}_ptr must rise from 0 to {len(indices)}"
    if len(indices) and (indices.min() < 0 or indices.max() >= n_cols):
        return f"{name}_feature: a feature is not in 0 … {n_cols - 1}"
    return None
