"""The rates of the last minutes: samples of what is written to and read from a broker's open
partitions, and of its topics that have traffic.

They are in memory alone: a broker that starts begins anew, and a topic with the owner of its
partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fencelog.broker.background.samples import Sampler, Samples
from fencelog.broker.limits import (
    MAX_SAMPLED_TOPICS,
    RATE_SAMPLE_MS,
    RATE_SAMPLES,
    STATS_AT_ONCE,
)
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.ledgers.host import Host


class RateSamples(NamedTuple):
    """The samples of bytes written and read per second, both taken at the same times."""

    into: Samples
    out: Samples

    def add(self, tick: int, rates: tuple[float, float]) -> None:
        """Add a sample of both."""
        self.into.add(tick, round(rates[0]))
        self.out.add(tick, round(rates[1]))

    @property
    def is_idle(self) -> bool:
        """Tell whether no sample shows any traffic."""
        return self.into.is_zero and self.out.is_zero


class RateHistory:
    """The samples of the partitions in the slots that ``slots`` returns."""

    def __init__(self, slots: Callable[[], Iterable[PartitionSlot]], host: Host) -> None:
        self._slots = slots
        self._total: RateSamples | None = None
        self._topics: dict[str, RateSamples] = {}
        self._sampler = Sampler("rate history", RATE_SAMPLE_MS, self.sample, host)

    def start(self) -> None:
        self._sampler.start()

    async def close(self) -> None:
        """Stop. Never raises."""
        await self._sampler.close()

    def total(self) -> RateSamples | None:
        """Return the samples of all partitions together; None: there are none yet."""
        return self._total

    def of(self, topic: str) -> RateSamples | None:
        """Return the samples of a topic's partitions; None: it had no traffic here, or more than
        MAX_SAMPLED_TOPICS had."""
        return self._topics.get(topic)

    async def sample(self, tick: int) -> None:
        """Take samples, and forget topics without traffic."""
        rates: dict[str, tuple[float, float]] = {}
        into = out = 0.0
        for number, slot in enumerate(list(self._slots()), 1):
            if number % STATS_AT_ONCE == 0:
                await asyncio.sleep(0)
            meter = slot.meter
            if slot.open_log is None or not (meter.in_bytes_per_s or meter.out_bytes_per_s):
                continue
            into, out = into + meter.in_bytes_per_s, out + meter.out_bytes_per_s
            before = rates.get(name := str(slot.info.name), (0.0, 0.0))
            rates[name] = before[0] + meter.in_bytes_per_s, before[1] + meter.out_bytes_per_s
        self._total = _added(self._total, tick, (into, out))
        now = {}
        for number, (name, samples) in enumerate(self._topics.items(), 1):
            if number % STATS_AT_ONCE == 0:
                await asyncio.sleep(0)
            rate = rates.pop(name, None)
            samples.add(tick, rate or (0.0, 0.0))
            if rate is not None or not samples.is_idle:
                now[name] = samples
        for name in list(rates)[: max(0, MAX_SAMPLED_TOPICS - len(now))]:
            now[name] = _added(None, tick, rates[name])
        self._topics = now


def _added(samples: RateSamples | None, tick: int, rates: tuple[float, float]) -> RateSamples:
    if samples is None:
        into, out = (Samples(tick, round(rate), RATE_SAMPLES) for rate in rates)
        return RateSamples(into, out)
    samples.add(tick, rates)
    return samples
