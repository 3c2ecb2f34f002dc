"""What is left of the events of a state log in a log that ends earlier."""

from __future__ import annotations

from typing import Any

import pytest

from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.partition.rewound import rewound


def row(name: str, *ends: int) -> list[Any]:
    """A producer whose appends of one message end there."""
    return [name, 0, len(ends), [[number, end - 1, 1, 7, ""] for number, end in enumerate(ends)]]


def key(name: str, end: int) -> list[Any]:
    return [name, [0, end - 1, 1, 7, ""]]


@pytest.mark.parametrize(
    ("event", "left"),
    [
        (["cursor", "s", 11, 3, 2], ["cursor", "s", 10, 3, 2]),
        (["seek", "s", 12, 5], ["seek", "s", 10, 5]),
        (["trimmed", "s", 12], ["trimmed", "s", 10]),
        (["ack", "s", [[0, 3], [9, 12], [13, 14]]], ["ack", "s", [[0, 3], [9, 10]]]),
        (["failures", "s", [[2, 3, 1], [9, 11, 2]]], ["failures", "s", [[2, 3, 1], [9, 10, 2]]]),
        (
            ["producers", [row("p", 8, 10), row("q", 9, 11)], [], None],
            ["producers", [row("p", 8, 10)], [], None],
        ),
        (
            ["producers", [], [key("a", 11), key("b", 4)], None],
            ["producers", [], [key("b", 4)], None],
        ),
        (["producers", [], [], 11], ["producers", [], [], None]),
    ],
)
def test_what_is_said_of_messages_behind_the_end_is_left_out(event: Event, left: Event) -> None:
    assert rewound(event, 10) == left


@pytest.mark.parametrize(
    "event",
    [
        ["cursor", "s", 10, 3, 2],
        ["seek", "s", 10, 5],
        ["trimmed", "s", 10],
        ["ack", "s", [[0, 3], [9, 10]]],
        ["failures", "s", [[9, 10, 2]]],
        ["producers", [row("p", 8, 10)], [key("a", 10)], 10],
        ["producers", [row("p", 8, 10)], [], None],
        ["cursor_dropped", "s"],
        ["claimed", "p", 11],
        ["partitions", 12],
        ["ack", "s"],
        ["ack", "s", [[0]]],
        ["failures", "s", [7]],
        ["producers", [1], [], None],
        ["producers", [["p", 0, 1, []]], [], 3],
        ["no event"],
        [],
    ],
)
def test_everything_else_stays(event: Event) -> None:
    assert rewound(event, 10) is event
