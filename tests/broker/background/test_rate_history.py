"""The samples of rates: of all partitions together, and of each topic with traffic."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.background import rate_history
from fencelog.broker.background.rate_history import RateHistory, RateSamples
from fencelog.broker.limits import RATE_SAMPLES
from fencelog.ledgers.host import SystemHost


@dataclass
class Slot:
    """A partition with its rates."""

    topic: str
    into: float = 0.0
    out: float = 0.0
    open_log: Any = field(default_factory=object)

    @property
    def info(self) -> Any:
        return SimpleNamespace(name=self.topic)

    @property
    def meter(self) -> Any:
        return SimpleNamespace(in_bytes_per_s=self.into, out_bytes_per_s=self.out)


def values(samples: RateSamples | None) -> tuple[list[int | None], list[int | None]] | None:
    return None if samples is None else (samples.into.values(), samples.out.values())


def history_of(*slots: Slot) -> RateHistory:
    found: Any = slots
    return RateHistory(lambda: found, SystemHost())


async def test_partitions_are_added_up_in_all_and_by_topic() -> None:
    first, second = Slot("a/b", 10.4, 1), Slot("a/b", 20, 2)
    history = history_of(first, second, Slot("a/c", 5), Slot("a/idle"))
    assert history.total() is None
    await history.sample(7)
    first.into = 0
    await history.sample(8)
    assert values(history.total()) == ([35, 25], [3, 3])
    assert values(history.of("a/b")) == ([30, 20], [3, 3])
    assert values(history.of("a/c")) == ([5, 5], [0, 0])
    assert history.of("a/idle") is None


async def test_a_partition_that_is_not_open_here_has_no_rate() -> None:
    history = history_of(Slot("a/b", 10, 10, open_log=None))
    await history.sample(7)
    assert values(history.total()) == ([0], [0])
    assert history.of("a/b") is None


async def test_a_topic_is_forgotten_when_it_was_idle_for_as_long_as_samples_are_kept() -> None:
    slot = Slot("a/b", 10)
    history = history_of(slot)
    await history.sample(0)
    slot.into = 0
    for tick in range(1, RATE_SAMPLES):
        await history.sample(tick)
    found = values(history.of("a/b"))
    assert found is not None
    assert found[0] == [10, *[0] * (RATE_SAMPLES - 1)]
    await history.sample(RATE_SAMPLES)
    assert history.of("a/b") is None


async def test_no_more_topics_are_sampled_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_history, "MAX_SAMPLED_TOPICS", 2)
    monkeypatch.setattr(rate_history, "STATS_AT_ONCE", 1)
    slots = [Slot(f"a/{n}", 1) for n in range(3)]
    history = history_of(*slots)
    await history.sample(0)
    await history.sample(1)
    assert [history.of(f"a/{n}") is not None for n in range(3)] == [True, True, False]
    assert values(history.total()) == ([3, 3], [0, 0])
