"""The cost of a scrape is bounded, and a topic adds little to it."""

from __future__ import annotations

import pytest

from tests.bench.metrics_cost import in_process, too_much

MAX_LOOKS = 2.5
"""The limit of what a topic adds to a scrape, in plain looks at it: about twice what it takes."""


@pytest.mark.thorough
def test_a_topic_costs_a_few_looks_at_it() -> None:
    small, large = in_process(500), in_process(4_000)
    added_ms = large["cpu_ms"] - small["cpu_ms"]
    assert added_ms < MAX_LOOKS * (large["look_ms"] - small["look_ms"])
    assert large["bytes"] < 1.5 * small["bytes"]
    assert too_much(large) == []


def test_too_much_is_named() -> None:
    measured = {"topics": 10_000, "cpu_ms": 50.1, "longest_turn_ms": 11}
    assert too_much(measured) == [
        "a scrape of 10000 topics took 50.1 ms of a core",
        "10000 topics held the loop for 11 ms",
    ]
    assert too_much({"topics": 1_000, "cpu_ms": 49.9, "longest_turn_ms": 9.9}) == []
