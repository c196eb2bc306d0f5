"""The manifests: valid by Kubernetes' own schemas, closed as far as it goes, in step with the service's settings."""

from __future__ import annotations

import json
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import click
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from service.app import create_app
from service.settings import Settings, read_settings
from tests.deploy.tools import ROOT
from training.cli import main

FILES = sorted((ROOT / "deploy" / "k8s").glob("*.yaml"))
OLDEST = "1.31"  # what a cluster may be, to what the validator knows
GRACE = 30  # seconds that the service gives to what was begun (service/command.py)


@cache
def manifests() -> tuple[dict[str, Any], ...]:
    return tuple(chain.from_iterable(yaml.safe_load_all(path.read_text()) for path in FILES))


def named(kind: str, name: str) -> dict[str, Any]:
    return next(m for m in manifests() if (m["kind"], m["metadata"]["name"]) == (kind, name))


def pods() -> dict[str, dict[str, Any]]:
    """The pods' specs."""
    job = named("CronJob", "xreg-refresh")["spec"]["jobTemplate"]["spec"]
    return {
        "service": named("Deployment", "xreg")["spec"]["template"]["spec"],
        "refresh": job["template"]["spec"],
    }


def containers() -> list[dict[str, Any]]:
    return [c for pod in pods().values() for c in [*pod.get("initContainers", ()), *pod["containers"]]]


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_every_manifest_is_valid(version: str) -> None:
    kinds = [manifest["kind"] for manifest in manifests()]
    assert {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "CronJob"} <= set(kinds)
    for manifest in manifests():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_validator_refuses_a_field_that_does_not_exist() -> None:
    wrong = json.loads(json.dumps(named("Deployment", "xreg")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_nothing_runs_as_root_writes_to_its_image_or_can_become_more() -> None:
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # XREG_PORT=tcp://… would stop the start
    for container in containers():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(container["resources"]["limits"])
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_mounts_have_volumes_and_volumes_have_claims() -> None:
    claims = {m["metadata"]["name"] for m in manifests() if m["kind"] == "PersistentVolumeClaim"}
    for pod in pods().values():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
        mounted = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
        assert {claim["claimName"] for claim in mounted} <= claims


def test_selectors_find_the_pods() -> None:
    labels = named("Deployment", "xreg")["spec"]["template"]["metadata"]["labels"]
    assert named("Deployment", "xreg")["spec"]["selector"]["matchLabels"] == labels
    assert named("PodDisruptionBudget", "xreg")["spec"]["selector"]["matchLabels"] == labels
    assert named("Service", "xreg")["spec"]["selector"] == labels
    assert named("NetworkPolicy", "xreg-asked")["spec"]["podSelector"]["matchLabels"] == labels
    refresh = named("CronJob", "xreg-refresh")["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert refresh != labels  # or the Service would send it queries


def test_settings_are_those_of_the_service() -> None:
    variables = {**named("ConfigMap", "xreg")["data"], **named("Secret", "xreg")["stringData"]}
    settings = read_settings({**variables, "XREG_RELEASES": "/data/releases"}, {})
    assert settings.admin_token is None
    pod, container = pods()["service"], pods()["service"]["containers"][0]
    assert pod["terminationGracePeriodSeconds"] >= settings.drain_seconds + GRACE
    ready = container["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < settings.drain_seconds


def test_probes_ask_what_the_service_answers(tmp_path: Path) -> None:
    known = create_app(Settings(releases=tmp_path)).api.openapi()["paths"]
    container = pods()["service"]["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    for name, path in {
        "startupProbe": "/health/live",
        "livenessProbe": "/health/live",
        "readinessProbe": "/health/ready",
    }.items():
        assert container[name]["httpGet"]["path"] == path
        assert path in known
        assert container[name]["httpGet"]["port"] in ports


def test_the_refresh_is_made_of_commands_that_exist_one_at_a_time() -> None:
    assert named("CronJob", "xreg-refresh")["spec"]["concurrencyPolicy"] == "Forbid"
    for container in containers():
        name, *arguments = container["args"]
        command = main.get_command(click.Context(main), name)
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= known
