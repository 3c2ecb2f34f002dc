"""The samples of the lag of every cursor: what is kept, for how long, and for how many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.background import lag_history
from fencelog.broker.background.lag_history import LAG_SAMPLE_US, CursorSamples, LagHistory
from fencelog.broker.limits import LAG_SAMPLES


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
        await history.sample()


def messages(history: LagHistory, id_: str = "s", partition: int = 0) -> list[int | None]:
    found = history.of(id_, partition)
    return [] if found is None else found.messages()


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


async def test_a_time_without_a_sample_is_a_gap_and_the_same_time_is_one_sample() -> None:
    site = Site([Slot(0, {"s": 5})])
    history = site.history()
    await site.sampled(history)
    await site.sampled(history, 3)
    await site.sampled(history, 0)
    assert messages(history) == [5, None, None, 5]
    await site.sampled(history, -2)  # the clock was set back
    assert messages(history) == [5, None, None, 5]
    await site.sampled(history, 3)
    assert messages(history) == [5, None, None, 5, 5]


async def test_an_hour_is_kept() -> None:
    samples = CursorSamples(0, 0)
    for tick in range(1, LAG_SAMPLES + 10):
        samples.add(tick, tick)
    assert samples.messages() == list(range(10, LAG_SAMPLES + 10))
    samples.add(3 * LAG_SAMPLES, 1)
    assert samples.messages() == [1]
    samples.add(4 * LAG_SAMPLES - 1, 2)
    assert samples.messages() == [1, *[None] * (LAG_SAMPLES - 2), 2]


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


async def test_no_sample_is_missed_where_sleeps_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time comes while a sample is taken that was begun too early."""

    @dataclass
    class Ticking(Site):
        def now_us(self) -> int:
            self.time_us += 60
            return self.time_us

    site = Ticking([Slot(0, {"s": 5})])
    pauses: list[float] = []
    is_over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if len(pauses) == 40:
            is_over.set()
            await asyncio.Event().wait()
        pauses.append(seconds)
        early_us = 90 if len(pauses) % 3 else -50
        site.time_us += max(0, round(seconds * 1_000_000) - early_us)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    history = site.history()
    history.start()
    await is_over.wait()
    await history.close()
    found = messages(history)
    assert len(found) >= 10
    assert None not in found


async def test_samples_are_taken_when_their_time_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site([Slot(0, {"s": 5})])
    pauses: list[float] = []
    is_over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if len(pauses) == 3:
            is_over.set()
            await asyncio.Event().wait()
        pauses.append(seconds)
        site.time_us += round(seconds * 1_000_000)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    history = site.history()
    history.start()
    await is_over.wait()
    await history.close()
    assert pauses == pytest.approx([(LAG_SAMPLE_US - 5) / 1_000_000, 10, 10])
    assert messages(history) == [5, 5, 5]
