"""Consumers of subscriptions: they pull, acknowledge, refuse, vanish, seek; all through any broker,
and all of it may be answered, refused, or neither."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Any

from fencelog.broker.broker import Broker
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.subscription_config import ORDERED
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.ledgers.errors import FencelogError
from tests.sim.oracle.observed_subscriptions import ObservedSubscriptions
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.plan.topic_plan import ConsumerPlan
from tests.sim.topics.brokers import TOPIC, BrokerMachine, Unanswered, Unreached
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients
from tests.sim.topics.reads import READ_BYTES, look_at_tail

WAIT_MS = 100

_UNUSED = 4
"""What is given back has not failed where its first offset is a multiple of this; what is drawn
stays the same."""

Work = Callable[[PartitionLog], Coroutine[Any, Any, Any]]


class Consumer:
    """One consumer of one subscription in one partition, in a process of its own."""

    def __init__(
        self, name: str, subscription: SubscriptionHistory, clients: Clients, chance: Random
    ) -> None:
        self._name = name
        self._subscription = subscription
        self._clients = clients
        self._chance = chance
        self._machine: BrokerMachine = clients.some_broker(chance)
        self._hoard: list[list[PulledMessage]] = []
        """What it got before."""
        self._makes_sure = True

    async def consume(self, plan: ConsumerPlan) -> None:
        """Run until the safety phase ends."""
        self._makes_sure = not plan.knows_cursor
        await asyncio.sleep(plan.starts_ms / 1000)
        while not self._clients.is_over.is_set():
            pulled = await self.pull(plan.pulls)
            if pulled and (plan.seeks or plan.late):
                self._hoard = [*self._hoard[-4:], pulled]
            await asyncio.sleep(self._chance.uniform(0, plan.thinks_ms / 1000))
            if plan.late and self._chance.random() < plan.late:
                await self._give_back_late()
            elif self._chance.random() < plan.seeks:
                await self._seek_about(plan, pulled)
                await self._acknowledge_late()
            elif pulled:
                await self._treat(plan, pulled)

    async def finish(self) -> None:
        """Pull and acknowledge until nothing is left."""
        subscription = self._subscription
        while not subscription.is_finished:
            await self.acknowledge(await self.pull(100))

    async def _acknowledge_late(self) -> None:
        """Acknowledge messages that it got before, from any owner and before any seeks."""
        if self._hoard:
            old = self._chance.choice(self._hoard)
            is_ordered = self._subscription.info.config.type in ORDERED
            if is_ordered and self._chance.random() < 0.5:
                await self._ask(partial(self._passed, old[-1]))
            else:
                await self._ask(partial(self._acknowledged, old))

    async def _give_back_late(self) -> None:
        """Refuse or extend messages that it got before, from any owner and in any lease."""
        if self._hoard:
            old = self._chance.choice(self._hoard)
            await (self.extend(old) if self._chance.random() < 0.3 else self.refuse(old))

    async def _seek_about(self, plan: ConsumerPlan, pulled: list[PulledMessage]) -> None:
        """Anywhere; or to what it acknowledges at the same time, and then it takes its time."""
        if not pulled or self._chance.random() < 0.3:
            await self.seek()
        else:
            await asyncio.gather(self.acknowledge(pulled), self.seek(pulled[0].offset))
            await asyncio.sleep(self._chance.uniform(0, 10 * plan.thinks_ms / 1000))

    async def _treat(self, plan: ConsumerPlan, pulled: list[PulledMessage]) -> None:
        """Acknowledge, refuse, extend or keep the messages that it got."""
        what = self._chance.random()
        if what < plan.vanishes:
            await asyncio.sleep(
                self._chance.uniform(0, 2 * self._lease_s)
            )  # a previous lease, then
            if self._chance.random() < 0.5:
                return
        elif what < plan.vanishes + plan.refuses:
            await self.refuse(pulled[self._chance.randrange(len(pulled)) :])
            if self._chance.random() < 0.5:
                return
        elif what < plan.vanishes + plan.refuses + plan.extends:
            await self.extend(pulled)
        some = pulled if self._chance.random() < 0.7 else pulled[::2]
        is_ordered = self._subscription.info.config.type in ORDERED
        if is_ordered and self._chance.random() < plan.through:
            await self._ask(partial(self._passed, pulled[-1]))
        for _ in range(self._chance.choice((1, 1, 1, 2))):
            await self.acknowledge(some)

    @property
    def _lease_s(self) -> float:
        return self._subscription.info.config.lease_ms / 1000

    # -- requests --------------------------------------------------------------------------------

    async def pull(self, count: int) -> list[PulledMessage]:
        return list(await self._ask(partial(self._pulled, count)) or ())

    async def acknowledge(self, pulled: list[PulledMessage]) -> None:
        if pulled:
            await self._ask(partial(self._acknowledged, pulled))

    async def refuse(self, pulled: list[PulledMessage]) -> None:
        await self._ask(partial(self._refused, pulled))

    async def extend(self, pulled: list[PulledMessage]) -> None:
        await self._ask(partial(self._extended, pulled))

    async def seek(self, offset: int | None = None) -> None:
        """Seek there, or anywhere."""
        log = self._subscription.log
        if offset is None:
            offset = self._chance.randint(log.start_offset, log.known_end)
        await self._ask(partial(self._sought, offset))

    async def _ask(self, work: Work) -> Any:
        """None where there was no answer."""
        timeout_s = self._clients.timeout_s(self._chance)
        try:
            attend = partial(self._attend, work, makes_sure=self._makes_sure)
            return await self._machine.ask(attend, timeout_s=timeout_s)
        except (FencelogError, Unreached, Unanswered) as error:
            if isinstance(error, FencelogError):
                self._subscription.log.counts[f"consume: {error.code.slug}"] += 1
            self._machine = self._clients.directed(self._chance, error)
            await asyncio.sleep(RETRY_PAUSE_S)
            return None

    # -- within the broker's process -------------------------------------------------------------

    async def _attend(self, work: Work, broker: Broker, *, makes_sure: bool = True) -> Any:
        """``makes_sure`` that its cursor is durable, though this instance has said so before."""
        subscription = self._subscription
        instance = await broker.partition(TOPIC, subscription.log.partition)
        cursors = instance.subscriptions
        if subscription.letters is not None:
            cursors.dead_letters = subscription.letters(broker)
        if makes_sure or instance not in subscription.views:
            await cursors.open(subscription.info, start_offset=0)
        acked_to = cursors.stats(subscription.info.subscription_id)["acked_to"]
        subscription.opened(instance, acked_to)
        look_at_tail(subscription.log, instance)
        return await work(instance)

    async def _pulled(self, count: int, instance: PartitionLog) -> list[PulledMessage]:
        info = self._subscription.info
        messages = await self._at(instance).pull(
            info, self._name, max_messages=count, max_bytes=READ_BYTES
        )
        if not messages:
            await self._at(instance).wait(info, self._name, WAIT_MS)
        return messages

    async def _acknowledged(self, pulled: list[PulledMessage], instance: PartitionLog) -> None:
        ids = [message.ack_id for message in pulled]
        await self._at(instance).ack(self._subscription.info, ids)

    async def _passed(self, message: PulledMessage, instance: PartitionLog) -> None:
        """Acknowledge everything up to this one."""
        await self._at(instance).ack_through(self._subscription.info, message.ack_id)

    async def _refused(self, pulled: list[PulledMessage], instance: PartitionLog) -> None:
        """Give these back: those from some offsets on as unused."""
        ids = [message.ack_id for message in pulled]
        failed = pulled[0].offset % _UNUSED != 0
        await self._at(instance).nack(self._subscription.info, ids, failed=failed)

    async def _extended(self, pulled: list[PulledMessage], instance: PartitionLog) -> None:
        info = self._subscription.info
        ids = [message.ack_id for message in pulled]
        await self._at(instance).extend(info, ids, info.config.lease_ms)

    async def _sought(self, offset: int, instance: PartitionLog) -> None:
        await self._at(instance).seek(self._subscription.info, offset)

    def _at(self, instance: PartitionLog) -> ObservedSubscriptions:
        return ObservedSubscriptions(instance, self._subscription)
