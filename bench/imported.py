"""A libpecos model in our engine: the same tree, the same weights, product of sigmoids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from core.engine import Engine
from core.ensemble import Ensemble
from core.kernels.search import Scoring
from core.model import Model
from core.trie_build import build


def pecos_engine(path: Path, n_features: int, n_labels: int) -> Engine:
    """`path` holds what XLinearModel.save wrote, its weights multiples of max|w| / 127 of their column."""
    layers = sorted((path / "ranker").glob("*.model"), key=lambda layer: int(layer.name.split(".")[0]))
    weights = [sparse.csc_matrix(sparse.load_npz(layer / "W.npz")) for layer in layers]
    parents = [sparse.csc_matrix(sparse.load_npz(layer / "C.npz")) for layer in layers]
    nodes = _Nodes()
    first = 0  # of the nodes whose children the layer holds
    for depth, (w, c) in enumerate(zip(weights, parents, strict=True)):
        last_layer = depth == len(layers) - 1
        below = first + c.shape[1]
        for parent in range(c.shape[1]):
            children = np.sort(c.indices[c.indptr[parent] : c.indptr[parent + 1]])
            nodes.add(w[:, children], children if last_layer else children + below, last_layer)
        first = below
    trie = build(nodes.ensemble(), n_features, n_labels)[0]
    recipe = {"target": "conditional", "leaf": {"loss": "logistic"}, "blend": 1.0, "beam": 10, "value_power": 1.0}
    manifest: dict[str, Any] = {
        "params": {"recipe": recipe, "alpha": 1.0},
        "sizes": {"features": n_features, "labels": n_labels, "trees": 1, "points": 1},
        "scale": 1.0,
    }
    points, weight = np.ones(n_labels, np.int32), np.ones(n_features, np.float32)
    return Engine(Model(manifest, trie, Scoring(True, False, 1.0), points, weight, None, None))


class _Nodes:
    """Nodes of one tree, breadth-first, as they come."""

    def __init__(self) -> None:
        self.parts: dict[str, list[Any]] = {name: [] for name in Ensemble._fields}

    def add(self, w: sparse.csc_matrix, targets: Any, leaf: bool) -> None:
        """A node with edges to `targets`; w is [features + 1, edges], the bias last."""
        body = w[:-1].tocsc()
        column = np.repeat(np.arange(body.shape[1]), np.diff(body.indptr))
        largest = np.zeros(body.shape[1], np.float32)
        np.maximum.at(largest, column, np.abs(body.data))
        step = np.where(largest > 0, largest / np.float32(127.0), 1.0).astype(np.float32)
        order = np.lexsort((column, body.indices))
        features, starts = np.unique(body.indices[order], return_index=True)
        for name, value in {
            "node_leaf": [leaf],
            "node_frac": [1.0],
            "edge_ptr": [len(targets)],
            "edge_target": targets,
            "edge_bias": w[-1].toarray().ravel(),
            "edge_step": step,
            "row_ptr": [len(features)],
            "row_feature": features,
            "row_start": starts,
            "entry_ptr": [len(order)],
            "entry_edge": column[order],
            "entry_weight": np.rint(body.data / step[column])[order],
        }.items():
            self.parts[name].append(value)

    def ensemble(self) -> Ensemble:
        kinds = {"node_leaf": np.uint8, "node_frac": np.float32, "edge_target": np.int32, "edge_bias": np.float32}
        kinds |= {"edge_step": np.float32, "row_feature": np.uint32, "row_start": np.uint32}
        kinds |= {"entry_edge": np.uint16, "entry_weight": np.int8}
        arrays: dict[str, Any] = {name: np.concatenate(self.parts[name]).astype(kind) for name, kind in kinds.items()}
        for name in ("edge_ptr", "row_ptr", "entry_ptr"):
            arrays[name] = np.concatenate([[0], np.cumsum(np.concatenate(self.parts[name]))]).astype(np.int64)
        return Ensemble(tree_ptr=np.array([0, len(arrays["node_leaf"])], np.int64), **arrays)
