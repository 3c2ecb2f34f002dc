"""The subscription and the partitions that a request is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencelog.api.http.asgi import Exchange
from fencelog.api.http.targets import Target
from fencelog.api.routing.partitioner import named_partition
from fencelog.api.subscriptions.owners import Asked, partitions_of
from fencelog.api.subscriptions.requests import PartitionOffset
from fencelog.broker.registry.topics import TopicInfo
from fencelog.broker.subscriptions.subscriptions import partition_of_ack_id
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

PARAMETERS = frozenset(("partition",))


async def find(broker: Broker, exchange: Exchange, target: Target) -> Asked:
    """Find the subscription of a request. Raises FencelogError: TOPIC_NOT_FOUND,
    SUBSCRIPTION_NOT_FOUND, METADATA_…."""
    topic = await broker.topic(target.topic)
    found = await broker.subscriptions.find(topic.topic_id, target.subscription)
    return Asked(topic, found, exchange)


def chosen_partitions(
    exchange: Exchange, asked: Asked, parameters: frozenset[str] = PARAMETERS
) -> Sequence[int]:
    """Return all partitions, or the one of ``?partition=``. Raises FencelogError: BAD_REQUEST,
    NOT_FOUND."""
    if "partition" in exchange.query(parameters):
        return [the_partition(exchange, asked.topic, parameters)]
    return partitions_of(asked.topic)


def the_partition(
    exchange: Exchange, topic: TopicInfo, parameters: frozenset[str] = PARAMETERS
) -> int:
    """Return the partition of ``?partition=``. Raises FencelogError: BAD_REQUEST, NOT_FOUND."""
    named = exchange.query(parameters).get("partition", "")
    return named_partition(named, topic.config.partitions, topic.name)


def by_partition(
    ack_ids: Sequence[str], asked: Asked, *, field: str = "ack_ids"
) -> dict[int, list[str]]:
    """Return ack ids by the partition whose owner issued them. Raises
    FencelogError(BAD_REQUEST)."""
    groups: dict[int, list[str]] = {}
    for ack_id in ack_ids:
        groups.setdefault(partition_of_ack_id(ack_id), []).append(ack_id)
    for partition, ids in groups.items():
        if partition not in partitions_of(asked.topic):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"ack id {ids[0]!r} is of a partition that {asked.topic.name} does not have",
                field=field,
            )
    return groups


def one_a_partition(ack_ids: Sequence[str], asked: Asked) -> dict[int, str]:
    """Return ack ids, of different partitions, by partition. Raises FencelogError(BAD_REQUEST)."""
    groups = by_partition(ack_ids, asked, field="through")
    for partition, ids in groups.items():
        if len(ids) > 1:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"two ack ids are of partition {partition}: {ids[0]!r}, {ids[1]!r}",
                field="through",
            )
    return {partition: ids[0] for partition, ids in groups.items()}


def each_once(offsets: Sequence[PartitionOffset], asked: Asked) -> Sequence[PartitionOffset]:
    """Return the offsets if each partition occurs once. Raises FencelogError: BAD_REQUEST,
    NOT_FOUND."""
    seen: set[int] = set()
    for at in offsets:
        named_partition(str(at.partition), asked.topic.config.partitions, asked.topic.name)
        if at.partition in seen:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"the body: partition {at.partition} is given twice"
            )
        seen.add(at.partition)
    return offsets
