"""The trees of an ensemble by node: what training makes.

    tree → nodes → edges (node → child node, or leaf → label), each with one regressor
                 → rows (one per feature the node knows) → entries (edge, weight)

On disk and in pointwise inference the same regressors are kept by feature instead (core/trie.py), in labelwise
inference by group (core/groups.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Ensemble(NamedTuple):
    """All trees in one set of arrays; nodes are numbered tree by tree, a child after its parent.

    tree_ptr [T+1]         nodes of tree t are tree_ptr[t]:tree_ptr[t+1]; the first is its root
    node_leaf [n]          1 where the edges lead to labels
    node_frac [n]          share of the training points with a relevant label below the node
    edge_ptr [n+1]         edges of a node
    edge_target [e]        child node, or label for a leaf's edge
    edge_bias, edge_step   regressor of the edge: margin = bias + step · Σ weight · x
    row_ptr [n+1]          rows of a node, by rising feature
    row_feature [r]        feature of a row
    row_start [r]          first entry of a row, counted from the node's first
    entry_ptr [n+1]        entries of a node
    entry_edge [j]         edge, counted from the node's first
    entry_weight [j]       8-bit weight
    """

    tree_ptr: npt.NDArray[np.int64]
    node_leaf: npt.NDArray[np.uint8]
    node_frac: npt.NDArray[np.float32]
    edge_ptr: npt.NDArray[np.int64]
    edge_target: npt.NDArray[np.int32]
    edge_bias: npt.NDArray[np.float32]
    edge_step: npt.NDArray[np.float32]
    row_ptr: npt.NDArray[np.int64]
    row_feature: npt.NDArray[np.uint32]
    row_start: npt.NDArray[np.uint32]
    entry_ptr: npt.NDArray[np.int64]
    entry_edge: npt.NDArray[np.uint16]
    entry_weight: npt.NDArray[np.int8]

    @property
    def n_trees(self) -> int:
        return len(self.tree_ptr) - 1
