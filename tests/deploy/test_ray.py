"""The cluster's files say what the program knows: its options, its variables, the locked version of Ray."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from training.cli import main

ROOT = Path(__file__).parent.parent.parent
RAY = ROOT / "deploy" / "ray"


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((RAY / "rayjob.yaml").read_text())
    return loaded


def containers(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_the_job_has_the_locked_version_of_ray(job: dict[str, Any]) -> None:
    locked = re.search(r"^ray==(\S+)", (ROOT / "requirements.lock").read_text(), re.M)
    assert locked
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == locked[1]


def test_the_entry_point_is_a_command_with_options_that_exist(job: dict[str, Any]) -> None:
    program, command, *options = shlex.split(job["spec"]["entrypoint"])
    assert program == "xreg"
    told = CliRunner().invoke(main, [command, "--help"]).output
    assert {option for option in options if option.startswith("--")} <= set(re.findall(r"--[a-z-]+", told))


def test_every_pod_has_a_cache_for_kernels_and_the_keys_of_the_store(job: dict[str, Any]) -> None:
    found = containers(job)
    assert len(found) == 2
    for container in found:
        assert {"XREG_WORK", "XREG_KERNEL_CACHE"} == {variable["name"] for variable in container["env"]}
        assert container["envFrom"] == [{"secretRef": {"name": "xreg-store"}}]
        assert "/kernels" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_head_runs_no_units(job: dict[str, Any]) -> None:
    """So that any machine that does may be lost."""
    assert job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    cluster = yaml.safe_load((RAY / "cluster.yaml").read_text())
    assert cluster["available_node_types"][cluster["head_node_type"]]["resources"]["CPU"] == 0
