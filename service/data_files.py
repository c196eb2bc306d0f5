"""Files that a client may name: those below one directory, and nothing else.

Symbolic links may lead anywhere inside it, never out. The path is resolved first and then opened part by part without
following any link, so that one put there in between leads nowhere.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from service.problems import Fault, RefusedError, invalid

ENDINGS = (".csv", ".csv.gz", ".parquet")


def open_below(root: Path | None, given: str) -> BinaryIO:
    """A regular file below `root`, by its path there; anything else is refused."""
    if root is None:
        raise _refused("cannot be used here: no data directory is configured (--data-dir, XREG_DATA_DIR)")
    if not given.endswith(ENDINGS):
        raise _refused(f"must end in {', '.join(ENDINGS)}; got {given[:100]!r}")
    try:
        top = root.resolve(strict=True)
        found = (top / given).resolve(strict=True)
        parts = found.relative_to(top).parts
        return _opened(top, parts)
    except (OSError, ValueError, RuntimeError) as error:  # not there, outside, a NUL, a loop of links
        raise _refused(f"must be a file below the data directory, got {given[:100]!r}") from error


def _opened(top: Path, parts: tuple[str, ...]) -> BinaryIO:
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        # A pipe would keep us waiting, a device do worse.
        handle = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except IndexError as error:  # the directory itself
        raise ValueError("a directory") from error
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("not a regular file")
    return os.fdopen(handle, "rb")


def _refused(detail: str) -> RefusedError:
    return RefusedError(invalid(Fault("/file", detail)))
