"""The partition of an append under an idempotency key that names no partition: the same key finds
its first append again, also after the topic got more partitions.

The hash of the message's key, or else of the idempotency key, modulo the number of partitions
chooses (for a dead letter: the number of the partition that it comes from). Where the topic had
fewer partitions so recently that a first append may be remembered, the partitions that were chosen
then are asked first. The owner of each answers with the append, or with a promise that outlives it:
no append that was routed by a smaller number is written there any more (``Access.partitions``). So
a broker that has not heard of the new partitions yet cannot write the key a second time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeGuard

from fencelog.broker.append.conditions import AppendConditions, AppendResult
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.entry_header import RANGE_KEY, SequenceRange

Find = Callable[[int, SequenceRange], Awaitable[AppendResult | None]]
"""Asks the owner of a partition: ``AccessChanges.find_key``."""


def is_routed_by_key(conditions: AppendConditions | None) -> TypeGuard[AppendConditions]:
    """Tell whether an append, if it names no partition, has one by its idempotency key."""
    return (
        conditions is not None
        and conditions.sequences is not None
        and conditions.sequences.kind == RANGE_KEY
        and conditions.if_offset is None
    )


async def route_once(
    topic: TopicInfo, conditions: AppendConditions, place: int, *, now_us: int, find: Find
) -> AppendResult | tuple[int, AppendConditions]:
    """Return the first append under an idempotency key, if a previous partition has it, or else the
    partition to append to, with the conditions of that. ``place``: the number that chooses, that of
    ``place_of`` or the caller's own.

    Raises what ``find`` raises: nothing is known then, and nothing was written by this request.
    """
    sequences = _key_of(conditions)
    for partition in previous_partitions(topic, place, now_us):
        found = await find(partition, sequences)
        if found is not None:
            return found
    partitions = topic.config.partitions
    return place % partitions, conditions._replace(routed_by=partitions)


def place_of(conditions: AppendConditions, key: bytes | None) -> int:
    """Return the hash that chooses the partition of an append under an idempotency key."""
    return crc32c(_key_of(conditions).id if key is None else key)


def _key_of(conditions: AppendConditions) -> SequenceRange:
    if conditions.sequences is None:
        raise AssertionError("an append without an idempotency key")
    return conditions.sequences


def previous_partitions(topic: TopicInfo, place: int, now_us: int) -> list[int]:
    """Return the partitions, other than the current one, that a hash chose before, as far as
    appends of that time are remembered."""
    counts = [
        previous.partitions for previous in topic.previous_counts if topic.matters(previous, now_us)
    ]
    found = dict.fromkeys(place % count for count in counts)
    found.pop(place % topic.config.partitions, None)
    return list(found)
