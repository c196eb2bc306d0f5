"""Files on any store that `pyarrow.fs` reaches, for the batch side: s3://, gs://, abfs://, hdfs://, file://.

    s3://bucket/path?region=eu-west-1                               Amazon's
    s3://bucket/path?endpoint_override=minio:9000&scheme=http       any that speaks S3

Keys come from the store's usual places (AWS_ACCESS_KEY_ID, a role, ~/.aws), never from the address. What is computed is
computed on local files, which are mapped; here they are fetched and stored. Objects appear whole or not at all; of a
directory the manifest is stored last, and what has none is not a finished one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from core.errors import StorageError, UsageError
from core.format import MANIFEST
from core.work import save_text, work_of

OnBytes = Callable[[int, int], None]  # bytes done, bytes in all
_CHUNK = 1 << 23
_PATIENCE = 5.0  # seconds to connect; an answer may take ten times as long
_ATTEMPTS = 3
_OBJECTS = ("s3", "gcs", "abfs")  # an object is there when it is whole; elsewhere a file grows
_S3 = {"endpoint_override", "scheme", "region"}


def is_uri(place: object) -> bool:
    return isinstance(place, str) and "://" in place


def uri_of(path: Path) -> str | None:
    """The address that a path was made of, or None: a path keeps one of two slashes."""
    found = re.match(r"([a-z][a-z0-9+.-]+):/+(.*)", str(path))
    if found is None:
        return None
    return f"{found[1]}://" + ("/" if found[1] == "file" else "") + found[2]


class Store:
    """A directory on a store, and the files below it by their relative names."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.partition("?")[0].rstrip("/")
        self.name = self.uri.rpartition("/")[2]
        with self._told("opened"):
            self._fs, self._root = _open(uri)
        self._objects = self._fs.type_name in _OBJECTS

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Errors of a store name it and what was to be done."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            text = " ".join(str(error).split())
            raise StorageError(f"{self.uri} cannot be {what}: {text[:300]}") from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of every file below; empty where there is nothing. A file itself has the name ""."""
        with self._told("listed"):
            info = self._fs.get_file_info(self._root)
            if info.type == fs.FileType.File:
                return {"": (info.size, info.mtime_ns or 0)}
            found = self._fs.get_file_info(fs.FileSelector(self._root, allow_not_found=True, recursive=True))
        start = len(self._root) + 1
        return {f.path[start:]: (f.size, f.mtime_ns or 0) for f in found if f.type == fs.FileType.File}

    def read(self, name: str) -> bytes | None:
        """A small file, or None where there is none."""
        try:
            with self._told("read"), self._fs.open_input_file(self._path(name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """A small file, in one step."""
        self._write(name, lambda file: file.write(data))

    def put(self, source: Path, name: str, on_bytes: Callable[[int], None] = lambda n: None) -> None:
        def copy(file: Any) -> None:
            with source.open("rb") as opened:
                while chunk := opened.read(_CHUNK):
                    file.write(chunk)
                    on_bytes(len(chunk))

        self._write(name, copy)

    def _write(self, name: str, fill: Callable[[Any], object]) -> None:
        path = self._path(name)
        aside = path if self._objects else f"{path}.writing"
        with self._told("written"):
            try:
                if not self._objects:
                    self._fs.create_dir(path.rpartition("/")[0], recursive=True)
                with self._fs.open_output_stream(aside) as file:
                    fill(file)
                if aside != path:
                    self._fs.move(aside, path)
            except FileNotFoundError as error:
                raise StorageError(f"{self.uri} cannot be written: {error}") from error

    def get(self, name: str, target: Path, on_bytes: Callable[[int], None] = lambda n: None) -> None:
        """Fetch a file; what is there of it already is its beginning, and stays."""
        try:
            with self._told("read"), self._fs.open_input_file(self._path(name)) as file, target.open("ab") as opened:
                have = opened.tell()
                if have > file.size():
                    opened.truncate(0)
                    have = 0
                on_bytes(have)
                file.seek(have)
                while chunk := file.read(_CHUNK):
                    opened.write(chunk)
                    on_bytes(len(chunk))
        except FileNotFoundError as error:
            raise StorageError(f"{self.uri}/{name}: no such file") from error

    def remove(self, name: str) -> None:
        with self._told("changed"):
            try:
                self._fs.delete_file(self._path(name))
            except FileNotFoundError:
                return

    def remove_directory(self, name: str) -> None:
        with self._told("changed"):
            try:
                self._fs.delete_dir(self._path(name))
            except FileNotFoundError:
                return


def _open(uri: str) -> tuple[Any, str]:
    parts = urlsplit(uri)
    if parts.username or parts.password:
        raise UsageError("keys do not belong into an address: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if parts.scheme != "s3":
        try:
            store, path = fs.FileSystem.from_uri(uri)
            return store, str(path).rstrip("/")
        except (pa.ArrowInvalid, ValueError) as error:
            raise UsageError(f"{parts.scheme}://: no such store, or not a complete address ({error})") from error
    options = dict(parse_qsl(parts.query))
    if unknown := set(options) - _S3:
        raise UsageError(f"{uri}: {sorted(unknown)[0]} is no option of s3://; there are {', '.join(sorted(_S3))}")
    if not parts.netloc:
        raise UsageError(f"{uri}: an address is s3://bucket/path")
    store = fs.S3FileSystem(
        connect_timeout=_PATIENCE,
        request_timeout=10 * _PATIENCE,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **_with_region(options, parts.netloc),
    )
    return store, (parts.netloc + parts.path).rstrip("/")


def _with_region(options: dict[str, str], bucket: str) -> dict[str, str]:
    """A store of one's own has no regions; Amazon says where a bucket is, if nobody else does."""
    if "region" in options or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        return options
    if "endpoint_override" in options or any(name.startswith("AWS_ENDPOINT_URL") for name in os.environ):
        return {**options, "region": "us-east-1"}
    return {**options, "region": fs.resolve_s3_region(bucket)}


def local_directory() -> Path:
    """Where files lie on their way from and to stores: XREG_WORK, or below the user's cache."""
    base = os.environ.get("XREG_WORK")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xreg-storage"


def place_of(uri: str) -> Path:
    """The local directory of an address: the same every time, so that a run that was killed finds its work."""
    return local_directory() / hashlib.sha256(uri.encode()).hexdigest()[:16]


def fetch(uri: str, on_bytes: OnBytes | None = None) -> Path:
    """A file or directory of a store, here; of what was fetched before, only what has changed since."""
    store, directory = Store(uri), place_of(uri)
    target, files = directory / store.name, store.files()
    if not files:
        raise StorageError(f"{store.uri}: no such file or directory")
    directory.mkdir(parents=True, exist_ok=True)
    known, log = dict[str, Any](), directory / "fetched.json"
    if log.exists():
        known = json.loads(log.read_text())
    for name in set(known) - set(files):
        (target / name).unlink(missing_ok=True)
    say = counter(on_bytes, sum(size for size, _ in files.values()))
    for name, (size, time) in sorted(files.items()):
        path = target / name if name else target
        if known.get(name) == [size, time] and path.is_file() and path.stat().st_size == size:
            say(size)
            continue
        part = directory / f"{hashlib.sha256(f'{name} {size} {time}'.encode()).hexdigest()[:16]}.part"
        store.get(name, part, say)
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)
        known[name] = [size, time]
        save_text(log, json.dumps({name: about for name, about in known.items() if name in files}))
    return target


class Leaving:
    """What a run makes for a store: a local name for it, and the way there.

    out    to write to; found again by the same address, so that a run that was killed goes on
    ready  it is finished already and was not stored
    """

    def __init__(self, uri: str) -> None:
        self._uri, self._store, self._directory = uri, Store(uri), place_of(uri)
        if self._store.files():
            raise UsageError(f"{self._store.uri} exists; remove it or choose another name")
        self._directory.mkdir(parents=True, exist_ok=True)
        self.out = self._directory / self._store.name
        self.ready = self.out.exists() and not work_of(self.out).exists()

    def store(self, on_bytes: OnBytes | None = None) -> None:
        """A directory's manifest is stored last. What lies beside a file under the same stem (an answer's second file)
        goes along, before it."""
        out, store = self.out, self._store
        if out.is_dir():
            named = [(file, file.relative_to(out).as_posix()) for file in sorted(out.rglob("*")) if file.is_file()]
        else:
            named = [(file, file.name) for file in sorted(self._directory.iterdir()) if file.stem == out.stem]
            store = Store(_parent(self._uri))
        named.sort(key=lambda pair: pair[1] in (MANIFEST, out.name))
        say = counter(on_bytes, sum(file.stat().st_size for file, _ in named))
        for file, name in named:
            store.put(file, name, say)
        shutil.rmtree(self._directory)


def _parent(uri: str) -> str:
    path, mark, options = uri.partition("?")
    return path.rstrip("/").rpartition("/")[0] + mark + options


def counter(on_bytes: OnBytes | None, total: int) -> Callable[[int], None]:
    done = 0

    def add(n: int) -> None:
        nonlocal done
        done += n
        if on_bytes is not None:
            on_bytes(done, total)

    return add
