"""Backlogs that are counted after changes alone are those of a count of everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.subscriptions import backlog_counts
from fencelog.broker.subscriptions.backlog_counts import BacklogCounts
from fencelog.broker.subscriptions.table import SubscriptionTable

IDS = ("s1", "s2", "s3")


class FakeTable:
    """A partition's subscriptions, which tell a change once after each count."""

    def __init__(self) -> None:
        self.messages: dict[str, int] = {}
        self.delivered = (0, 0)
        self.counts = 0
        self._is_counted = False
        self._on_change: Callable[[], object] | None = None

    @property
    def is_used(self) -> bool:
        return self.delivered != (0, 0)

    def call_when_backlogs_change(self, on_change: Callable[[], object] | None) -> None:
        self._on_change = on_change

    def count_backlogs(self) -> tuple[tuple[str, int], ...]:
        self._is_counted = True
        self.counts += 1
        return tuple(self.messages.items())

    def in_delivery(self) -> tuple[int, int]:
        return self.delivered

    def changed(self) -> None:
        if self._is_counted and self._on_change is not None:
            self._is_counted = False
            self._on_change()

    def set(self, id_: str, messages: int | None) -> None:
        """Set a backlog; None: the cursor is dropped."""
        if messages is None:
            self.messages.pop(id_, None)
        else:
            self.messages[id_] = messages
        self.changed()


def opened(counts: BacklogCounts, topic_id: str = "t") -> FakeTable:
    table = FakeTable()
    counts.opened(cast("SubscriptionTable", table), topic_id)
    return table


def closed(counts: BacklogCounts, table: FakeTable) -> None:
    counts.closed(cast("SubscriptionTable", table))


STEPS = st.lists(
    st.one_of(
        st.just(("open",)),
        st.tuples(st.just("close"), st.integers(0, 9)),
        st.tuples(
            st.just("set"),
            st.integers(0, 9),
            st.sampled_from(IDS),
            st.none() | st.integers(0, 5),
        ),
        st.just(("count",)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_any_changes_give_the_sums_of_all_partitions(steps: list[tuple[Any, ...]]) -> None:
    counts, tables = BacklogCounts(), list[FakeTable]()

    async def play() -> None:
        for step in steps:
            match step:
                case ("open",):
                    tables.append(opened(counts))
                case ("count",):
                    await counts.count()
                case ("close", number) if tables:
                    closed(counts, tables.pop(number % len(tables)))
                case ("set", number, id_, messages) if tables:
                    tables[number % len(tables)].set(id_, messages)
        await counts.count()

    asyncio.run(play())
    expected: Counter[str] = Counter()
    for table in tables:
        for id_, messages in table.messages.items():
            expected[id_] += messages
    assert counts.messages == dict(expected)
    assert counts.total == expected.total()
    assert {id_ for id_ in IDS if counts.topic_of(id_) is not None} == set(expected)


async def test_a_partition_without_a_change_is_not_looked_at() -> None:
    counts = BacklogCounts()
    changing, quiet = opened(counts), opened(counts)
    await counts.count()
    changing.set("s1", 3)
    await counts.count()
    await counts.count()
    assert (changing.counts, quiet.counts) == (2, 1)


async def test_messages_with_consumers_are_those_of_now() -> None:
    counts = BacklogCounts()
    table, other = opened(counts), opened(counts)
    other.set("s1", 1)
    await counts.count()
    assert (counts.leases, counts.dead_letters) == (0, 0)
    table.delivered = (2, 1)
    table.changed()  # the first use
    await counts.count()
    table.delivered = (5, 3)  # deliveries tell nothing
    await counts.count()
    assert (counts.leases, counts.dead_letters) == (5, 3)
    closed(counts, table)
    await counts.count()
    assert (counts.leases, counts.dead_letters) == (0, 0)


async def test_a_partition_that_closes_in_between_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog_counts, "STATS_AT_ONCE", 1)
    counts = BacklogCounts()
    first, second = opened(counts, "t1"), opened(counts, "t2")
    first.set("s1", 1)
    second.set("s2", 2)
    counting = asyncio.create_task(counts.count())
    await asyncio.sleep(0)
    closed(counts, second)
    second.set("s2", 5)  # nobody is told any more
    await counting
    assert counts.messages == {"s1": 1}
    assert counts.topic_of("s2") is None
