"""The balancer of a broker: measures its load, publishes it, and transfers partitions away when the
load is too high.

A shell around ``balance_core``. One round examines every open partition, so it is slow by design:
rates are means over many seconds, and nothing is transferred because of one burst.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping

from fencelog.broker.cluster.balance_core import PartitionKey, PartitionView, decide
from fencelog.broker.cluster.broker_directory import BrokerDirectory
from fencelog.broker.cluster.load import BrokerLoad
from fencelog.broker.partition.broker_services import BrokerServices
from fencelog.broker.partition.open_partitions import Traffic
from fencelog.broker.partition.partition_slot import PartitionSlot

SLOTS_AT_A_TIME = 500
"""The partitions examined in one iteration of the event loop: a millisecond, in which no request is
served."""

log = logging.getLogger(__name__)


class Balancer:
    """The balancer: ``start`` it, ``stop`` it. ``slots``: all slots of the broker. The traffic
    of those that are open is kept in ``OpenPartitions``."""

    def __init__(
        self,
        services: BrokerServices,
        directory: BrokerDirectory,
        slots: Mapping[PartitionKey, PartitionSlot],
    ) -> None:
        self._own_id = services.config.broker_id
        self._directory = directory
        self._slots = slots
        self._opened = services.open_partitions
        self._pending = services.pending
        self._policy = services.config.balance
        self._rounds_above = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the rounds, unless they go on: a drain may end before it has stopped them."""
        if self._task is None or self._task.done() or self._task.cancelling():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="balancer")

    async def stop(self) -> None:
        """Stop the rounds. A transfer in progress continues."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def round(self, elapsed_s: float) -> None:
        """Measure the load since the last round, ``elapsed_s`` ago; publish it; transfer partitions
        as planned."""
        await self._measure(elapsed_s)
        self._rounds_above, moves = decide(
            self._rounds_above,
            self._own_id,
            self._directory.views(),
            self._partitions(),
            self._policy,
        )
        for move in moves:
            slot = self._slots.get(move.key)
            if slot is not None:  # its topic may have been deleted since
                log.info("%s goes to %s, which is less loaded", slot, move.to)
                self._directory.took(move.to, move.score)
                await slot.transfer(move.to)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(self._policy.interval_s)
            now = loop.time()
            try:
                await self.round(now - last)
            except Exception:  # a bug; the load is measured and published all the same
                log.exception("a round of the balancer failed")
            last = now

    async def _measure(self, elapsed_s: float) -> None:
        partitions, traffic = 0, Traffic()
        for number, slot in enumerate(list(self._slots.values()), 1):
            if number % SLOTS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            open_log = slot.open_log
            if open_log is not None:
                slot.meter.sample(open_log.bytes_in, open_log.bytes_out, elapsed_s)
                partitions += 1
                traffic.add(slot.info.topic_id, slot.meter)
        self._opened.traffic = traffic
        self._directory.measured(
            BrokerLoad(
                partitions=partitions,
                in_bytes_per_s=round(traffic.in_bytes_per_s),
                out_bytes_per_s=round(traffic.out_bytes_per_s),
                pending_bytes=self._pending.total,
            )
        )

    def _partitions(self) -> Iterator[PartitionView]:
        now = asyncio.get_running_loop().time()
        for key, slot in self._slots.items():
            if slot.open_log is not None:
                yield PartitionView(key, slot.meter.score, now - slot.opened_at_s)
