"""The rules: valid, tried one by one, and about metrics that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from fencelog.api.metrics.table import TABLE, MetricKind
from fencelog.ledgers.errors import ErrorCode, Fault
from k8s.monitoring.render import rendered
from tests.processes.monitoring.prometheus import (
    DASHBOARDS,
    MONITORING,
    OF_TARGETS,
    Named,
    named_in,
    panels,
    program,
    rules,
    variables,
)
from tests.support.house import ROOT

RECORDED = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}

NO_FAILURES = {
    ErrorCode.DRAINING: "an orderly stop; others serve, and what cannot be repeated is unknown",
}
"""The codes of a server that are no failure of the cluster, and why."""

HEADING = re.compile(r"^#{2,4} (.+)$", re.MULTILINE)


def exposed() -> dict[str, set[str]]:
    """The labels of every series by its name, as METRICS.md documents them."""
    found: dict[str, set[str]] = {"up": set()}
    for name, row in TABLE.items():
        labels = set(row.labels.split())
        if row.kind is MetricKind.HISTOGRAM:
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels}
            found[f"{name}_count"] = labels
        else:
            found[name + "_total" * (row.kind is MetricKind.COUNTER)] = labels
    return found


def unknown_in(named: Named) -> set[str]:
    """What an expression names that no service shows: a metric, or METRIC{LABEL}."""
    known = exposed() | {name: named_in(expr).grouped for name, expr in RECORDED.items()}
    missing = named.metrics - known.keys()
    present = [known[name] for name in named.metrics & known.keys()]
    anywhere = set[str]().union(OF_TARGETS, *present)
    missing |= {f"{{{label}}}" for label in named.grouped - anywhere}
    for metric, labels in named.selected.items():
        allowed = known.get(metric, labels) | OF_TARGETS
        missing |= {f"{metric}{{{label}}}" for label in labels - allowed}
    return missing


def test_every_fault_of_the_cluster_counts_as_one() -> None:
    given = set[str]()
    for what in ("failures", "read_failures"):
        codes = re.search(r"code=~'([^']*)'", RECORDED[f"namespace:fencelog_http_{what}:rate5m"])
        assert codes is not None
        assert codes[1].split("|") == sorted(codes[1].split("|"))
        given |= {*codes[1].split("|")}
    expected = [
        code.slug
        for code in ErrorCode
        if code.fault is not Fault.CLIENT and code.status >= 500 and code not in NO_FAILURES
    ]
    assert given == set(expected)


def promtool(*arguments: str, folder: Path = MONITORING) -> str:
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "rule", list(rules()), ids=lambda rule: rule.get("alert") or rule["record"]
)
def test_a_rule_names_what_exists(rule: dict[str, str]) -> None:
    assert unknown_in(named_in(rule["expr"])) == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_names_what_exists(path: Path) -> None:
    queries = [target["expr"] for panel in panels(path) for target in panel["targets"]]
    queries += variables(path)
    assert {query: missing for query in queries if (missing := unknown_in(named_in(query)))} == {}


def test_what_does_not_exist_is_named() -> None:
    wrong = 'sum by (color) (rate(fencelog_invented_total[5m])) / on (bookie) up{size="1"}'
    found = unknown_in(named_in(wrong))
    assert found == {"fencelog_invented_total", "{color}", "{bookie}", "up{size}"}
    assert unknown_in(named_in('fencelog_http_problems{code="x"}')) == {"fencelog_http_problems"}


def test_promtool_accepts_rules_and_configuration() -> None:
    assert f"{len(RECORDED) + len(ALERTS)} rules found" in promtool("check", "rules", "rules.yaml")
    promtool("check", "config", "prometheus.yaml")


@pytest.mark.thorough
def test_each_alert_fires_and_is_silent() -> None:
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yaml")
    tests = yaml.safe_load((MONITORING / "rules_test.yaml").read_text("utf-8"))["tests"]
    tried = [one for test in tests for one in test["alert_rule_test"]]
    outcomes = {(one["alertname"], bool(one["exp_alerts"])) for one in tried}
    assert outcomes == {(name, fires) for name in ALERTS for fires in (True, False)}


def test_each_alert_says_what_to_do() -> None:
    headings = HEADING.findall((ROOT / "k8s" / "OPERATIONS.md").read_text("utf-8"))
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"k8s/OPERATIONS.md#{name.lower()}"
        assert name in headings
    assert [heading for heading in headings if heading.startswith("Fencelog")] == list(ALERTS)


def test_what_has_another_source_is_as_it_says() -> None:
    for path, text in rendered().items():
        assert path.read_text("utf-8") == text, f"python k8s/monitoring/render.py, for {path.name}"
    assert {path for path in rendered() if path.suffix == ".json"} == set(DASHBOARDS)
