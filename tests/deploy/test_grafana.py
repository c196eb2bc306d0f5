"""The dashboard: every expression can be parsed and reads what exists, nothing lies on top of another."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import ROOT, metrics_of, promtool, read_yaml, recorded, recordings_of, rules

GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "xreg.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUESTIONS = ["Is it fast?", "Is it right?", "Is it fresh?", "Is it full?"]


def expressions() -> list[str]:
    """Of panels and annotations; the dashboard's own variables with values."""
    found = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
    found += [annotation["expr"] for annotation in DASHBOARD["annotations"]["list"]]
    return [expression.replace("$__rate_interval", "1m").replace("$instance", ".*") for expression in found]


def test_four_rows_ask_the_four_questions_and_each_has_panels() -> None:
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == QUESTIONS
    kinds = "".join("r" if panel["type"] == "row" else "p" for panel in PANELS)
    assert all(part for part in kinds.split("r")[1:])


def test_every_expression_can_be_parsed(tmp_path: Path) -> None:
    made = [{"record": f"x:x:x{n}", "expr": expression} for n, expression in enumerate(expressions())]
    assert len(made) > 30
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": made}]}))
    promtool("check", "rules", path)


def test_every_expression_reads_what_exists(exported: set[str]) -> None:
    read = {name for expression in expressions() for name in metrics_of(expression)}
    assert read - exported == set()
    recordings = {name for expression in expressions() for name in recordings_of(expression)}
    assert recordings
    assert recordings - recorded() == set()


def test_what_is_counted_is_looked_at(exported: set[str]) -> None:
    """By a panel or a rule."""
    read = {name for text in [*expressions(), *(rule["expr"] for rule in rules())] for name in metrics_of(text)}
    ours = {_family(name) for name in exported if name.startswith("xreg_")}
    assert ours - {_family(name) for name in read} == set()


def _family(name: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_panels_have_a_number_a_title_and_say_what_they_show() -> None:
    numbers = [panel["id"] for panel in PANELS]
    assert len(numbers) == len(set(numbers))
    shown = [panel for panel in PANELS if panel["type"] != "row"]
    assert len({panel["title"] for panel in shown}) == len(shown)
    assert [panel["title"] for panel in shown if not panel["description"] or not panel["targets"]] == []


def test_no_panel_lies_on_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for place in product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
            assert place not in taken, f"{panel['title']} and {taken[place]}"
            taken[place] = panel["title"]


def test_panels_ask_the_data_source_that_is_provisioned() -> None:
    source = read_yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"][0]
    named = {"type": source["type"], "uid": source["uid"]}
    asked = [panel["datasource"] for panel in PANELS if panel["type"] != "row"]
    asked += [target["datasource"] for panel in PANELS for target in panel.get("targets", ())]
    assert all(datasource == named for datasource in asked)


def test_the_dashboard_lies_where_the_provider_looks() -> None:
    provider = read_yaml(GRAFANA / "provisioning" / "dashboards" / "xreg.yml")["providers"][0]
    compose = read_yaml(ROOT / "docker-compose.yml")["services"]["grafana"]
    mounts = {volume.split(":")[1]: volume.split(":")[0] for volume in compose["volumes"]}
    assert (ROOT / mounts[provider["options"]["path"]] / "xreg.json").samefile(GRAFANA / "dashboards" / "xreg.json")
    assert (ROOT / mounts["/etc/grafana/provisioning"]).samefile(GRAFANA / "provisioning")
