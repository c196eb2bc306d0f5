"""A model that was changed in any way is refused, with the cause; a good one maps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import ModelError
from core.format import MANIFEST, create_array, written_aside
from core.model import open_model
from core.structure import wrong_structure
from core.trie import VECTOR, layer_rows, places_of, row_stride
from training.dataset import Dataset
from training.fit import fit
from training.params import PAPER, Params


@pytest.fixture(scope="module")
def good(sample: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("format") / "m"
    fit(sample[0], Params(PAPER, trees=2, max_leaf=30, tail=True), path, threads=1)
    return path


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "m"))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((path / MANIFEST).read_text())
    change(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


def lie(path: Path, name: str, change: Callable[[Any], None]) -> None:
    """Change an array and make the manifest agree, as a faulty writer would."""
    import hashlib

    array = np.load(path / f"{name}.npy")
    change(array)
    np.save(path / f"{name}.npy", array)
    digest = hashlib.sha256((path / f"{name}.npy").read_bytes()).hexdigest()
    edit(path, lambda m: m["arrays"][name].update(sha256=digest))


def test_arrays_are_mapped_read_only_and_aligned(good: Path) -> None:
    model = open_model(good)
    for file in good.glob("*.npy"):
        with file.open("rb") as handle:
            np.lib.format.read_magic(handle)
            np.lib.format.read_array_header_1_0(handle)
            assert handle.tell() % 64 == 0
    assert not model.trie.entry.flags.writeable


def test_the_manifest_tells_what_made_the_model(good: Path) -> None:
    manifest = json.loads((good / MANIFEST).read_text())
    assert manifest["params"] == Params(PAPER, trees=2, max_leaf=30, tail=True).as_json()
    assert manifest["sizes"]["labels"] == 424
    assert {"format", "version", "xreg", "numpy", "scale", "data"} <= manifest.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=1), "format version 1; this xreg reads 2"),
        (lambda m: m.update(format="other"), "not the manifest of an xreg-model"),
        (lambda m: m.pop("scale"), "the manifest lacks 'scale'"),
        (lambda m: m.update(scale=0), "scale is 0, which cannot be"),
        (lambda m: m["params"]["recipe"].pop("beam"), "the manifest lacks 'beam'"),
        (lambda m: m["params"]["recipe"].update(target="other"), "recipe.target is 'other'"),
        (lambda m: m["sizes"].update(trees=3), "tree_ptr has 3 entries for 3 trees"),
        (lambda m: m["arrays"].pop("edge_bias"), "edge_bias.npy is not in the manifest"),
        (lambda m: m["arrays"]["edge_bias"].update(bytes=1), "the manifest says 1"),
        (lambda m: m["arrays"]["edge_bias"].update(dtype="<f8"), "is not the <f8"),
        (lambda m: m["arrays"]["edge_bias"].pop("sha256"), "not described completely"),
        (lambda m: m["params"].update(tail=False), "does not belong to this recipe"),
        (lambda m: m.update(arrays=[]), "no arrays are described"),
    ],
)
def test_a_manifest_that_lies_is_refused(copy: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    edit(copy, change)
    with pytest.raises(ModelError, match=message):
        open_model(copy)


def test_a_narrow_row_of_some_entries_is_refused(sample: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    """Searches take a row of a narrow group for dense, for one entry, or for none."""
    fit(sample[0], Params(PAPER, trees=1, max_leaf=12), tmp_path / "m", 1)
    model = open_model(tmp_path / "m")
    t, p = model.trie, places_of(model.trie)
    row = t.row.copy()
    for layer, _, group in layer_rows(t, p, model.n_features):
        rows = row[t.layer_row[layer] : t.layer_row[layer + 1] : row_stride(t.layer_words[layer])]
        places = np.flatnonzero((np.diff(rows) == VECTOR // 2) & (p.n_edges[group] <= VECTOR))
        if len(places):
            rows[places[0] + 1] -= 6
            break
    assert wrong_structure(t, model.n_features, model.n_labels) is None
    message = wrong_structure(t._replace(row=row), model.n_features, model.n_labels)
    assert message == "entry: a row of a narrow group is neither dense nor a single entry"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("edge_ptr", lambda a: a.__setitem__(1, 10**6), "edge_ptr must rise"),
        ("layer_ptr", lambda a: a.__setitem__(1, -5), "layer_ptr must rise"),
        ("layer_row", lambda a: a.__setitem__(1, 10**9), "layer_row must rise"),
        ("layer_row", lambda a: a.__setitem__(1, a[1] - 1), "do not fill it"),
        ("layer_entry", lambda a: a.__setitem__(1, a[1] + 1), "the entries of a layer must rise"),
        ("layer_words", lambda a: a.__setitem__(0, 10**9), "layer_words has a number that cannot be"),
        ("layer_words", lambda a: a.__setitem__(-1, 1), "do not fill it|has no masks"),
        ("row", lambda a: a.__setitem__(0, 1), "the entries of a layer must rise"),
        ("row", lambda a: a.__setitem__(3, 2**32 - 1), "the entries of a layer must rise"),
        ("row", lambda a: a.__setitem__(4, 77), "the rows of the layer below must rise"),
        ("row", lambda a: a.__setitem__(2, 2**32 - 1), "leads to a group that is not there|layer below must rise"),
        ("row", lambda a: a.__setitem__(-1, 2**32 - 1), "must rise"),
        ("entry", lambda a: a.__setitem__(-1, 65535), "an edge is not of its group"),
        ("node_head", lambda a: a.__setitem__(0, 0), "every root and every leaf begins a group"),
        ("node_head", lambda a: a.__setitem__(1, 1), "node_head|layer_ptr"),
        ("label_leaf", lambda a: a.__setitem__(0, -1), "not a leaf of the tree"),
        ("label_leaf", lambda a: a.__setitem__(0, a[2]), "label"),
        ("label_position", lambda a: a.__setitem__(0, 65535), "the leaf has fewer edges"),
        ("label_position", lambda a: a.__setitem__(slice(0, 1), a[0] ^ 1), "not the label's edge|fewer edges"),
        ("edge_target", lambda a: a.__setitem__(0, 0), "do not lead to each of its nodes once"),
        ("edge_target", lambda a: a.__setitem__(-1, 10**6), "do not hold each label once"),
        ("node_leaf", lambda a: a.__setitem__(0, 7), "node_leaf must be 0 or 1"),
        ("edge_bias", lambda a: a.__setitem__(3, np.nan), "edge_bias has a value that is not finite"),
        ("tail_ptr", lambda a: a.__setitem__(2, -1), "tail_ptr must rise"),
        ("tail_feature", lambda a: a.__setitem__(2, -1), "tail_feature: a feature is not in"),
    ],
)
def test_a_structure_that_lies_is_refused(copy: Path, name: str, change: Callable[[Any], None], message: str) -> None:
    lie(copy, name, change)
    with pytest.raises(ModelError, match=message):
        open_model(copy)


def test_damage_missing_and_additional_files_are_refused(copy: Path) -> None:
    file = copy / "entry.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ModelError, match=r"entry.npy: the SHA-256 differs"):
        open_model(copy)
    open_model(copy, verify=False)  # for directories that were verified before
    file.unlink()
    with pytest.raises(ModelError, match=r"entry.npy: missing"):
        open_model(copy)
    shutil.copy(copy / "edge_bias.npy", copy / "extra.npy")
    with pytest.raises(ModelError, match=r"extra.npy is not in the manifest"):
        open_model(copy)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such directory"):
        open_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"no manifest.json; this is not a finished xreg-model"):
        open_model(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        open_model(tmp_path)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with written_aside(tmp_path / "m") as aside:
            create_array(aside, "a", np.int8, 3)[:] = 1
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_array_takes_its_place_on_disk_before_it_is_filled(tmp_path: Path) -> None:
    for length in (0, 1, 1 << 20):
        create_array(tmp_path, f"a{length}", "<f8", length)
        about = (tmp_path / f"a{length}.npy").stat()
        assert about.st_blocks * 512 >= about.st_size  # no holes: filling it cannot meet a full disk
