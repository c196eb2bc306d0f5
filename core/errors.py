"""Every error a person can meet, as one tree.

    XregError            exit code 1, HTTP 500
    ├── UsageError       2, 400   an option or argument that cannot be
    ├── DataError        3, 422   a data file that is not what it should be
    ├── ModelError       4, 503   a model directory that must not be used
    ├── ResumeError      5, 409   unfinished work that belongs to another run
    ├── TableError       6, 503   a shared table that cannot be reached or must not be used
    ├── ReleaseError     7, 409   a release that cannot be published, found or rolled back to
    │   ├── MovedError   7, 409   another release was published while this one was made
    │   └── GateError    8, 409   a release that is clearly worse than the one being served
    ├── ClusterError     9, 503   a cluster that cannot be reached, or whose machines must not be mixed
    └── StorageError    10, 503   a store of files that cannot be reached, or refuses

The class decides the exit code of the command and the status of the service; the message names the cause
and, where there is one, the remedy.
"""

from __future__ import annotations

from typing import ClassVar


class XregError(Exception):
    """Anything xreg refuses to do, worded for the person who can fix it."""

    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500


class UsageError(XregError):
    """An option or argument that cannot be."""

    exit_code = 2
    status = 400


class DataError(XregError):
    """A data file that is not what it should be; says file, line and cause."""

    exit_code = 3
    status = 422


class ModelError(XregError):
    """A model directory that must not be used."""

    exit_code = 4
    status = 503


class ResumeError(XregError):
    """Unfinished work on disk that belongs to another run."""

    exit_code = 5
    status = 409


class TableError(XregError):
    """A shared table that cannot be reached or must not be used; names the store, never its password."""

    exit_code = 6
    status = 503


class ReleaseError(XregError):
    """A release that cannot be published, found or rolled back to."""

    exit_code = 7
    status = 409


class MovedError(ReleaseError):
    """Another release was published while this one was made: it must be compared with that one, or made anew."""


class GateError(ReleaseError):
    """A release that is clearly worse than the one being served."""

    exit_code = 8


class ClusterError(XregError):
    """A cluster that cannot be reached, or whose machines must not be mixed."""

    exit_code = 9
    status = 503


class StorageError(XregError):
    """A store of files that cannot be reached, or refuses; names the store, never its keys."""

    exit_code = 10
    status = 503
