"""Prometheus and promtool, and the metrics and labels that an expression names."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.house import ROOT

MONITORING = ROOT / "k8s" / "monitoring"
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))

OF_TARGETS = {"instance", "job", "namespace", "pod"}
"""The labels that Prometheus itself gives to what it scrapes."""

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^{}]*)\}")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_NAME = re.compile(r"(?<![\w:$])([a-zA-Z_:][\w:]*)\b(?!\s*\()")
_DURATION = re.compile(r"\[[^\]]*\]")
_VARIABLE = re.compile(r"label_values\((.+), (\w+)\)")

_WORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring"}


class Named(NamedTuple):
    """The names in an expression. ``grouped``: the labels by which it groups or joins;
    ``selected``: those of the selector of a metric."""

    metrics: set[str]
    grouped: set[str]
    selected: dict[str, set[str]]


def named_in(expression: str) -> Named:
    """Return the names in an expression of PromQL."""
    bare = _DURATION.sub("", _TEXT.sub('""', expression))
    grouped = {label for labels in _GROUPING.findall(bare) for label in re.findall(r"\w+", labels)}
    selected: dict[str, set[str]] = {}
    for metric, inside in _SELECTOR.findall(bare):
        selected.setdefault(metric, set()).update(_MATCHER.findall(inside))
    rest = re.sub(r"\{[^{}]*\}", "", _GROUPING.sub("", bare))
    metrics = {name for name in _NAME.findall(rest) if name not in _WORDS}
    return Named(metrics, grouped, selected)


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``."""
    unpacked = ROOT / ".venv" / "prometheus" / "usr" / "bin" / name
    found = str(unpacked) if unpacked.exists() else shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not installed: make prometheus", pytrace=False)
    return found


def rules() -> Iterator[dict[str, Any]]:
    """Yield every rule."""
    for group in yaml.safe_load((MONITORING / "rules.yaml").read_text("utf-8"))["groups"]:
        yield from group["rules"]


def panels(dashboard: Path) -> list[dict[str, Any]]:
    """Return the panels of a dashboard."""
    found: list[dict[str, Any]] = json.loads(dashboard.read_text("utf-8"))["panels"]
    return found


def variables(dashboard: Path) -> Iterator[str]:
    """Yield what each variable of a dashboard asks for, as an expression."""
    for each in json.loads(dashboard.read_text("utf-8"))["templating"]["list"]:
        if each["type"] == "query":
            found = _VARIABLE.fullmatch(each["definition"])
            assert found is not None, each["definition"]
            yield f"count by ({found[2]}) ({found[1]})"
