"""The rules: well formed, each alert with cases that promtool runs, a page of the runbook, and metrics that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.tools import (
    PROMETHEUS,
    ROOT,
    RULES,
    alerts,
    metrics_of,
    promtool,
    read_yaml,
    recorded,
    recordings_of,
    rules,
)

CASES = sorted((PROMETHEUS / "tests").glob("*.yml"))
# An alert on the first increase needs a series that starts at 0: a counter that appears with 1 has not increased.
FROM_THE_START = (
    ("xreg_reloads_total", "result", "refused"),
    ("xreg_shed_total", "reason", "concurrency"),
    ("xreg_jobs", "state", "failed"),
)


def test_configuration_and_rules_are_well_formed() -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")
    promtool("check", "rules", *RULES)


@pytest.mark.parametrize("cases", CASES, ids=lambda path: path.stem)
def test_alerts_fire_when_they_must_and_only_then(cases: Path) -> None:
    promtool("test", "rules", cases)


def test_every_alert_is_seen_firing() -> None:
    fired = "".join(
        str(check["exp_samples"])
        for path in CASES
        for case in read_yaml(path)["tests"]
        for check in case["promql_expr_test"]
    )
    assert [alert["alert"] for alert in alerts() if f'alertname="{alert["alert"]}"' not in fired] == []


def test_every_alert_leads_to_its_section_of_the_runbook() -> None:
    headings = [
        line.lstrip("#").strip()
        for line in (ROOT / "docs" / "operations.md").read_text().splitlines()
        if line.startswith("### ")
    ]
    assert len(headings) == len(set(headings))
    names = [alert["alert"] for alert in alerts()]
    assert names
    assert len(names) == len(set(names))
    assert [name for name in names if name not in headings] == []
    assert [heading for heading in headings if heading.startswith("Xreg") and heading not in names] == []
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"docs/operations.md#{alert['alert'].lower()}"
        assert alert["labels"]["severity"] in {"page", "ticket"}


def test_rules_read_only_what_the_service_exports(exported: set[str]) -> None:
    read = {name for rule in rules() for name in metrics_of(rule["expr"])}
    assert "xreg_request_seconds_count" in read
    assert read - exported == set()


def test_rules_read_only_recordings_that_are_made() -> None:
    read = {name for rule in rules() for name in recordings_of(rule["expr"])}
    assert read
    assert read - recorded() == set()


def test_the_promise_is_a_bucket(metrics: str) -> None:
    """Without a bucket of exactly 5 ms the recording would be empty, and its alerts silent for ever."""
    found = {
        sample.labels["le"]
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "xreg_request_seconds_bucket" and sample.labels["route"] == "/predict"
    }
    assert "0.005" in found


@pytest.mark.parametrize(("name", "label", "value"), FROM_THE_START)
def test_what_alerts_wait_for_is_exported_as_zero(metrics: str, name: str, label: str, value: str) -> None:
    values = [
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == name and sample.labels.get(label) == value
    ]
    assert values == [0.0]
