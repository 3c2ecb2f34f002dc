"""Samples at multiples of an interval: what is kept of them, and when they are taken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencelog.broker.background.samples import Sampler, Samples
from fencelog.broker.limits import MAX_SAMPLES_BACK

KEPT = 20
INTERVAL_US = 10_000_000


def test_a_time_without_a_sample_is_a_gap_and_the_same_time_is_one_sample() -> None:
    samples = Samples(100, 5, KEPT)
    samples.add(103, 6)
    samples.add(103, 7)
    samples.add(102, 8)  # the clock was set back
    samples.add(104, 9)
    assert samples.values() == [5, None, None, 6, 9]
    assert samples.newest == 104


def test_what_is_kept_of_another_time_is_forgotten() -> None:
    samples = Samples(100, 5, KEPT)
    samples.add(100 - MAX_SAMPLES_BACK + 1, 6)
    assert samples.values() == [5]
    samples.add(100 - MAX_SAMPLES_BACK, 7)
    assert (samples.newest, samples.values()) == (100 - MAX_SAMPLES_BACK, [7])


def test_so_many_are_kept() -> None:
    samples = Samples(0, 0, KEPT)
    for tick in range(1, KEPT + 10):
        samples.add(tick, tick)
    assert samples.values() == list(range(10, KEPT + 10))
    samples.add(3 * KEPT, 1)
    assert samples.values() == [1]
    samples.add(4 * KEPT - 1, 2)
    assert samples.values() == [1, *[None] * (KEPT - 2), 2]


def test_zero_is_no_sample_above_it() -> None:
    samples = Samples(0, 0, KEPT)
    assert samples.is_zero
    samples.add(1, 3)
    assert not samples.is_zero


@dataclass
class Clock:
    """A wall clock that goes on while one sleeps. ``jumps``: by so much after a sleep, by the
    number of the sleep; ``early_us``: a sleep ends so much too early."""

    jumps: dict[int, int] = field(default_factory=dict)
    early_us: int = 0
    time_us: int = 1000 * INTERVAL_US + 5
    pauses: list[float] = field(default_factory=list)

    def now_us(self) -> int:
        return self.time_us

    async def taken(self, monkeypatch: pytest.MonkeyPatch, pauses: int) -> list[int]:
        """Return the numbers of the intervals that were sampled during so many sleeps."""
        ticks: list[int] = []
        is_over = asyncio.Event()

        async def sleep(seconds: float) -> None:
            if len(self.pauses) == pauses:
                is_over.set()
                await asyncio.Event().wait()
            self.pauses.append(seconds)
            early_us = self.early_us if len(self.pauses) % 2 else 0
            self.time_us += round(seconds * 1_000_000) - early_us
            self.time_us += self.jumps.get(len(self.pauses), 0)

        async def sample(tick: int) -> None:
            ticks.append(tick)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        host: Any = self
        sampler = Sampler("samples", INTERVAL_US // 1000, sample, host)
        sampler.start()
        await is_over.wait()
        await sampler.close()
        return ticks


async def test_samples_are_taken_when_their_time_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    assert await clock.taken(monkeypatch, 3) == [1001, 1002, 1003]
    assert clock.pauses == pytest.approx([(INTERVAL_US - 5) / 1_000_000, 10, 10])


async def test_no_sample_is_missed_where_sleeps_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = await Clock(early_us=90).taken(monkeypatch, 20)
    assert ticks == list(range(1001, 1011))


async def test_a_clock_that_is_set_back_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(jumps={2: -3_600_000_000})
    ticks = await clock.taken(monkeypatch, 5)
    assert ticks == [1001, 642, 643, 644, 645]
    assert max(clock.pauses) <= INTERVAL_US / 1_000_000
