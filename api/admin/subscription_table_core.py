"""The list of subscriptions with figures: those of several brokers added up, filtered and sorted.
Decisions on values alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from fencelog.broker.partition.stats.subscription_totals import (
    SUBSCRIPTION_TOTALS,
    SubscriptionKey,
    SubscriptionTotals,
)

Totals = Mapping[SubscriptionKey, SubscriptionTotals]


class SubscriptionOrder(StrEnum):
    """The order of subscriptions: by the names of topic and subscription, the oldest message that
    is not acknowledged first, or a figure, the largest first."""

    NAME = "name"
    OLDEST = "oldest_us"
    MESSAGES = "backlog_messages"
    BYTES = "backlog_bytes"
    OUTSTANDING = "outstanding"
    DEAD_LETTERS = "dead_letters"
    HELD = "held_bytes"


def to_wire(totals: Totals) -> list[list[Any]]:
    """Return the figures of one broker for another one: the names, and numbers in the order of
    ``SUBSCRIPTION_TOTALS``."""
    return [
        [*key, *(getattr(each, name) for name in SUBSCRIPTION_TOTALS)]
        for key, each in totals.items()
    ]


def from_wire(answer: Mapping[str, Any]) -> dict[SubscriptionKey, SubscriptionTotals]:
    """Return the figures that another broker has sent. Raises ValueError."""
    try:
        return {
            SubscriptionKey(topic, subscription): SubscriptionTotals(
                **dict(zip(SUBSCRIPTION_TOTALS, numbers, strict=True))
            )
            for topic, subscription, *numbers in answer["subscriptions"]
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"no figures of subscriptions: {error!r}") from error


def added_up(of_brokers: Iterable[Totals]) -> dict[SubscriptionKey, SubscriptionTotals]:
    """Return the figures of all brokers."""
    sums: dict[SubscriptionKey, SubscriptionTotals] = {}
    for totals in of_brokers:
        for key, each in totals.items():
            sums.setdefault(key, SubscriptionTotals()).add(each)
    return sums


def ordered(
    keys: Iterable[SubscriptionKey],
    totals: Totals,
    *,
    contains: str,
    by: SubscriptionOrder,
) -> Sequence[SubscriptionKey]:
    """Return the subscriptions whose topic and name, with a space between, contain a text, whatever
    its case, in order. Those without figures come last; equal ones follow their names."""
    text = contains.casefold()
    found = sorted(key for key in keys if text in " ".join(key).casefold())
    if by is SubscriptionOrder.NAME:
        return found

    def place(key: SubscriptionKey) -> tuple[bool, int]:
        value = getattr(totals.get(key), by, None)
        if value is None:
            return True, 0
        return False, value if by is SubscriptionOrder.OLDEST else -value

    return sorted(found, key=place)
