"""A broker: the topics it serves, the partitions it owns, and its place among the others."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from fencelog.broker.chain_codec import decode_chain
from fencelog.broker.chain_node import chain_path
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_port import Ledgers
from fencelog.broker.names import TopicName
from fencelog.broker.ownership import Ownership
from fencelog.broker.partition_log import PartitionLog
from fencelog.broker.partition_slot import BrokerServices, PartitionSlot
from fencelog.broker.topics import TopicInfo, TopicRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metadata_store import MetadataStore, Watch
from fencelog.ledgers.registration import (
    BOOKIES_PATH,
    BROKERS_PATH,
    ChildrenValues,
    Registration,
)

__all__ = ["Broker", "BrokerConfig"]

CLOSING_AT_ONCE = 64
"""Partitions handed over at the same time when a broker closes."""


class Broker:
    """Serves partitions. ``start`` before use; ``close`` hands every partition over."""

    def __init__(
        self, store: MetadataStore, ledgers: Ledgers, *, host: Host, config: BrokerConfig
    ) -> None:
        self.config = config
        self.topics = TopicRegistry(store, host=host, ledgers=ledgers)
        self._store = store
        self._host = host
        self._ownership = Ownership(store, broker_id=config.broker_id, url=config.url)
        self._services = BrokerServices(
            topics=self.topics,
            ledgers=ledgers,
            ownership=self._ownership,
            host=host,
            config=config,
            bookie_addresses=self.bookie_addresses,
        )
        self._slots: dict[tuple[TopicName, int], PartitionSlot] = {}
        self._known: dict[TopicName, tuple[TopicInfo, Watch]] = {}
        self._registration: Registration | None = None
        self._brokers = ChildrenValues(store, BROKERS_PATH)
        self._bookies = ChildrenValues(store, BOOKIES_PATH)
        self._letting_go: set[asyncio.Task[None]] = set()
        self._draining = False

    async def start(self) -> None:
        """Register. Raises METADATA_UNAVAILABLE, METADATA_UNKNOWN."""
        value = {
            "broker_id": self.config.broker_id,
            "url": self.config.url,
            "started_us": self._host.now_us(),
        }
        path = f"{BROKERS_PATH}/{self.config.broker_id}"
        await self._brokers.start()
        await self._bookies.start()
        self._registration = await Registration.start(self._store, path, json.dumps(value).encode())

    async def close(self) -> None:
        """Refuse new requests, finish appends, seal logs, give up every partition."""
        self._draining = True
        for _, watch in self._known.values():
            watch.close()
        at_once = asyncio.Semaphore(CLOSING_AT_ONCE)

        async def close(slot: PartitionSlot) -> None:
            async with at_once:
                await slot.close()

        async with asyncio.TaskGroup() as group:
            for slot in self._slots.values():
                group.create_task(close(slot))
        self._slots.clear()
        if self._letting_go:
            await asyncio.wait(self._letting_go)
        if self._registration is not None:
            await self._registration.close()
        self._brokers.close()
        self._bookies.close()

    # -- partitions ------------------------------------------------------------------------------

    async def partition(self, topic: TopicName, partition: int) -> PartitionLog:
        """The log of a partition that this broker owns; it takes the partition if nobody has it.

        Raises FencelogError: NotOwner (with ``url``), TOPIC_NOT_FOUND, NOT_FOUND (no such
        partition), DRAINING, or why the log could not be opened.
        """
        slot = self._slots.get((topic, partition))
        if slot is None:
            slot = await self._slot(topic, partition)
        return slot.open_log or await slot.log()

    def known(self, topic: TopicName) -> TopicInfo | None:
        """The topic, if it is remembered already."""
        known = self._known.get(topic)
        return None if known is None else known[0]

    def open_log(self, topic: TopicName, partition: int) -> PartitionLog | None:
        """The log of a partition, if it is open here now and serves."""
        slot = self._slots.get((topic, partition))
        return None if slot is None else slot.open_log

    async def _slot(self, topic: TopicName, partition: int) -> PartitionSlot:
        info = await self.topic(topic)
        if self._draining:
            raise FencelogError(ErrorCode.DRAINING, f"{self.config.broker_id} is being closed")
        if not 0 <= partition < info.config.partitions:
            raise FencelogError(
                ErrorCode.NOT_FOUND,
                f"{topic} has partitions 0 to {info.config.partitions - 1}, not {partition}",
            )
        key = (topic, partition)
        if key not in self._slots:
            self._slots[key] = PartitionSlot(info, partition, self._services)
        return self._slots[key]

    async def topic(self, topic: TopicName) -> TopicInfo:
        """The topic, remembered until a watch says that it has changed.

        Raises FencelogError: TOPIC_NOT_FOUND, METADATA_….
        """
        known = self._known.get(topic)
        if known is not None:
            return known[0]
        info = await self.topics.get(topic)
        if topic not in self._known:
            watch = self.topics.watch(topic, partial(self._on_topic, topic, info.topic_id))
            self._known[topic] = (info, watch)
        return self._known[topic][0]

    def _on_topic(self, topic: TopicName, topic_id: str, info: TopicInfo | None) -> None:
        """The topic was deleted, or another has its name now: let go of what was the old one's."""
        if (info is not None and info.topic_id == topic_id) or self._draining:
            return
        known = self._known.get(topic)
        if known is None or known[0].topic_id != topic_id:
            return
        del self._known[topic]
        known[1].close()
        error = FencelogError(ErrorCode.TOPIC_NOT_FOUND, f"topic {topic} was deleted")
        for partition in range(known[0].config.partitions):
            slot = self._slots.pop((topic, partition), None)
            if slot is not None:
                task = asyncio.get_running_loop().create_task(slot.close(error))
                self._letting_go.add(task)
                task.add_done_callback(self._letting_go.discard)

    # -- the others ------------------------------------------------------------------------------

    async def owners(self, topic: TopicName) -> list[dict[str, Any]]:
        """``partition, broker_id, url, epoch`` of every partition that has an owner now."""
        info = await self.topics.get(topic)
        found = []
        for partition in range(info.config.partitions):
            owner = await self._ownership.get(info.topic_id, partition)
            if owner is not None:
                epoch = await self._epoch(info.topic_id, partition)
                found.append(
                    {
                        "partition": partition,
                        "broker_id": owner.broker_id,
                        "url": owner.url,
                        "epoch": epoch,
                    }
                )
        return found

    async def _epoch(self, topic_id: str, partition: int) -> int:
        try:
            node = await self._store.get(chain_path(topic_id, partition))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return 0
            raise
        return decode_chain(node.value).epoch

    async def report_dead_owner(self, topic: TopicName, partition: int, url: str) -> None:
        """Nobody listens at the owner's ``url``: free the partition for the next request.

        Leadership is a hint, so this is safe even if the owner lives: fencing protects the log,
        and a living owner puts its node back. Raises TOPIC_NOT_FOUND, METADATA_….
        """
        info = await self.topic(topic)
        await self._ownership.remove_dead(info.topic_id, partition, url)
        slot = self._slots.get((topic, partition))
        if slot is not None:
            slot.forget_owner(url)

    def brokers(self) -> list[dict[str, Any]]:
        """Registered brokers: ``broker_id, url, started_us``, by id."""
        return [json.loads(self._brokers.values[name]) for name in sorted(self._brokers.values)]

    def bookie_addresses(self) -> dict[str, str]:
        """``host:port`` of registered bookies by id."""
        return {
            bookie_id: str(json.loads(value)["address"])
            for bookie_id, value in sorted(self._bookies.values.items())
        }

    async def check_ready(self) -> None:
        """Raises FencelogError if requests cannot be served: DRAINING, METADATA_UNAVAILABLE,
        NOT_ENOUGH_BOOKIES (none is registered)."""
        if self._draining:
            raise FencelogError(ErrorCode.DRAINING, f"{self.config.broker_id} is being closed")
        await self._store.get(f"{BROKERS_PATH}/{self.config.broker_id}")
        if not self._bookies.values:
            raise FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "no bookie is registered")
