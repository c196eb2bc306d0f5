"""Everything that can be set, as one frozen value: from flags, else from `XREG_*` variables, else the default here.

The command's options are made from these fields, so nothing is written twice. A variable that nobody reads is a
mistake that would otherwise pass in silence: it is refused, and the nearest name suggested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from core.errors import UsageError
from core.releases import is_name

PREFIX = "XREG_"
# Read elsewhere: by tests, core/jit.py, the shared table, the executors, storage.
OTHERS = {"XREG_DATA", "XREG_KERNEL_CACHE", "XREG_REDIS", "XREG_EXECUTOR", "XREG_RAY_ADDRESS", "XREG_WORK"}
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the service runs."""

    releases: Path = field(metadata={"help": "Directory of the releases."})
    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on."})
    port: int = field(default=8000, metadata={"help": "Port to listen on."})
    workers: int = field(default=1, metadata={"help": "Processes that answer."})
    max_body: int = field(default=64 * 1024, metadata={"help": "Bytes that a request's body may have."})
    max_batch: int = field(default=256, metadata={"help": "Queries that a batch may have."})
    max_batch_body: int = field(
        default=1024 * 1024, metadata={"help": "Bytes that the body of a batch, or of a job's ads, may have."}
    )
    max_long: int = field(
        default=4, metadata={"help": "Batches and explanations that are worked on or wait; the next gets 503."}
    )
    max_concurrency: int = field(
        default=48, metadata={"help": "Requests that are worked on or wait; the next gets 503."}
    )
    cache: int = field(
        default=16384,
        metadata={"help": "Answers that a worker keeps to give them again; 2 KB each, 6 KB at most. 0: none."},
    )
    body_seconds: float = field(default=10.0, metadata={"help": "Time that a client has to send its body."})
    idle_seconds: float = field(default=75.0, metadata={"help": "Connections that are idle for longer are closed."})
    watch_seconds: float = field(default=2.0, metadata={"help": "How often CURRENT is looked at; 0: never."})
    drain_seconds: float = field(
        default=1.0, metadata={"help": "Time between SIGTERM (unready) and the end of listening."}
    )
    shadow: str | None = field(
        default=None, metadata={"help": "A release that answers some requests a second time, to be compared."}
    )
    shadow_share: float = field(default=0.1, metadata={"help": "Share of the requests that the shadow answers too."})
    data_dir: Path | None = field(
        default=None, metadata={"help": "Directory whose files POST /labelwise may name; without one, none."}
    )
    jobs_dir: Path | None = field(
        default=None, metadata={"help": "Where jobs are kept; .jobs in the releases' directory if left out."}
    )
    job_threads: int = field(default=1, metadata={"help": "Threads of a job's process, which yields to requests."})
    admin_token: str | None = field(
        default=None,
        repr=False,
        metadata={"help": "Bearer token of /admin, and of starting and cancelling jobs; without one no /admin."},
    )
    log_requests: bool = field(
        default=False, metadata={"help": "A line in the log for every request, not just for failures."}
    )
    log_queries: bool = field(
        default=False, metadata={"help": "Queries as text in the log; they are personal data, and hashed without this."}
    )

    def __post_init__(self) -> None:
        _must(0 <= self.port <= 65535, "port must be between 0 and 65535", self.port)
        _must(1 <= self.workers <= 256, "workers must be between 1 and 256", self.workers)
        for name in ("max_body", "max_batch", "max_batch_body", "max_long", "max_concurrency", "job_threads"):
            _must(getattr(self, name) >= 1, f"{name} must be at least 1", getattr(self, name))
        for name in ("body_seconds", "idle_seconds"):
            _must(getattr(self, name) > 0, f"{name} must be above 0", getattr(self, name))
        _must(0 <= self.cache <= 10**8, "cache must be between 0 and 100000000", self.cache)
        _must(0 <= self.shadow_share <= 1, "shadow_share must be between 0 and 1", self.shadow_share)
        _must(self.shadow is None or is_name(self.shadow), "shadow must be the name of a release", self.shadow)
        for name in ("watch_seconds", "drain_seconds"):
            _must(0 <= getattr(self, name) < 1e6, f"{name} must not be negative", getattr(self, name))
        if self.admin_token is not None and len(self.admin_token) < 8:
            raise UsageError("admin_token must have 8 characters at least")


def _must(holds: bool, rule: str, got: object) -> None:
    if not holds:
        raise UsageError(f"{rule}, got {got}")


def kinds() -> dict[str, Any]:
    """The settings with the types they are read as."""
    hints = get_type_hints(Settings)
    optional = {str | None: str, Path | None: Path}
    return {f.name: optional.get(hints[f.name], hints[f.name]) for f in fields(Settings)}


def default_of(setting: Field[Any]) -> str | None:
    """What a setting is where nobody says anything, as people write it; None if somebody must."""
    return None if setting.default is MISSING else str(setting.default)


def read_settings(environ: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """Flags (None: not given) before variables (empty: not given) before defaults."""
    known = {PREFIX + name.upper(): name for name in kinds()}
    _refuse_unknown(environ, {*known, *OTHERS})
    given = {name: environ[variable] for variable, name in known.items() if environ.get(variable)}
    values = {name: _parsed(PREFIX + name.upper(), text, kinds()[name]) for name, text in given.items()}
    values |= {name: value for name, value in flags.items() if value is not None}
    if "releases" not in values:
        raise UsageError("say where the releases are: --releases DIR or XREG_RELEASES")
    return Settings(**values)


def _refuse_unknown(environ: Mapping[str, str], known: set[str]) -> None:
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in known:
            near = get_close_matches(variable, sorted(known), 1, 0.0)[0]
            raise UsageError(f"{variable} is no variable of xreg; did you mean {near}?")


def _parsed(variable: str, text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in _TRUE | _FALSE:
            raise UsageError(f"{variable} must be 1 or 0, got {text!r}")
        return text.lower() in _TRUE
    try:
        return kind(text)
    except ValueError as error:
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"{variable} must be {what}, got {text!r}") from error
