"""The troubles of a broker's partitions, as it knows them without asking anyone: openings that do
not succeed, steps that do not end, space that is kept for subscriptions alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fencelog.broker.limits import MAX_SHOWN_TROUBLES, STATS_AT_ONCE
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.partition_slot import PartitionSlot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StuckOpening:
    """A partition without an owner that could not be opened here. ``since_us``:
    the first attempt since it was open; ``error``: empty while the first one goes on."""

    topic: str
    partition: int
    since_us: int
    error: str


@dataclass(frozen=True, slots=True)
class StuckStep:
    """An open partition whose list of ledgers is being changed. ``error``: why the last attempt has
    failed, empty if none has; ``pending_bytes``: appends that are not acknowledged."""

    topic: str
    partition: int
    step: str
    since_us: int
    error: str
    pending_bytes: int


@dataclass(frozen=True, slots=True)
class SlowSubscription:
    """A subscription for which ledgers are kept that retention would have deleted, in one
    partition. ``oldest_us``: the publish time of the first message that it has not acknowledged."""

    topic: str
    partition: int
    subscription: str
    held_ledgers: int
    held_bytes: int
    backlog_messages: int
    oldest_us: int | None


@dataclass(slots=True)
class Troubles:
    """The oldest openings and steps, and the subscriptions that hold most. ``partitions``: looked
    at; ``more_…``: those of the kind that are counted only; another broker may have opened some
    of ``more_openings`` meanwhile."""

    partitions: int = 0
    openings: list[StuckOpening] = field(default_factory=list)
    steps: list[StuckStep] = field(default_factory=list)
    subscriptions: list[SlowSubscription] = field(default_factory=list)
    more_openings: int = 0
    more_steps: int = 0
    more_subscriptions: int = 0


async def find_troubles(
    slots: Iterable[PartitionSlot],
    names_of: Callable[[str], Awaitable[Mapping[str, str]]],
    *,
    now_us: int,
) -> Troubles:
    """Return the troubles of all slots. ``names_of``: the names of a topic's subscriptions, by id,
    for the id of the topic. Raises METADATA_UNAVAILABLE."""
    found, loop = Troubles(), asyncio.get_running_loop()
    opening: list[tuple[int, PartitionSlot]] = []
    topic_ids: dict[str, str] = {}
    for number, slot in enumerate(slots, 1):
        if number % STATS_AT_ONCE == 0:
            await asyncio.sleep(0)
        found.partitions += 1
        log = slot.open_log
        if log is None:
            if slot.opening is not None:
                opening.append((slot.opening.began_us, slot))
            continue
        step = log.unfinished_step
        if step is not None:
            began_us = now_us - round((loop.time() - step.began_s) * 1_000_000)
            where = (str(slot.info.name), slot.partition)
            stuck = StuckStep(*where, step.name, began_us, step.error, log.pending_bytes)
            found.steps.append(stuck)
        if log.subscriptions.has_cursors:
            for slow in _slow_subscriptions(slot, log):
                topic_ids[slow.topic] = slot.info.topic_id
                found.subscriptions.append(slow)
    found.openings, found.more_openings = await _openings(opening)
    found.steps, found.more_steps = _first(found.steps, lambda each: each.since_us)
    found.subscriptions, found.more_subscriptions = _first(
        found.subscriptions, lambda each: -each.held_bytes
    )
    topic_ids = {slow.topic: topic_ids[slow.topic] for slow in found.subscriptions}
    names = {topic: await names_of(topic_id) for topic, topic_id in topic_ids.items()}
    found.subscriptions = [
        replace(slow, subscription=names[slow.topic].get(slow.subscription, slow.subscription))
        for slow in found.subscriptions
    ]
    return found


def _first(troubles: list[T], order: Callable[[T], int]) -> tuple[list[T], int]:
    """Return the troubles that are shown, and the number of the others."""
    shown = sorted(troubles, key=order)[:MAX_SHOWN_TROUBLES]
    return shown, len(troubles) - len(shown)


async def _openings(began: list[tuple[int, PartitionSlot]]) -> tuple[list[StuckOpening], int]:
    """Return the oldest openings, and the number of the others. The owners of those alone are read,
    at the same time: thousands may be stuck, and each would cost a read."""
    waiting = [slot for _, slot in sorted(began, key=lambda each: each[0])]
    shown: list[StuckOpening] = []
    while waiting and len(shown) < MAX_SHOWN_TROUBLES:
        count = MAX_SHOWN_TROUBLES - len(shown)
        found = await asyncio.gather(*map(_opening, waiting[:count]))
        waiting = waiting[count:]
        shown += [each for each in found if each is not None]
    return shown, len(waiting)


async def _opening(slot: PartitionSlot) -> StuckOpening | None:
    """Return the opening of a partition that has no owner elsewhere."""
    with suppress(NotOwner):
        await slot.check_free()
        if (opening := slot.opening) is not None:
            topic = str(slot.info.name)
            return StuckOpening(topic, slot.partition, opening.began_us, opening.error)
    return None


def _slow_subscriptions(slot: PartitionSlot, log: PartitionLog) -> Iterator[SlowSubscription]:
    """Yield the subscriptions, by id, that are at the offset below which nothing can be
    deleted."""
    held = log.retention.held_space()
    if held is None:
        return
    for backlog in log.subscriptions.backlogs():
        if backlog.durable and backlog.acked_to <= held.offset:
            _, oldest_us = log.backlog_of(backlog.acked_to)
            yield SlowSubscription(
                str(slot.info.name),
                slot.partition,
                backlog.subscription_id,
                held.ledgers,
                held.size,
                backlog.messages,
                oldest_us,
            )
