"""The conformance suite of metadata stores, run against the simulated one."""

from __future__ import annotations

import importlib.util
import inspect
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.sim.metadata.world import World, simulate, until

GIVEN = {"store", "pair", "until"}
"""The fixtures of the suite that there are here too."""


def conformance(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / "conformance" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"conformance_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases() -> list[Any]:
    """Every test of the suite that runs on any store, with its parameters."""
    found = []
    for name in ("test_nodes", "test_watches", "test_sessions", "test_commits"):
        for test_name, test in vars(conformance(name)).items():
            wanted = inspect.signature(test).parameters if test_name.startswith("test_") else {}
            marks = [each for each in getattr(test, "pytestmark", []) if each.name == "parametrize"]
            values = [_given(mark) for mark in marks]
            names = {name for choices in values for name in choices[0]}
            if not {"store", "pair"} & set(wanted) or set(wanted) - names - GIVEN:
                continue
            for number, choice in enumerate(product(*values)):
                value = {name: one for part in choice for name, one in part.items()}
                found.append(pytest.param(test, value, id=f"{test_name}-{number}"))
    return found


def _given(mark: pytest.Mark) -> list[dict[str, object]]:
    """The values that a mark gives to a test's parameters."""
    names, values = mark.args[:2]
    if isinstance(names, str):
        names, values = (names,), [(value,) for value in values]
    return [dict(zip(names, value, strict=True)) for value in values]


@pytest.mark.parametrize(("test", "values"), cases())
def test_it_conforms(test: Any, values: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = inspect.signature(test).parameters
    if "pair" in wanted:  # it reads at once what another session wrote
        monkeypatch.setattr("tests.sim.metadata.server._FRESH", 1.0)

    async def main(world: World) -> None:
        one, store = await world.store("c1")
        other, second = await world.store("c2")
        given = {"store": store, "pair": (store, second), "until": until, **values}
        await one.call(test(**{name: given[name] for name in wanted}))
        await one.call(store.close())
        await other.call(second.close())
        assert one.live_tasks() == other.live_tasks() == []

    for seed in range(1, 6):
        simulate(main, seed)


def test_the_suite_was_found() -> None:
    names = {case.values[0].__name__ for case in cases()}
    assert {"test_set_counts_versions_and_refuses_others", "test_a_closed_watch_is_silent"} < names
    assert "test_ephemerals_go_when_their_session_closes" in names
    assert "test_one_refusal_leaves_everything_as_it_was" in names
    assert len(names) >= 25
