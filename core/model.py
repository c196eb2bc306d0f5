"""A model: the tries of an ensemble and what else turns them into scores, mapped from a directory of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.calibration import Calibration
from core.errors import ModelError
from core.format import Arrays, map_arrays, read_manifest
from core.kernels.search import Scoring
from core.sparse import Csr
from core.structure import not_finite, wrong_lengths, wrong_rows, wrong_structure
from core.trie import Trie

FORMAT, VERSION = "xreg-model", 2


class Model(NamedTuple):
    """An opened model directory."""

    manifest: dict[str, Any]
    trie: Trie
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

    @property
    def n_trees(self) -> int:
        return self.trie.n_trees


_DTYPES: dict[str, tuple[str, ...]] = {
    "tree_ptr": ("<i8",),
    "node_leaf": ("|u1",),
    "node_head": ("|u1",),
    "node_frac": ("<f4",),
    "edge_ptr": ("<i8",),
    "edge_target": ("<i4",),
    "edge_bias": ("<f4",),
    "edge_step": ("<f4",),
    "layer_ptr": ("<i8",),
    "layer_words": ("<i8",),
    "layer_row": ("<i8",),
    "layer_entry": ("<i8",),
    "row": ("<u4",),
    "entry": ("<u2", "<u4"),
    "label_leaf": ("<i4",),
    "label_position": ("<u2",),
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
        cause = _wrong_choices(manifest) or _wrong_arrays(manifest, arrays)
        if cause:
            raise ModelError(f"{path}: {cause}")
        model = _model(manifest, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: the manifest lacks {error}") from error
    cause = _wrong_shapes(model)
    if cause:
        raise ModelError(f"{path}: {cause}")
    if verify:
        check_structure(path, model)
    return model


def check_structure(path: Path, model: Model) -> None:
    """Refuse contents that would send a reader astray; every access of a search is covered."""
    cause = wrong_structure(model.trie, model.n_features, model.n_labels) or _wrong_rest(model)
    if cause:
        raise ModelError(f"{path}: {cause}")


def _model(manifest: dict[str, Any], arrays: Arrays) -> Model:
    recipe = manifest["params"]["recipe"]
    tail, calibration = None, None
    if "tail_ptr" in arrays:
        n_features = int(manifest["sizes"]["features"])
        tail = Csr(arrays["tail_ptr"], arrays["tail_feature"], arrays["tail_value"], n_features)
    if "calibration_score" in arrays:
        calibration = Calibration(arrays["calibration_score"], arrays["calibration_relevance"])
    return Model(
        manifest,
        Trie(**{name: arrays[name] for name in Trie._fields}),
        Scoring(recipe["target"] == "conditional", recipe["leaf"]["loss"] == "ridge", float(recipe["blend"])),
        arrays["label_points"],
        arrays["feature_weight"],
        tail,
        calibration,
    )


def _wrong_arrays(manifest: dict[str, Any], arrays: Arrays) -> str | None:
    """Which array is missing, does not belong here, or is of another kind."""
    expected = dict(_DTYPES)
    if manifest["params"]["recipe"]["calibration"] == "isotonic":
        expected |= _CALIBRATION
    if manifest["params"]["tail"]:
        expected |= _TAIL
    for name in expected.keys() - arrays.keys():
        return f"{name}.npy is missing"
    for name in arrays.keys() - expected.keys():
        return f"{name}.npy does not belong to this recipe"
    for name, dtypes in expected.items():
        if arrays[name].dtype.str not in dtypes or arrays[name].ndim != 1:
            return f"{name} must be one-dimensional {' or '.join(dtypes)}"
    return None


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
        ("sizes.labels", manifest["sizes"]["labels"], 0.0),
        ("sizes.features", manifest["sizes"]["features"], 0.0),
    ):
        if not least < float(number) < float("inf"):
            return f"{name} is {number}, which cannot be"
    return None


def _wrong_shapes(model: Model) -> str | None:
    cause = wrong_lengths(model.trie, model.n_labels, int(model.manifest["sizes"]["trees"]))
    if cause:
        return cause
    lengths = {
        "label_points": (len(model.label_points), model.n_labels),
        "feature_weight": (len(model.feature_weight), model.n_features),
    }
    if model.tail is not None:
        lengths["tail_ptr"] = (len(model.tail.indptr), model.n_labels + 1)
        lengths["tail_value"] = (len(model.tail.values), model.tail.nnz)
    if model.calibration is not None:
        lengths["calibration_relevance"] = (len(model.calibration.relevances), len(model.calibration.scores))
    for name, (length, wanted) in lengths.items():
        if length != wanted:
            return f"{name} has {length} entries, {wanted} were expected"
    return None


def _wrong_rest(model: Model) -> str | None:
    t = model.trie
    numbers = {"node_frac": t.node_frac, "edge_bias": t.edge_bias, "edge_step": t.edge_step}
    numbers["feature_weight"] = model.feature_weight
    if model.tail is not None:
        numbers["tail_value"] = model.tail.values
        cause = wrong_rows(model.tail.indptr, model.tail.indices, model.n_features, "tail")
        if cause:
            return cause
    if model.calibration is not None:
        numbers |= {
            "calibration_score": model.calibration.scores,
            "calibration_relevance": model.calibration.relevances,
        }
        if any((np.diff(array) <= 0).any() for array in model.calibration):
            return "the knots of the calibration must rise"
    return not_finite(numbers)
