"""Where the files of deploy/ are, and the tools that check them; a test is skipped where its tool is not installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
_OURS, _RECORDED = re.compile(r"\bxreg_[a-z0-9_]+"), re.compile(r"\b\w+:xreg_\w+:\w+")


def promtool(*arguments: str | Path) -> str:
    """What it prints; its complaint is the test's."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed: it comes with Debian's package prometheus")
    run = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules() -> Iterator[dict[str, Any]]:
    """Every rule: those that record and those that alert."""
    for path in RULES:
        for group in read_yaml(path)["groups"]:
            yield from group["rules"]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def metrics_of(expression: str) -> set[str]:
    """The metrics of the service that an expression reads, recorded ones left out."""
    return set(_OURS.findall(_RECORDED.sub("", expression)))


def recordings_of(expression: str) -> set[str]:
    return set(_RECORDED.findall(expression))
