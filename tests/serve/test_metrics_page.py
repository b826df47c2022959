"""docs/metrics.md and deploy/holdfast-alerts.yml speak of what is really exposed, and of all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from ruamel.yaml import YAML

from tests.serve.exposed import everything, labels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RULES = YAML(typ="safe").load((ROOT / "deploy" / "holdfast-alerts.yml").read_text(encoding="utf-8"))
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
OF_PROMETHEUS = {"instance", "job", "le"}  # labels that nobody has to expose
BEFORE_ALERTS = PAGE[: PAGE.index("## Alerts")]


@pytest.fixture(scope="module")
def exposed() -> dict[str, dict[str, set[str]]]:
    return {name: values for name, values in labels(everything()).items() if name.startswith("holdfast_")}


def on_the_page() -> dict[str, set[str]]:
    """What stands in the first column of its tables."""
    rows = [line.split("|")[1] for line in BEFORE_ALERTS.splitlines() if line.startswith("| `holdfast_")]
    named = re.findall(r"`(holdfast_\w+)(?:\{([^}]*)\})?`", " ".join(rows))
    return {name: {label for label in given.split(", ") if label} for name, given in named}


def test_the_page_has_every_metric_with_its_labels_and_no_other(exposed: dict[str, dict[str, set[str]]]) -> None:
    assert on_the_page() == {name: set(values) - {"le"} for name, values in exposed.items()}


def test_the_rules_are_a_rule_file_with_a_reason_for_each_alert() -> None:
    assert set(RULES) == {"groups"}
    assert len({group["name"] for group in RULES["groups"]}) == len(RULES["groups"])
    assert len(ALERTS) == sum(len(group["rules"]) for group in RULES["groups"])
    for group in RULES["groups"]:
        assert set(group) == {"name", "rules"}
    for name, rule in ALERTS.items():
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}, name
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        assert rule["expr"].count("(") == rule["expr"].count(")")


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_its_section_on_the_page(name: str) -> None:
    assert ALERTS[name]["annotations"]["runbook"] == f"docs/metrics.md#{name.lower()}"
    assert f"\n### {name}\n" in PAGE


def test_the_page_has_no_section_for_an_alert_that_is_not_there() -> None:
    assert set(re.findall(r"\n### (Holdfast\w+)", PAGE)) == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_only_for_what_is_exposed(name: str, exposed: dict[str, dict[str, set[str]]]) -> None:
    expression = ALERTS[name]["expr"]
    known = {"up": {"job": {"holdfast", "holdfast-worker"}}} | exposed
    asked = {re.sub(r"_(bucket|count|sum)$", "", metric) for metric in re.findall(r"\b(holdfast_\w+|up)\b", expression)}
    assert asked <= set(known), asked - set(known)
    their_labels = OF_PROMETHEUS.union(*(known[metric] for metric in asked))
    grouped = {label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(", ")}
    assert grouped <= their_labels, grouped - their_labels
    for metric, matchers in re.findall(r"\b(holdfast_\w+|up)\{([^}]*)\}", expression):
        values = known[re.sub(r"_(bucket|count|sum)$", "", metric)]
        for label, operator, wanted in re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers):
            assert label in values, (metric, label)
            for one in wanted.split("|") if operator == "=~" else [wanted]:
                # What workers say of themselves is not all in the samples: `why` of a runner that ended.
                assert label == "why" or any(re.fullmatch(one, value) for value in values[label]), (metric, label, one)


class _Everything(CollectorRegistry):
    def collect(self) -> list[Metric]:
        return everything()


def test_no_name_is_exposed_twice() -> None:
    text = generate_latest(_Everything()).decode()
    types = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(types) == len(set(types))
