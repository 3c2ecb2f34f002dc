"""The list of topics: figures of several brokers, their order, and their form between brokers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fencelog.api.admin.topic_table_core import SortBy, added_up, from_wire, ordered, to_wire
from fencelog.broker.partition.stats.topic_totals import TopicTotals

OF_BROKERS = {
    "b": {"ns/x": TopicTotals(1, 10.0, 1.0, 100, 5, 4, 3), "ns/y": TopicTotals(1, 50.0)},
    "a": {"ns/x": TopicTotals(2, 20.0, 2.0, 200, 6, 1, 0)},
}
NAMES = ["ns/z", "ns/y", "ns/x", "other/Xylo"]


def test_totals_of_all_brokers_are_added_up() -> None:
    rows = added_up(OF_BROKERS)
    assert rows["ns/x"].totals == TopicTotals(3, 30.0, 3.0, 300, 11, 5, 3)
    assert rows["ns/x"].brokers == ["a", "b"]
    assert rows["ns/y"].brokers == ["b"]
    assert OF_BROKERS["b"]["ns/x"].partitions == 1


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (SortBy.NAME, ["ns/x", "ns/y", "ns/z", "other/Xylo"]),
        (SortBy.IN, ["ns/y", "ns/x", "ns/z", "other/Xylo"]),
        (SortBy.SIZE, ["ns/x", "ns/y", "ns/z", "other/Xylo"]),
        (SortBy.BACKLOG, ["ns/x", "ns/y", "ns/z", "other/Xylo"]),
    ],
)
def test_topics_are_sorted_by_a_figure_and_unopened_ones_come_last(
    by: SortBy, expected: list[str]
) -> None:
    assert ordered(NAMES, added_up(OF_BROKERS), contains="", by=by) == expected


def test_topics_are_found_by_a_part_of_their_name() -> None:
    assert ordered(NAMES, {}, contains="X", by=SortBy.OUT) == ["ns/x", "other/Xylo"]


def test_figures_travel_between_brokers() -> None:
    sent = msgspec.json.decode(msgspec.json.encode({"topics": to_wire(OF_BROKERS["b"])}))
    assert from_wire(sent) == OF_BROKERS["b"]


@pytest.mark.parametrize(
    "answer", [{}, {"topics": 1}, {"topics": {"x": [1]}}, {"topics": {"x": 1}}]
)
def test_other_answers_are_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"figures|shorter|longer"):
        from_wire(answer)
