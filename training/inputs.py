"""What every unit of training reads: a data set prepared once, as mapped arrays in directories.

    inputs      x_ptr, x_feature, x_value   points in the model's features, unit rows
                y_ptr, y_point, y_value     the scaled relevances, by label
                feature_weight              idf^power of every feature
    centroids   c_ptr, c_feature, c_value   label centroids, made from the inputs

Centroids are a directory of their own because only growing a tree reads them: they may be as large as the data, and
pages that are no longer mapped are no longer ours.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from core.format import create_array, map_arrays, read_manifest, write_manifest, written_aside
from core.relevance import BINARY, Weighting, graded_weighting, propensity_weighting
from core.sparse import Csr, column_counts, transformed, transpose
from training.dataset import Dataset
from training.params import Params
from training.partition import label_centroids

_FORMAT, _CENTROIDS, _VERSION = "xreg-inputs", "xreg-centroids", 2


class Inputs(NamedTuple):
    """The mapped inputs; `scale` is what relevances were divided by."""

    features: Csr
    by_label: Csr
    feature_weight: npt.NDArray[np.float32]
    scale: float

    @property
    def n_points(self) -> int:
        return self.features.n_rows

    @property
    def label_points(self) -> npt.NDArray[np.int32]:
        return np.diff(self.by_label.indptr).astype(np.int32)


def weighting_of(params: Params, data: Dataset) -> Weighting:
    if params.propensity is not None:
        counts = column_counts(data.relevance).astype(np.int32)
        return propensity_weighting(counts, data.n_points, *params.propensity)
    return BINARY if params.relevance == "binary" else graded_weighting(data.relevance)


def feature_weights(features: Csr, power: float) -> npt.NDArray[np.float32]:
    """idf^power with idf = ln((1 + N)/(1 + df)) + 1."""
    idf = np.log((1 + features.n_rows) / (1 + column_counts(features))) + 1
    return np.asarray(idf**power, np.float32)


def check_trainable(data: Dataset) -> None:
    """Refuse a data set that nothing can be learned from."""
    for what, count in (("points", data.n_points), ("features", data.n_features), ("labels", data.n_labels)):
        if count == 0:
            raise DataError(f"the data set has no {what}")
    if not data.relevance.nnz:
        raise DataError("no point has a relevant label: there is nothing to learn from")


def prepare(data: Dataset, params: Params, directory: Path) -> None:
    """Write the inputs of training, or nothing."""
    weighting = weighting_of(params, data)
    weight = feature_weights(data.features, params.recipe.idf_power)
    with written_aside(directory) as aside:
        _write(aside, "feature_weight", weight)
        _write_rows(aside, "x", "feature", transformed(data.features, params.recipe.value_power, weight))
        _write_rows(aside, "y", "point", transpose(weighting.apply(data.relevance)))
        fields = {"format": _FORMAT, "version": _VERSION, "scale": weighting.scale, "features": data.n_features}
        write_manifest(aside, fields)


def prepare_centroids(inputs: Inputs, params: Params, directory: Path) -> None:
    """Write the label centroids, or nothing."""
    centroids = label_centroids(inputs.features, inputs.by_label, params.recipe.centroid_features)
    with written_aside(directory) as aside:
        _write_rows(aside, "c", "feature", centroids)
        write_manifest(aside, {"format": _CENTROIDS, "version": _VERSION, "features": centroids.n_cols})


def _write_rows(directory: Path, prefix: str, index: str, rows: Csr) -> None:
    _write(directory, f"{prefix}_ptr", rows.indptr)
    _write(directory, f"{prefix}_{index}", rows.indices)
    _write(directory, f"{prefix}_value", rows.values)


def _write(directory: Path, name: str, array: npt.NDArray[Any]) -> None:
    create_array(directory, name, array.dtype, len(array))[:] = array


def open_inputs(directory: Path) -> Inputs:
    manifest = read_manifest(directory, _FORMAT, _VERSION)
    a = map_arrays(directory, manifest, checksums=False)
    n_features, n_points = int(manifest["features"]), len(a["x_ptr"]) - 1
    return Inputs(
        Csr(a["x_ptr"], a["x_feature"], a["x_value"], n_features),
        Csr(a["y_ptr"], a["y_point"], a["y_value"], n_points),
        a["feature_weight"],
        float(manifest["scale"]),
    )


_kept: dict[tuple[Path, int, int], Inputs] = {}
_lock = threading.Lock()


def shared_inputs(directory: Path) -> Inputs:
    """The inputs, mapped once for all units that this process runs: a second mapping would count its pages again."""
    status = directory.stat()
    key = directory, status.st_ino, status.st_mtime_ns
    with _lock:
        if key not in _kept:
            _kept.clear()
            _kept[key] = open_inputs(directory)
        return _kept[key]


def forget_inputs() -> None:
    """Let the mapping end with its last user."""
    with _lock:
        _kept.clear()


def open_centroids(directory: Path) -> Csr:
    manifest = read_manifest(directory, _CENTROIDS, _VERSION)
    a = map_arrays(directory, manifest, checksums=False)
    return Csr(a["c_ptr"], a["c_feature"], a["c_value"], int(manifest["features"]))
