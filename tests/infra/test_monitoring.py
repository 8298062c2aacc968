"""Dashboards and alerts: every expression parses and asks for numbers that the gateway tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.web import metrics
from tests.infra.conftest import INFRA, rendered

FOLDER = INFRA / "monitoring"


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


@pytest.fixture
def told(catalog: Catalog) -> dict[str, set[str]]:
    """Metric names that the gateway tells, with the labels they may have."""
    text = metrics.exposition(catalog, "text/plain", cards=["any"])[0].decode()
    families = {family.name: {"state", "kind"} for family in text_string_to_metric_families(text)}
    return families | {name: {"card"} for name, _ in metrics.PER_CARD.values()}


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Metrics that an expression asks for, with the labels it picks them by."""
    found: list[tuple[str, set[str]]] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append((str(node.name), {matcher.name for matcher in node.matchers.matchers}))
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return iter(found)


def test_expressions_ask_for_what_is_told(told: dict[str, set[str]]) -> None:
    asked = set()
    for where, expression in expressions():
        for name, labels in selectors(expression):
            assert name in told, f"{where}: {name}"
            assert labels <= told[name], f"{where}: {name} {labels}"
            asked.add(name)
    assert asked == set(told), "what is told is shown somewhere"


def test_scalers_ask_for_what_is_told(told: dict[str, set[str]]) -> None:
    for manifest in rendered("production"):
        if manifest["kind"] == "ScaledObject":
            for trigger in manifest["spec"]["triggers"]:
                ((name, labels),) = selectors(trigger["metadata"]["valueLocation"])
                assert labels <= told[name]


def test_a_card_that_nobody_serves_is_told_as_nothing_wanted(catalog: Catalog) -> None:
    """A scaler that finds no number leaves things as they are, and would never scale down."""
    text = metrics.exposition(catalog, "text/plain", cards=["flux-t2i"])[0].decode()
    assert 'mutoscope_workers_wanted{card="flux-t2i"} 0.0' in text


def test_alerts_say_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 5
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert promql_parser.parse_duration(rule.get("for", "1m"))


def test_the_dashboard_is_one_that_grafana_lays_out() -> None:
    shown = dashboard()
    panels = shown["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    variables = {variable["name"] for variable in shown["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= variables | {"__all"}
    boxes = [panel["gridPos"] for panel in panels]
    assert all(box["x"] + box["w"] <= 24 for box in boxes)
    for one, other in combinations(boxes, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
