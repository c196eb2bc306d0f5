"""A model: the trees of an ensemble as flat arrays, the same on disk, in Numba and in tests.

    tree → nodes → edges (node → child node, or leaf → label), each with one regressor
                 → rows (one per feature the node knows) → entries (edge, weight)

Weights are stored by node and feature, because a search asks a node about the features of one point.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.calibration import Calibration
from core.errors import ModelError
from core.format import map_arrays, read_manifest
from core.jit import kernel
from core.sparse import Csr

FORMAT, VERSION = "xreg-model", 1


class Ensemble(NamedTuple):
    """All trees in one set of arrays; nodes are numbered tree by tree, breadth-first within a tree.

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
    row_feature: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    row_start: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    entry_ptr: npt.NDArray[np.int64]
    entry_edge: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
    entry_weight: npt.NDArray[np.int8]

    @property
    def n_trees(self) -> int:
        return len(self.tree_ptr) - 1


class Scoring(NamedTuple):
    """How a recipe's regressors become scores.

    conditional   an edge's probability is conditional on its node: scores multiply along the path;
                  otherwise every node estimates its own probability and the path blends into the label's score
    ridge_leaves  a label's score is clip(margin, 0, 1), otherwise σ(margin)
    blend         exponent of (probability of the leaf / that of the best leaf), without `conditional`
    """

    conditional: bool
    ridge_leaves: bool
    blend: float


class Model(NamedTuple):
    """An opened model directory."""

    manifest: dict[str, Any]
    ensemble: Ensemble
    scoring: Scoring
    label_points: npt.NDArray[np.int32]
    feature_weight: npt.NDArray[np.float32]
    tail: Csr | None
    calibration: Calibration | None

    @property
    def n_features(self) -> int:
        return int(self.manifest["sizes"]["features"])

    @property
    def n_labels(self) -> int:
        return int(self.manifest["sizes"]["labels"])


_DTYPES: dict[str, tuple[str, ...]] = {
    "tree_ptr": ("<i8",),
    "node_leaf": ("|u1",),
    "node_frac": ("<f4",),
    "edge_ptr": ("<i8",),
    "edge_target": ("<i4",),
    "edge_bias": ("<f4",),
    "edge_step": ("<f4",),
    "row_ptr": ("<i8",),
    "row_feature": ("<u2", "<u4"),
    "row_start": ("<u2", "<u4"),
    "entry_ptr": ("<i8",),
    "entry_edge": ("|u1", "<u2"),
    "entry_weight": ("|i1",),
    "label_points": ("<i4",),
    "feature_weight": ("<f4",),
}
_CALIBRATION = {"calibration_score": ("<f4",), "calibration_relevance": ("<f4",)}
_TAIL = {"tail_ptr": ("<i8",), "tail_feature": ("<i4",), "tail_value": ("<f4",)}


def open_model(path: Path, verify: bool = True) -> Model:
    """Map a model read-only. `verify` also checks every checksum and the whole structure; without it only sizes,
    dtypes and shapes are checked, which is for directories that were verified before."""
    path = Path(path)
    manifest = read_manifest(path, FORMAT, VERSION)
    arrays = map_arrays(path, manifest, checksums=verify)
    try:
        recipe, sizes = manifest["params"]["recipe"], manifest["sizes"]
        expected = dict(_DTYPES)
        if recipe["calibration"] == "isotonic":
            expected |= _CALIBRATION
        if manifest["params"]["tail"]:
            expected |= _TAIL
        scoring = Scoring(recipe["target"] == "conditional", recipe["leaf"]["loss"] == "ridge", float(recipe["blend"]))
        n_features, n_labels, n_trees = int(sizes["features"]), int(sizes["labels"]), int(sizes["trees"])
        cause = _wrong_choices(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: the manifest lacks {error}") from error
    if cause:
        raise ModelError(f"{path}: {cause}")
    for name in expected.keys() - arrays.keys():
        raise ModelError(f"{path}: {name}.npy is missing")
    for name in arrays.keys() - expected.keys():
        raise ModelError(f"{path}: {name}.npy does not belong to this recipe")
    for name, dtypes in expected.items():
        if arrays[name].dtype.str not in dtypes or arrays[name].ndim != 1:
            raise ModelError(f"{path}: {name} must be one-dimensional {' or '.join(dtypes)}")
    ensemble = Ensemble(**{name: arrays[name] for name in Ensemble._fields})
    tail, calibration = None, None
    if "tail_ptr" in arrays:
        tail = Csr(arrays["tail_ptr"], arrays["tail_feature"], arrays["tail_value"], n_features)
    if "calibration_score" in arrays:
        calibration = Calibration(arrays["calibration_score"], arrays["calibration_relevance"])
    points, weight = arrays["label_points"], arrays["feature_weight"]
    model = Model(manifest, ensemble, scoring, points, weight, tail, calibration)
    cause = _wrong_shapes(model, n_features, n_labels, n_trees)
    if cause:
        raise ModelError(f"{path}: {cause}")
    if verify:
        check_structure(path, model)
    return model


def check_structure(path: Path, model: Model) -> None:
    """Refuse contents that would send a reader astray; every access of a search is covered."""
    cause = _wrong_structure(model, model.n_features, model.n_labels)
    if cause:
        raise ModelError(f"{path}: {cause}")


def _wrong_choices(manifest: dict[str, Any]) -> str | None:
    """What in the manifest a search could not honour."""
    recipe = manifest["params"]["recipe"]
    for name, value, known in (
        ("target", recipe["target"], ("conditional", "raw")),
        ("leaf.loss", recipe["leaf"]["loss"], ("logistic", "ridge")),
        ("calibration", recipe["calibration"], ("none", "isotonic")),
    ):
        if value not in known:
            return f"recipe.{name} is {value!r}; this xreg knows {', '.join(known)}"
    for name, number, least in (
        ("scale", manifest["scale"], 0.0),
        ("recipe.blend", recipe["blend"], -1.0),
        ("recipe.value_power", recipe["value_power"], 0.0),
        ("recipe.beam", recipe["beam"], 0.0),
        ("alpha", manifest["params"]["alpha"], -1.0),
        ("sizes.points", manifest["sizes"]["points"], 0.0),
    ):
        if not least < float(number) < float("inf"):
            return f"{name} is {number}, which cannot be"
    return None


def _wrong_shapes(model: Model, n_features: int, n_labels: int, n_trees: int) -> str | None:
    """What is wrong with the lengths, all of which follow from a few numbers."""
    e = model.ensemble
    if n_trees < 1 or len(e.tree_ptr) != n_trees + 1 or len(e.edge_ptr) < 2:
        return f"tree_ptr has {len(e.tree_ptr)} entries for {n_trees} trees"
    n_nodes, n_edges, n_rows, n_entries = len(e.edge_ptr) - 1, len(e.edge_target), len(e.row_feature), len(e.entry_edge)
    lengths = {
        "node_leaf": (len(e.node_leaf), n_nodes),
        "node_frac": (len(e.node_frac), n_nodes),
        "row_ptr": (len(e.row_ptr), n_nodes + 1),
        "entry_ptr": (len(e.entry_ptr), n_nodes + 1),
        "edge_bias": (len(e.edge_bias), n_edges),
        "edge_step": (len(e.edge_step), n_edges),
        "row_start": (len(e.row_start), n_rows),
        "entry_weight": (len(e.entry_weight), n_entries),
        "label_points": (len(model.label_points), n_labels),
        "feature_weight": (len(model.feature_weight), n_features),
    }
    if model.tail is not None:
        lengths["tail_ptr"] = (len(model.tail.indptr), n_labels + 1)
        lengths["tail_value"] = (len(model.tail.values), model.tail.nnz)
    if model.calibration is not None:
        lengths["calibration_relevance"] = (len(model.calibration.relevances), len(model.calibration.scores))
    for name, (length, wanted) in lengths.items():
        if length != wanted:
            return f"{name} has {length} entries, {wanted} were expected"
    return None


def _wrong_structure(model: Model, n_features: int, n_labels: int) -> str | None:
    e = model.ensemble
    n_nodes = len(e.node_leaf)
    for name, ptr, size in (
        ("tree_ptr", e.tree_ptr, n_nodes),
        ("edge_ptr", e.edge_ptr, len(e.edge_target)),
        ("row_ptr", e.row_ptr, len(e.row_feature)),
        ("entry_ptr", e.entry_ptr, len(e.entry_edge)),
    ):
        if ptr[0] != 0 or ptr[-1] != size or (np.diff(ptr) < 0).any():
            return f"{name} must rise from 0 to {size}"
    if (np.diff(e.tree_ptr) < 1).any() or (np.diff(e.edge_ptr) < 1).any():
        return "a tree without nodes or a node without edges"
    if (e.node_leaf > 1).any():
        return "node_leaf must be 0 or 1"
    return _wrong_targets(e, n_labels) or _wrong_rows(e, n_features) or _wrong_numbers(model, n_features)


def _wrong_targets(e: Ensemble, n_labels: int) -> str | None:
    """In each tree every node but the root is the child of one earlier node, and every label hangs from one leaf."""
    counts = np.diff(e.edge_ptr)
    leaf_edge = np.repeat(e.node_leaf, counts) == 1
    parent = np.repeat(np.arange(len(counts)), counts)
    tree_of_node = np.repeat(np.arange(e.n_trees), np.diff(e.tree_ptr))
    labels, children, parents = e.edge_target[leaf_edge], e.edge_target[~leaf_edge], parent[~leaf_edge]
    for t in range(e.n_trees):
        nodes = np.arange(e.tree_ptr[t] + 1, e.tree_ptr[t + 1])
        mine = tree_of_node[parents] == t
        if not np.array_equal(np.sort(children[mine]), nodes):
            return f"tree {t}: its edges do not lead to each of its nodes once"
        if (children[mine] <= parents[mine]).any():
            return f"tree {t}: a child comes before its parent"
        if not np.array_equal(np.sort(labels[tree_of_node[parent[leaf_edge]] == t]), np.arange(n_labels)):
            return f"tree {t}: its leaves do not hold each label once"
    return None


_ROW_FAULTS = (
    None,
    "row_feature: a feature is not below the number of features",
    "row_feature and row_start must rise within a node",
    "the first row of a node must start at its first entry",
    "row_start: a row starts behind the entries of its node",
    "entry_edge: an edge is not of its node",
)


def _wrong_rows(e: Ensemble, n_features: int) -> str | None:
    """Within a node features and starts rise; entries name edges of their node."""
    return _ROW_FAULTS[_row_fault(e, n_features)]


@kernel()
def _row_fault(e: Ensemble, n_features: int) -> int:
    """An index into _ROW_FAULTS; a loop, since a model's rows are too many for temporaries."""
    for node in range(e.node_leaf.size):
        n_entries = e.entry_ptr[node + 1] - e.entry_ptr[node]
        first, last = e.row_ptr[node], e.row_ptr[node + 1]
        if first == last and n_entries > 0:
            return 4
        for row in range(first, last):
            if e.row_feature[row] >= n_features:
                return 1
            if row > first and not (
                e.row_feature[row - 1] < e.row_feature[row] and e.row_start[row - 1] < e.row_start[row]
            ):
                return 2
            if row == first and e.row_start[row] != 0:
                return 3
            if e.row_start[row] >= n_entries:
                return 4
        n_edges = e.edge_ptr[node + 1] - e.edge_ptr[node]
        for entry in range(e.entry_ptr[node], e.entry_ptr[node + 1]):
            if e.entry_edge[entry] >= n_edges:
                return 5
    return 0


def _wrong_numbers(model: Model, n_features: int) -> str | None:
    e = model.ensemble
    numbers = {"node_frac": e.node_frac, "edge_bias": e.edge_bias, "edge_step": e.edge_step}
    numbers["feature_weight"] = model.feature_weight
    if model.tail is not None:
        numbers["tail_value"] = model.tail.values
        ptr = model.tail.indptr
        if ptr[0] != 0 or ptr[-1] != model.tail.nnz or (np.diff(ptr) < 0).any():
            return f"tail_ptr must rise from 0 to {model.tail.nnz}"
        if model.tail.nnz and (model.tail.indices.min() < 0 or model.tail.indices.max() >= n_features):
            return f"tail_feature: a feature is not in 0 … {n_features - 1}"
    if model.calibration is not None:
        numbers |= {
            "calibration_score": model.calibration.scores,
            "calibration_relevance": model.calibration.relevances,
        }
        if any((np.diff(array) <= 0).any() for array in model.calibration):
            return "the knots of the calibration must rise"
    for name, array in numbers.items():
        if not np.isfinite(array).all():
            return f"{name} has a value that is not finite"
    return None
