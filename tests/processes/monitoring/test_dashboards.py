"""The dashboards, as far as they can be examined without Grafana."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.processes.monitoring.prometheus import DASHBOARDS, panels

UNITS = {"Bps", "bool_on_off", "bytes", "cps", "none", "percentunit", "s"}


@pytest.fixture(params=DASHBOARDS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


def test_there_is_one_for_each_part() -> None:
    assert {path.stem for path in DASHBOARDS} == {
        *("bookie", "cluster", "recovery", "subscription", "topic")
    }


def test_it_can_be_imported(path: Path) -> None:
    given: dict[str, Any] = json.loads(path.read_text("utf-8"))
    assert given["uid"] == f"fencelog-{path.stem}"
    assert given["title"]
    assert given["schemaVersion"] == 38
    assert "id" not in given  # Grafana gives it.
    source, *others = given["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == (
        *("datasource", "datasource", "prometheus"),
    )
    declared = {"datasource"}
    for variable in others:
        assert variable["datasource"]["uid"] == "${datasource}"
        declared.add(variable["name"])
    used = set(re.findall(r"\$\{?([a-z]+)\b", path.read_text("utf-8")))
    assert used == declared


def test_panels_are_complete(path: Path) -> None:
    shown = panels(path)
    assert [panel["id"] for panel in shown] == list(range(1, len(shown) + 1))
    assert len({panel["title"] for panel in shown}) == len(shown)
    for panel in shown:
        assert panel["title"]
        assert panel["description"]
        assert panel["type"] in ("stat", "table", "timeseries")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["expr"]
            assert target["legendFormat"]
            assert target["datasource"] == panel["datasource"]
            assert 'namespace=~"$namespace"' in target["expr"]


def test_no_panel_covers_another(path: Path) -> None:
    places = [panel["gridPos"] for panel in panels(path)]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    assert not any(overlap(one, other) for one, other in combinations(places, 2))
    assert overlap(places[0], places[0])
