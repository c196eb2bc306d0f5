"""A directory of arrays with a manifest: written aside and renamed, opened by mapping, refused when anything differs.

Each array is one little-endian, C-ordered `.npy` file whose data begin at a multiple of 64 bytes; `manifest.json` names
every file with its dtype, shape, size and SHA-256. docs/model-format.md is the specification. Nothing here knows what
the arrays mean: `core.model` does.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import ModelError

Arrays = dict[str, npt.NDArray[Any]]
MANIFEST = "manifest.json"
_CHUNK = 1 << 20


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """A temporary directory that becomes `target` in one step when the block ends well, and vanishes otherwise."""
    aside = target.with_name(f".{target.name}.writing")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        sync_tree(aside)
        aside.rename(target)
        sync(target.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def sync(path: Path) -> None:
    """Until this returns, a file's bytes or a directory's names may be lost when the machine stops."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(directory: Path) -> None:
    """Sync a directory and all that is below it."""
    for folder, _, files in os.walk(directory):
        for file in files:
            sync(Path(folder) / file)
        sync(Path(folder))


def create_array(directory: Path, name: str, dtype: npt.DTypeLike, length: int) -> npt.NDArray[Any]:
    """A one-dimensional array on disk, to be filled in place. Its place is taken now: on a full disk this raises, where
    filling a file with holes would end the process without a word (SIGBUS)."""
    path, kind = directory / f"{name}.npy", np.dtype(dtype).newbyteorder("<")
    array = np.lib.format.open_memmap(path, "w+", kind, (length,))
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def write_manifest(directory: Path, fields: Mapping[str, Any]) -> None:
    """Describe every `.npy` file of the directory and write the manifest last."""
    arrays = {}
    for path in sorted(directory.glob("*.npy")):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        arrays[path.stem] = {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "bytes": path.stat().st_size,
            "sha256": checksum(path),
        }
    text = json.dumps({**fields, "arrays": arrays}, indent=1, ensure_ascii=False, allow_nan=False)
    (directory / MANIFEST).write_text(text + "\n", encoding="utf-8")


def checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_manifest(directory: Path, name: str, version: int) -> dict[str, Any]:
    """The manifest of a directory of the format `name`, refused where the format or its version is another."""
    path = directory / MANIFEST
    if not directory.is_dir():
        raise ModelError(f"{directory}: no such directory")
    if not path.is_file():
        raise ModelError(f"{directory}: no {MANIFEST}; this is not a finished {name}")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != name:
        raise ModelError(f"{path}: not the manifest of an {name}")
    if manifest.get("version") != version:
        raise ModelError(
            f"{path}: format version {manifest.get('version')}; this xreg reads {version}: train again or upgrade"
        )
    return manifest


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not JSON ({error})") from error


def map_arrays(directory: Path, manifest: Mapping[str, Any], checksums: bool) -> Arrays:
    """Map every array of the manifest read-only; sizes, dtypes and shapes always agree, checksums when asked for."""
    described = manifest.get("arrays")
    if not isinstance(described, dict):
        raise ModelError(f"{directory / MANIFEST}: no arrays are described")
    extra = {path.stem for path in directory.glob("*.npy")} - set(described)
    if extra:
        raise ModelError(f"{directory}: {sorted(extra)[0]}.npy is not in the manifest")
    return {name: _map(directory / f"{name}.npy", about, checksums) for name, about in described.items()}


def _map(path: Path, about: Any, checksums: bool) -> npt.NDArray[Any]:
    if Path(path.name).stem != path.stem or not path.is_file():
        raise ModelError(f"{path}: missing")
    try:
        dtype, shape, size, digest = np.dtype(about["dtype"]), tuple(about["shape"]), about["bytes"], about["sha256"]
    except (TypeError, KeyError, ValueError, SyntaxError) as error:
        raise ModelError(f"{path.parent / MANIFEST}: {path.stem} is not described completely ({error})") from error
    if path.stat().st_size != size:
        raise ModelError(f"{path}: {path.stat().st_size} bytes; the manifest says {size}")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy reads a header as Python source: damage can raise anything
        raise ModelError(f"{path}: not an .npy file ({error})") from error
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        raise ModelError(f"{path}: the array is not the {dtype.str} of shape {list(shape)} that the manifest describes")
    if checksums and checksum(path) != digest:
        raise ModelError(f"{path}: the SHA-256 differs from the manifest's: the file was damaged or changed")
    return array.view(np.ndarray)


def describe_files(directory: Path) -> dict[str, dict[str, Any]]:
    """Bytes and SHA-256 of every file below a directory but its own manifest, by relative path."""
    return {
        path: {"bytes": (directory / path).stat().st_size, "sha256": checksum(directory / path)}
        for path in _paths(directory)
    }


def check_files(directory: Path, files: Any, checksums: bool) -> None:
    """Refuse a directory whose files are not those that its manifest describes."""
    if not isinstance(files, dict):
        raise ModelError(f"{directory / MANIFEST}: no files are described")
    if different := set(_paths(directory)).symmetric_difference(files):
        path = sorted(different)[0]
        raise ModelError(f"{directory / path}: " + ("missing" if path in files else "not in the manifest"))
    for path, about in files.items():
        if not isinstance(about, dict) or (directory / path).stat().st_size != about.get("bytes"):
            raise ModelError(f"{directory / path}: the size differs from the manifest's")
        if checksums and checksum(directory / path) != about.get("sha256"):
            raise ModelError(f"{directory / path}: the SHA-256 differs from the manifest's: it was damaged or changed")


def _paths(directory: Path) -> list[str]:
    found = []
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            raise ModelError(f"{path}: a link; everything in {directory.name} must be a file of its own")
        if path.is_file():
            found.append(path.relative_to(directory).as_posix())
    return [path for path in found if path != MANIFEST]
