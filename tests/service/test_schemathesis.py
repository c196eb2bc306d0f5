"""The OpenAPI document, tried out by schemathesis: requests made from it, right and wrong ones, at a real server.

No answer is a 5xx or differs from what the document says, and nothing that the document forbids is accepted. One check
is left out, `positive_data_acceptance`: what the document allows may be refused for what it cannot say (a release that
is not there, features that are given twice) and for integers written as 1.0, which JSON Schema takes for integers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.service.server import TOKEN, Running, copied, serving

# A body that is both wrong and too large is refused as too large: 413 is not in schemathesis's own list.
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "404", "405", "408", "413", "415", "422"]
"""
EXAMPLES = 400


def tried_out(running: Running, directory: Path) -> dict[str, Any]:
    """The report of a run, which is the same every time."""
    config, report = directory / "schemathesis.toml", directory / "report.json"
    config.write_text(CONFIG)
    program = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"
    command = [
        sys.executable, "-c", program, "--config-file", str(config), "run", f"{running.http.base_url}/openapi.json",
        "--exclude-checks", "positive_data_acceptance", "--phases", "examples,coverage,fuzzing",
        "--max-examples", str(EXAMPLES), "--generation-deterministic", "--continue-on-failure", "--no-color",
        "--header", f"Authorization: Bearer {TOKEN}", "--report", "json", "--report-json-path", str(report),
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
    print(ended.stdout[-20000:], ended.stderr[-5000:])  # shown where the test fails
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_answers_are_what_the_document_says_and_none_is_a_5xx(releases: Path, tmp_path: Path) -> None:
    copied(releases, tmp_path / "releases", served=1)
    with serving(tmp_path / "releases", tmp_path / "log") as running:
        found = tried_out(running, tmp_path)
        assert running.http.get("/health/ready").status_code == 200
    assert (found["failures"], found["errors"], found["complete"]) == ([], [], True)
    assert found["operations"]["tested"] == found["operations"]["total"] >= 11
    assert found["test_cases"]["generated"] > EXAMPLES
    assert [event for event in running.events() if event["event"] == "failure"] == []
