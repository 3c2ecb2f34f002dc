"""Brokers that hand partitions to each other, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fencelog.broker.broker import Broker
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError

NAME = TopicName.of("shop", "orders")


class Network:
    """``broker.peers.Peers``, without a network: brokers by URL, and those that do not answer."""

    def __init__(self) -> None:
        self.brokers: dict[str, Broker] = {}
        self.dead: set[str] = set()
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def open(self, url: str, topic: TopicName, partition: int) -> None:
        self.asked.append(url)
        await self.gate.wait()
        if url in self.dead:
            raise FencelogError(ErrorCode.NO_OWNER, "nobody listens")
        await self.brokers[url].take(topic, partition)


Make = Callable[..., Awaitable[Broker]]


async def settle() -> None:
    await asyncio.sleep(0.03)


async def owner_ids(broker: Broker) -> list[str]:
    return [owner["broker_id"] for owner in await broker.owners(NAME)]
