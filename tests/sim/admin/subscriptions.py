"""Subscriptions through the registry, by the service's own code: ``api``'s lifecycle creates and
deletes them and asks the owners for their cursors, over the simulated ways between brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from fencelog.api.http.targets import Endpoint
from fencelog.api.routing.link_answer import OwnerUnreachable
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.lifecycle import SubscriptionLifecycle
from fencelog.api.subscriptions.owners import Asked, SubscriptionOwners
from fencelog.api.subscriptions.requests import CursorRequest
from fencelog.broker.broker import Broker
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.subscription_config import Start, SubscriptionConfig
from fencelog.broker.registry.subscription_registry import RegisteredSubscription, decode_registered
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from tests.sim.admin.edge import Edge
from tests.sim.oracle.incarnations import AdminLog
from tests.sim.oracle.log_history import payload_of
from tests.sim.topics.brokers import TOPIC, BrokerMachine, Unanswered, Unreached
from tests.sim.topics.reads import READ_BYTES

CONFIG = SubscriptionConfig(type="shared", lease_ms=400)


class Groups:
    """The requests of clients to subscriptions, each within a broker's process."""

    def __init__(self, edge: Edge, brokers: Mapping[str, BrokerMachine]) -> None:
        self._edge = edge
        self._brokers = brokers

    async def create(self, name: str, start: Start, broker: Broker) -> None:
        """Confirmed: it has a cursor in every partition, and misses nothing from there on."""
        topic = await broker.topic(TOPIC)
        self._edge.incarnations.begun("registering")
        registered, _ = await self._lifecycle(broker).create(topic, name, CONFIG, start)
        subscription_id = registered.info.subscription_id
        for partition in range(topic.config.partitions):
            log = self._edge.incarnations.log(topic.topic_id, partition)
            cursor = log.cursor(subscription_id, name)
            if cursor.is_dropped or not self._edge.incarnations.is_living(topic.topic_id):
                continue
            if subscription_id not in log.state.cursors():
                log.violate(19, f"{name} was confirmed, and has no durable cursor")
            if cursor.opened_at is not None:
                cursor.protect(cursor.opened_at)

    async def register(self, name: str, start: Start, broker: Broker) -> None:
        """The first step of ``create``."""
        topic = await broker.topic(TOPIC)
        await broker.subscriptions.create(
            topic.topic_id,
            name,
            CONFIG,
            start,
            partitions=topic.config.partitions,
            at_most=topic.policy.max_subscriptions,
        )

    async def delete(self, name: str, broker: Broker) -> None:
        await self._lifecycle(broker).delete(await broker.topic(TOPIC), name)

    async def consume(
        self,
        name: str,
        consumer: str,
        partition: int,
        count: int,
        thinks_s: float,
        acks: bool,
        broker: Broker,
    ) -> int:
        """Pull and, if it ``acks``, acknowledge; how many messages."""
        topic = await broker.topic(TOPIC)
        registered = await broker.subscriptions.find(topic.topic_id, name)
        instance, log = await self._edge.open(broker, partition % topic.config.partitions)
        await self._owners(broker).prepare(instance, Asked(topic, registered))
        cursor = log.cursor(registered.info.subscription_id, name)
        subscriptions, info = instance.subscriptions, registered.info
        loop, epoch = asyncio.get_running_loop(), instance.epoch
        began_s = loop.time()
        log.check_memory(info.subscription_id, instance)
        pulled = await subscriptions.pull(info, consumer, max_messages=count, max_bytes=READ_BYTES)
        for message in pulled:
            log.seen(message.offset, (payload_of(message.message),), "pulled")
        offsets = [message.offset for message in pulled]
        log.counts["redeliveries to groups"] += len(cursor.delivered.intersection(offsets))
        again = cursor.handed_out(offsets, epoch, began_s)
        if again:
            log.violate(19, f"{name}: {again} were acknowledged, and are handed out again")
        if not pulled or not acks:
            return len(pulled)
        await asyncio.sleep(thinks_s)
        number = cursor.acknowledging(offsets)
        try:
            result = await subscriptions.ack(info, [message.ack_id for message in pulled])
        except FencelogError as error:
            if error.code.effects is Effects.NONE:
                cursor.refused(offsets, number)
                log.counts["acknowledgements refused"] += 1
            raise
        stale = {message.offset for message in pulled if message.ack_id in result.stale}
        cursor.refused(stale, number)
        confirmed = [offset for offset in offsets if offset not in stale]
        cursor.acknowledged_at(confirmed, epoch, loop.time())
        log.counts["acknowledgements"] += 1
        self._check_acked(log, info.subscription_id, confirmed)
        log.check_memory(info.subscription_id, instance)
        return len(pulled)

    def _check_acked(self, log: AdminLog, subscription_id: str, confirmed: list[int]) -> None:
        """Check that what was confirmed just now is durable (19); of a deleted topic nothing is
        followed any more."""
        if not self._edge.incarnations.is_living(log.topic_id):
            return
        cursor, durable = log.cursor(subscription_id), log.state.cursors().get(subscription_id)
        if missing := cursor.not_durable(confirmed, durable):
            log.violate(19, f"{cursor.name}: acks of {missing[:5]} are confirmed, and not durable")

    # -- the service -----------------------------------------------------------------------------

    def _lifecycle(self, broker: Broker) -> SubscriptionLifecycle:
        return SubscriptionLifecycle(broker, self._owners(broker))

    def _owners(self, broker: Broker) -> ObservedOwners:
        forwarder: Any = SimForwarder(self)
        waits: Any = None
        ownership = OwnerProxy(broker, forwarder, waits)
        return ObservedOwners(self._edge, broker, ownership, forwarder)

    async def at_peer(self, url: str, path: str, partition: int, body: bytes) -> bytes:
        """Have the broker there open or drop a cursor, as its HTTP service would."""
        machine = self._brokers[url.removeprefix("http://")]

        async def work(broker: Broker) -> bytes:
            topic = await broker.topic(TOPIC)
            log = await broker.partition(TOPIC, partition)
            if path.endswith(f":{Endpoint.OPEN_CURSOR.value}"):
                await self._owners(broker).open_cursor(log, topic, decode_registered(body))
            else:
                request = msgspec.json.decode(body, type=CursorRequest)
                await log.subscriptions.drop(request.subscription_id)
            return b"{}"

        return await machine.ask(work)


class ObservedOwners(SubscriptionOwners):
    """Notes where cursors were opened."""

    def __init__(self, edge: Edge, broker: Broker, ownership: OwnerProxy, forwarder: Any) -> None:
        letters: Any = lambda topic: None  # noqa: E731 - a stub of one expression
        super().__init__(broker, ownership, forwarder, letters)
        self._edge = edge

    async def open_cursor(
        self, log: PartitionLog, topic: TopicInfo, subscription: RegisteredSubscription
    ) -> None:
        subscription_id = subscription.info.subscription_id
        was_there = subscription_id in log.subscriptions.all()
        await super().open_cursor(log, topic, subscription)
        if subscription_id not in log.subscriptions.all():
            return  # it was dropped meanwhile
        _, notes = self._edge.of(log, log.partition)
        if notes.topic_id != topic.topic_id:  # made anew meanwhile: the reconciler will drop it
            notes.state.may_be_dropped.add(subscription_id)
        cursor = notes.cursor(subscription_id, subscription.info.name)
        cursor.opened_at = log.subscriptions.stats(subscription_id)["acked_to"]
        if not was_there:
            cursor.protect(cursor.opened_at)


class SimForwarder:
    """Implements what ``SubscriptionOwners`` needs of ``Forwarder``."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def ask(
        self, method: str, url: str, path: str, query: bytes, body: bytes, *, lost: ErrorCode
    ) -> bytes:
        try:
            partition = int(query.removeprefix(b"partition="))
            return await self._groups.at_peer(url, path, partition, body)
        except Unreached as error:
            raise OwnerUnreachable(url) from error
        except Unanswered as error:
            raise FencelogError(lost, f"{method} {path}: no answer from {url}") from error
