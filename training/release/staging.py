"""A release in the making: the work directory beside the releases, what goes into a release, and the last look at it.

    RELEASES/.refresh/   job.json, begun.json   whose run this is, when it began, what was served then
                         …                      finished steps, each whole or not there
    RELEASES/.table/     the same of a run that trains nothing

A run that was killed goes on behind its last finished step and ends byte for byte where an uninterrupted one would.
What another run left (yesterday's data, other options) is cleared: nobody is there at night to do it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core import __version__
from core.errors import MovedError, ReleaseError
from core.executors import Executor
from core.format import read_json
from core.releases import created_at, current, is_name, link, publish
from core.served import RULE, Served
from core.work import claim_or_clear, locked, remove, save_text
from training.release.gate import enforce
from training.release.judged import Judged
from training.report.page import render_report

OnStep = Callable[[str, int, int], None]  # step, done, total (0: not known)
JUDGED = "judged.json"  # in a work directory
KNOWN = "known.parquet"  # in text/: the queries of the labelwise model, by label
_STAMP = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Terms:
    """Where a run publishes to and how: on how many threads, past the gate or not, who is told, what time it is,
    where units run if not on the threads, and what follows publishing: (release, the one it takes the place of)."""

    releases: Path
    threads: int
    force: bool = False
    on_step: OnStep = lambda name, done, total: None
    now: datetime | None = None
    executor: Executor | None = None
    on_published: Callable[[str, str | None], None] = lambda name, parent: None


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was begun: where it works, what it publishes to, and what was served when it began."""

    work: Path
    terms: Terms
    created: datetime
    parent: str | None


@contextmanager
def begun(terms: Terms, job: Mapping[str, Any], place: str = ".refresh") -> Iterator[Run]:
    """The run of a job, new or going on; its work directory goes away when all is well."""
    releases = terms.releases
    releases.mkdir(parents=True, exist_ok=True)
    work = releases / place
    work.mkdir(exist_ok=True)
    with locked(work):
        claim_or_clear(work, json.dumps({"xreg": __version__, **job}, indent=1))
        start = work / "begun.json"
        if not start.exists():
            begins = (terms.now or datetime.now(UTC)).strftime(_STAMP)
            save_text(start, json.dumps({"created": begins, "parent": current(releases)}))
        fields = read_json(start)
        created = datetime.strptime(fields["created"], _STAMP).replace(tzinfo=UTC)
        served = current(releases)
        if served != fields["parent"] and (served is None or created_at(served) != created):
            # Another release is served than when the run began, and it is not the run's own: compare with that one.
            (work / JUDGED).unlink(missing_ok=True)
            save_text(start, json.dumps({**fields, "parent": served}))
            fields["parent"] = served
        yield Run(work, terms, created, fields["parent"])
        remove(work)


def publish_run(run: Run, job: Mapping[str, Any], judged: Judged, parts: Mapping[str, Path]) -> str:
    """Pass the gate and publish: parts by their place in the release, rule, figures and report beside them."""
    run.terms.on_step("publishing", 0, 0)
    enforce(judged.gate, run.terms.force)
    forced = any(check.failed for check in judged.gate)
    facts = {**judged.facts, "release": {**judged.facts["release"], "forced": forced}}
    fields = {
        "xreg": __version__,
        "parent": run.parent,
        "tabled": run.created.strftime(_STAMP),  # when the table was filled: just now, unless the job says otherwise
        **job,
        "merge": {"weight": judged.rule.weight, "maps": sorted(judged.rule.maps)},
        "figures": judged.figures,
        "gate": {"forced": forced, "checks": [check._asdict() for check in judged.gate]},
        "golden": judged.golden,
    }

    def fill(aside: Path) -> None:
        _check_unmoved(run)
        for place, source in parts.items():
            _take(source, aside / place, run)
        (aside / RULE).write_text(json.dumps(judged.rule.as_json(), indent=1) + "\n")
        (aside / "stats.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (aside / "report.html").write_text(render_report(facts), encoding="utf-8")

    def check(aside: Path) -> None:
        """As the service opens it."""
        Served.open(aside).check_golden(judged.golden)

    name = publish(run.terms.releases, run.created, fields, fill, check)
    run.terms.on_published(name, run.parent)
    return name


def _check_unmoved(run: Run) -> None:
    """Nobody publishes meanwhile: this is called under the lock."""
    served = current(run.terms.releases)
    if served != run.parent and (served is None or created_at(served) != run.created):
        raise MovedError(f"{run.terms.releases}: {served} was published meanwhile; start again to build on it")


def settled(make: Callable[[], str]) -> str:
    """Make a release, anew while others are published meanwhile; steps that count for it all the same are kept."""
    while True:
        try:
            return make()
        except MovedError:
            continue


def _take(source: Path, target: Path, run: Run) -> None:
    """Linked where the file is ours and never changes, copied where it belongs to somebody else."""
    if run.work in source.parents or any(is_name(folder.name) for folder in source.parents):
        link(source, target)
    elif source.is_dir():
        shutil.copytree(source, target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def served_release(releases: Path) -> Path:
    """The directory of the release being served; the steps that build on one need it."""
    name = current(releases)
    if name is None:
        raise ReleaseError(
            f"{releases}: nothing is published yet; `xreg refresh --data DATASET` makes the first release"
        )
    return releases / name
