"""Writes what has another source: the dashboards from ``dashboards.yaml``, and the rules for the
Prometheus operator from ``rules.yaml``.

    python k8s/monitoring/render.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent

METRIC = re.compile(r"\b(?:[a-z_]+:)?fencelog_\w+(?::\w+)?(\{)?")
"""A metric, or a recorded one, and whether it has a selector."""

COLUMNS = 24
"""The columns of Grafana's grid."""
SIZES = {"stat": (4, 4), "timeseries": (12, 8), "table": (24, 8)}
"""The width and height of a panel."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 38
"""That of Grafana 10."""


def selected(expression: str) -> str:
    """Return an expression with every metric restricted to the cluster that is looked at."""
    inside = 'namespace=~"$namespace"'
    return METRIC.sub(
        lambda found: found[0] + (f"{inside}," if found[1] else f"{{{inside}}}"), expression
    )


def panels(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the panels of a dashboard, from left to right, row below row."""
    found, x, y, row = [], 0, 0, 0
    for number, panel in enumerate(given, 1):
        kind = panel.get("kind", "timeseries")
        width, height = SIZES[kind]
        if x + width > COLUMNS:
            x, y, row = 0, y + row, 0
        shown = {
            "id": number,
            "type": kind,
            "title": panel["title"],
            "description": panel["meaning"],
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
            "options": _options(kind),
            "targets": [
                {
                    "refId": chr(ord("A") + index),
                    "datasource": SOURCE,
                    "expr": selected(expression),
                    "legendFormat": legend,
                    **({"format": "table", "instant": True} if kind == "table" else {}),
                }
                for index, (legend, expression) in enumerate(panel["queries"].items())
            ],
        }
        found.append(shown)
        x, row = x + width, max(row, height)
    return found


def _options(kind: str) -> dict[str, Any]:
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"}
    if kind == "timeseries":
        return {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"showHeader": True}


def dashboard(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it."""
    variables = {"namespace": "label_values(fencelog_broker_partitions, namespace)"}
    for label, metric in given.get("variables", {}).items():
        variables[label] = f"label_values({selected(metric)}, {label})"
    return {
        "uid": f"fencelog-{name}",
        "title": f"fencelog: {given['title']}",
        "tags": ["fencelog"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                *(_variable(label, query) for label, query in variables.items()),
            ]
        },
        "panels": panels(given["panels"]),
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def rendered() -> dict[Path, str]:
    """Return the text of every file that has another source."""
    rules = yaml.safe_load((HERE / "rules.yaml").read_text("utf-8"))
    found = {HERE / "prometheus_rule.yaml": _prometheus_rule(rules)}
    given = yaml.safe_load((HERE / "dashboards.yaml").read_text("utf-8"))
    for name, one in given.items():
        text = json.dumps(dashboard(name, one), indent=2, ensure_ascii=False)
        found[HERE / "dashboards" / f"{name}.json"] = text + "\n"
    return found


def _prometheus_rule(rules: dict[str, Any]) -> str:
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "fencelog"},
        "spec": rules,
    }
    body = yaml.safe_dump(manifest, sort_keys=False, width=100, allow_unicode=True)
    return f"# Written by render.py from rules.yaml.\n{body}"


def main() -> None:
    """Write them."""
    for path, text in rendered().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
