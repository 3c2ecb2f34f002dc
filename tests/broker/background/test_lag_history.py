"""The samples of the lag of every cursor: what is kept, for how long, and for how many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.background import lag_history
from fencelog.broker.background.lag_history import LagHistory
from fencelog.broker.limits import LAG_SAMPLE_MS

LAG_SAMPLE_US = LAG_SAMPLE_MS * 1000


@dataclass
class Slot:
    """A partition that is open, with the messages behind of each subscription."""

    partition: int
    behind: dict[str, int]
    is_open: bool = True

    @property
    def open_log(self) -> Any:
        return SimpleNamespace(subscriptions=self) if self.is_open else None

    @property
    def has_cursors(self) -> bool:
        return bool(self.behind)

    def backlogs(self) -> Iterator[Any]:
        for id_, messages in self.behind.items():
            yield SimpleNamespace(subscription_id=id_, messages=messages)


@dataclass
class Site:
    """The slots of a broker, and its time."""

    slots: list[Any] = field(default_factory=list)
    time_us: int = 1000 * LAG_SAMPLE_US + 5

    def now_us(self) -> int:
        return self.time_us

    def history(self) -> LagHistory:
        host: Any = self
        return LagHistory(lambda: self.slots, host)

    async def sampled(self, history: LagHistory, ticks: int = 1) -> None:
        """Take a sample after so many intervals."""
        self.time_us += ticks * LAG_SAMPLE_US
        await history.sample(self.time_us // LAG_SAMPLE_US)


def messages(history: LagHistory, id_: str = "s", partition: int = 0) -> list[int | None]:
    found = history.of(id_, partition)
    return [] if found is None else found.values()


async def test_each_cursor_has_its_samples() -> None:
    slot = Slot(0, {"s": 5, "t": 0})
    site = Site([slot, Slot(1, {"s": 9}), Slot(2, {})])
    history = site.history()
    await site.sampled(history)
    slot.behind["s"] = 7
    await site.sampled(history)
    assert messages(history) == [5, 7]
    assert messages(history, "t") == [0, 0]
    assert messages(history, "s", 1) == [9, 9]
    assert messages(history, "s", 2) == []
    found = history.of("s", 0)
    assert found is not None
    assert found.newest == 1002


async def test_all_cursors_of_some_subscriptions() -> None:
    site = Site([Slot(0, {"s": 5, "t": 0}), Slot(1, {"s": 9})])
    history = site.history()
    await site.sampled(history)
    found = history.of_all(["s", "absent"])
    assert [each.values() for each in found["s"]] == [[5], [9]]
    assert found["absent"] == []
    assert found.keys() == {"s", "absent"}


async def test_a_partition_that_comes_back_begins_anew() -> None:
    slot = Slot(0, {"s": 5})
    site = Site([slot])
    history = site.history()
    await site.sampled(history)
    slot.is_open = False
    await site.sampled(history)
    assert history.of("s", 0) is None
    slot.is_open = True
    await site.sampled(history)
    assert messages(history) == [5]


async def test_no_more_cursors_are_sampled_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_history, "MAX_SAMPLED_CURSORS", 2)
    monkeypatch.setattr(lag_history, "STATS_AT_ONCE", 1)
    site = Site([Slot(n, {"s": n}) for n in range(3)])
    history = site.history()
    await site.sampled(history)
    await site.sampled(history)
    assert [len(messages(history, "s", n)) for n in range(3)] == [2, 2, 0]
    site.slots.pop(0)
    await site.sampled(history)
    assert [len(messages(history, "s", n)) for n in range(3)] == [0, 3, 1]
