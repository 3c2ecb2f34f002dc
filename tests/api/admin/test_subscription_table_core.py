"""The list of subscriptions: figures of several brokers, their order, and their form between
brokers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fencelog.api.admin.subscription_table_core import (
    SubscriptionOrder,
    added_up,
    from_wire,
    ordered,
    to_wire,
)
from fencelog.broker.partition.stats.subscription_totals import SubscriptionKey, SubscriptionTotals

A, B, C = (SubscriptionKey("ns/x", "a"), SubscriptionKey("ns/x", "b"), SubscriptionKey("ns/y", "a"))
LOST = SubscriptionKey("ns/z", "lost")
FIRST = {
    A: SubscriptionTotals(2, 5, 500, 1, 0, 0, 70),
    B: SubscriptionTotals(2, 9, 90, 0, 1, 400, None),
}
SECOND = {A: SubscriptionTotals(1, 2, 20, 0, 0, 9, 60), C: SubscriptionTotals(1, 1, 1, 0, 0, 0, 80)}
SUMS = added_up([FIRST, SECOND])


def test_figures_of_all_brokers_are_added_up() -> None:
    assert SUMS[A] == SubscriptionTotals(3, 7, 520, 1, 0, 9, 60)
    assert SUMS[B] == FIRST[B]
    assert FIRST[A].partitions == 2


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (SubscriptionOrder.NAME, [A, B, C, LOST]),
        (SubscriptionOrder.MESSAGES, [B, A, C, LOST]),
        (SubscriptionOrder.HELD, [B, A, C, LOST]),
        (SubscriptionOrder.BYTES, [A, B, C, LOST]),
        (SubscriptionOrder.OLDEST, [A, C, B, LOST]),
    ],
)
def test_the_worst_come_first_and_those_without_figures_last(
    by: SubscriptionOrder, expected: list[SubscriptionKey]
) -> None:
    assert ordered([LOST, C, B, A], SUMS, contains="", by=by) == expected


@pytest.mark.parametrize(("contains", "expected"), [("X A", [A]), ("y", [C]), ("ns/z l", [LOST])])
def test_a_text_is_looked_for_in_topic_and_name(
    contains: str, expected: list[SubscriptionKey]
) -> None:
    keys = [A, B, C, LOST]
    assert ordered(keys, SUMS, contains=contains, by=SubscriptionOrder.NAME) == expected


def test_figures_travel_between_brokers() -> None:
    sent = msgspec.json.decode(msgspec.json.encode({"subscriptions": to_wire(FIRST)}))
    assert from_wire(sent) == FIRST


@pytest.mark.parametrize(
    "subscriptions", [None, 1, [["t"]], [["t", "s", 1]], [["t", "s", *range(8)]]]
)
def test_other_answers_are_refused(subscriptions: Any) -> None:
    with pytest.raises(ValueError, match=r"figures|shorter|longer|unpack"):
        from_wire({"subscriptions": subscriptions})
    with pytest.raises(ValueError, match="figures"):
        from_wire({})
