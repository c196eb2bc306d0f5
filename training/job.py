"""What decides which model comes out of a run, as its work directory says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from core import __version__
from core.work import JOB
from training.params import Params


class Job(NamedTuple):
    """Parameters and data of a run; together with the inputs beside it, all that the rest of the run needs."""

    params: Params
    fingerprint: str

    def as_text(self) -> str:
        fields = {"xreg": __version__, "params": self.params.as_json(), "data": self.fingerprint}
        return json.dumps(fields, indent=1)


def claimed_by(work: Path) -> Job | None:
    """The job that a work directory belongs to, or None where there is none."""
    if not (work / JOB).exists():
        return None
    fields = json.loads((work / JOB).read_text())
    return Job(Params.from_json(fields["params"]), fields["data"])
