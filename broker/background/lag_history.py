"""The lag of subscriptions during the last hour: samples of the cursors in a broker's open
partitions.

They are in memory alone, and belong to the owner: the next one begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from fencelog.broker.background.samples import Sampler, Samples
from fencelog.broker.limits import (
    LAG_SAMPLE_MS,
    LAG_SAMPLES,
    MAX_SAMPLED_CURSORS,
    STATS_AT_ONCE,
)
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.ledgers.host import Host


class LagHistory:
    """The samples of the cursors in the slots that ``slots`` returns."""

    def __init__(self, slots: Callable[[], Iterable[PartitionSlot]], host: Host) -> None:
        self._slots = slots
        self._cursors: dict[tuple[str, int], Samples] = {}
        self._sampler = Sampler("lag history", LAG_SAMPLE_MS, self.sample, host)

    def start(self) -> None:
        self._sampler.start()

    async def close(self) -> None:
        """Stop. Never raises."""
        await self._sampler.close()

    def of(self, subscription_id: str, partition: int) -> Samples | None:
        """Return the samples of a subscription's cursor in one partition; None: there are none, as
        when it was opened just now, or more than MAX_SAMPLED_CURSORS are open."""
        return self._cursors.get((subscription_id, partition))

    def of_all(self, ids: Iterable[str]) -> Mapping[str, list[Samples]]:
        """Return the samples of all cursors of these subscriptions, by their ids."""
        found: dict[str, list[Samples]] = {id_: [] for id_ in ids}
        for (id_, _), samples in self._cursors.items():
            if id_ in found:
                found[id_].append(samples)
        return found

    async def sample(self, tick: int) -> None:
        """Take a sample of every cursor, and forget those that are not here any more."""
        before, looked_at = self._cursors, 0
        now: dict[tuple[str, int], Samples] = {}
        fresh: list[tuple[tuple[str, int], int]] = []
        for slot in list(self._slots()):
            log = slot.open_log
            if log is None or not log.subscriptions.has_cursors:
                continue
            for backlog in log.subscriptions.backlogs():
                looked_at += 1
                key = backlog.subscription_id, slot.partition
                samples = before.get(key)
                if samples is None:
                    fresh.append((key, backlog.messages))
                else:
                    samples.add(tick, backlog.messages)
                    now[key] = samples
            if looked_at >= STATS_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
        for key, messages in fresh[: max(0, MAX_SAMPLED_CURSORS - len(now))]:
            now[key] = Samples(tick, messages, LAG_SAMPLES)
        self._cursors = now
