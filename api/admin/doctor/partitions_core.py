"""Findings about partitions that brokers cannot serve, and about subscriptions for which they keep
space. What ails a few is told one by one; what ails many is one finding. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from fencelog.api.admin.doctor.findings import WHY_NO_BOOKIES, Finding, FindingKind, Severity
from fencelog.api.admin.doctor.limits import (
    MAX_ALONE,
    MAX_SHOWN,
    MAX_SUBSCRIPTIONS,
    STUCK_STEP_MS,
    STUCK_TAKEOVER_MS,
)
from fencelog.broker.partition.troubles import (
    SlowSubscription,
    StuckOpening,
    StuckStep,
    Troubles,
)

T = TypeVar("T", StuckOpening, StuckStep)

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class _Stuck(Generic[T]):
    """A partition that is stuck at a broker."""

    broker_id: str
    trouble: T

    @property
    def place(self) -> str:
        return f"{self.trouble.topic}/{self.trouble.partition}"


def partition_findings(brokers: Mapping[str, Troubles], now_us: int) -> Iterator[Finding]:
    """Yield what is wrong with the partitions of the brokers that have answered."""
    yield from _takeovers(brokers, now_us)
    yield from _rolls(brokers, now_us)
    yield from _subscriptions(
        [slow for troubles in brokers.values() for slow in troubles.subscriptions],
        sum(troubles.more_subscriptions for troubles in brokers.values()),
    )


# -- partitions that are not served ---------------------------------------------------------------


def _takeovers(brokers: Mapping[str, Troubles], now_us: int) -> Iterator[Finding]:
    stuck: list[_Stuck[StuckOpening]] = []
    unlisted = 0
    for broker_id, troubles in sorted(brokers.items()):
        found = _stuck(broker_id, troubles.openings, now_us - STUCK_TAKEOVER_MS * 1000)
        unlisted += troubles.more_openings if len(found) == len(troubles.openings) else 0
        stuck += found
    if _are_few(stuck, unlisted):
        yield from map(_takeover, stuck)
        return
    yield _many(
        FindingKind.TAKEOVER_STUCK,
        stuck,
        unlisted,
        "cannot be taken over, and nobody serves them",
    )


def _takeover(stuck: _Stuck[StuckOpening]) -> Finding:
    broker_id, opening = stuck.broker_id, stuck.trouble
    why = opening.error or "it has not ended"
    return Finding(
        FindingKind.TAKEOVER_STUCK,
        Severity.CRITICAL,
        stuck.place,
        f"broker {broker_id} cannot take over partition {opening.partition} of {opening.topic}, "
        f"which nobody serves: {why}",
        WHY_NO_BOOKIES,
        opening.since_us,
        {"broker_id": broker_id, "error": opening.error},
    )


def _rolls(brokers: Mapping[str, Troubles], now_us: int) -> Iterator[Finding]:
    stuck: list[_Stuck[StuckStep]] = []
    unlisted = 0
    for broker_id, troubles in sorted(brokers.items()):
        found = _stuck(broker_id, troubles.steps, now_us - STUCK_STEP_MS * 1000)
        unlisted += troubles.more_steps if len(found) == len(troubles.steps) else 0
        stuck += found
    if _are_few(stuck, unlisted):
        yield from map(_roll, stuck)
        return
    what = "refuse appends, or soon will: their next ledgers cannot be begun"
    yield _many(FindingKind.ROLL_STUCK, stuck, unlisted, what)


def _roll(stuck: _Stuck[StuckStep]) -> Finding:
    broker_id, step = stuck.broker_id, stuck.trouble
    why = step.error or "bookies or the metadata store do not answer"
    waiting = f"; {step.pending_bytes:,} bytes wait" if step.pending_bytes else ""
    return Finding(
        FindingKind.ROLL_STUCK,
        Severity.CRITICAL,
        stuck.place,
        f"appends to partition {step.partition} of {step.topic} fail, or soon will: its next "
        f"ledger cannot be begun ({why}){waiting}",
        WHY_NO_BOOKIES,
        step.since_us,
        {"broker_id": broker_id, "step": step.step, "error": step.error},
    )


def _stuck(broker_id: str, troubles: Sequence[T], before_us: int) -> list[_Stuck[T]]:
    return [_Stuck(broker_id, each) for each in troubles if each.since_us <= before_us]


def _are_few(stuck: Sequence[_Stuck[T]], unlisted: int) -> bool:
    return not stuck or (len(stuck) <= MAX_ALONE and not unlisted)


def _many(kind: FindingKind, stuck: Sequence[_Stuck[T]], unlisted: int, what: str) -> Finding:
    """Return one finding for many partitions. ``unlisted``: those that brokers have counted only,
    younger than those that they named, so that they may not be stuck yet."""
    oldest = min(stuck, key=lambda each: each.trouble.since_us)
    topics = sorted({each.trouble.topic for each in stuck})
    places = sorted({each.place for each in stuck})
    errors = Counter(each.trouble.error for each in stuck if each.trouble.error)
    why = "".join(f". Mostly: {error}" for error, _ in errors.most_common(1))
    counted = f"{len(places):,} partitions of {len(topics):,} " + _word(len(topics), "topic")
    further = f", and up to {unlisted:,} more partitions," if unlisted else ""
    return Finding(
        kind,
        Severity.CRITICAL,
        "partitions",
        f"{counted}{further} {what}. First was {oldest.place}{why}",
        WHY_NO_BOOKIES,
        oldest.trouble.since_us,
        {
            "broker_ids": sorted({each.broker_id for each in stuck}),
            "partitions": places[:MAX_SHOWN],
            "partition_count": len(places),
            "topics": topics[:MAX_SHOWN],
            "topic_count": len(topics),
            "unlisted": unlisted,
        },
    )


# -- subscriptions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Held:
    """The space that a subscription holds back, in all partitions that were listed."""

    topic: str
    subscription: str
    places: Sequence[SlowSubscription]

    @property
    def size(self) -> int:
        return sum(slow.held_bytes for slow in self.places)


def _subscriptions(found: Sequence[SlowSubscription], unlisted: int) -> Iterator[Finding]:
    """Yield one finding for each subscription, of its partitions at all brokers; beyond some, one
    for those that hold least. ``unlisted``: partitions of subscriptions that were counted only."""

    def name_of(slow: SlowSubscription) -> tuple[str, str]:
        return slow.topic, slow.subscription

    held = [
        _Held(*name, list(places))
        for name, places in groupby(sorted(found, key=name_of), key=name_of)
    ]
    held.sort(key=lambda each: -each.size)
    yield from (_held_back(each, unlisted) for each in held[:MAX_SUBSCRIPTIONS])
    if rest := held[MAX_SUBSCRIPTIONS:]:
        yield _further(rest, unlisted)


def _held_back(held: _Held, unlisted: int) -> Finding:
    topic, subscription, places = held.topic, held.subscription, held.places
    ledgers = sum(slow.held_ledgers for slow in places)
    return Finding(
        FindingKind.RETENTION_HELD_BACK,
        Severity.WARNING,
        f"{topic} {subscription}",
        f"subscription {subscription} of {topic} holds back retention: {_at_least(unlisted)}"
        f"{_size(held.size)} in {ledgers:,} {_word(ledgers, 'ledger')} "
        f"{'is' if ledgers == 1 else 'are'} kept for it alone",
        f"fencelog subscription show {topic} {subscription}",
        _oldest_us(places),
        {
            "topic": topic,
            "subscription": subscription,
            "held_bytes": held.size,
            "backlog_messages": sum(slow.backlog_messages for slow in places),
            "partitions": sorted({slow.partition for slow in places}),
        },
    )


def _further(rest: Sequence[_Held], unlisted: int) -> Finding:
    topics = sorted({each.topic for each in rest})
    size = sum(each.size for each in rest)
    return Finding(
        FindingKind.RETENTION_HELD_BACK,
        Severity.WARNING,
        "subscriptions",
        f"{len(rest):,} further {_word(len(rest), 'subscription')} of {len(topics):,} "
        f"{_word(len(topics), 'topic')} hold back retention: {_at_least(unlisted)}{_size(size)} "
        "are kept for them",
        "fencelog subscription list TOPIC",
        _oldest_us([slow for each in rest for slow in each.places]),
        {
            "topics": topics[:MAX_SHOWN],
            "topic_count": len(topics),
            "subscription_count": len(rest),
            "held_bytes": size,
            "unlisted": unlisted,
        },
    )


def _at_least(unlisted: int) -> str:
    """Return the words for a sum from which brokers have left something out."""
    return "at least " if unlisted else ""


def _oldest_us(places: Sequence[SlowSubscription]) -> int | None:
    times = [slow.oldest_us for slow in places if slow.oldest_us is not None]
    return min(times, default=None)


def _word(count: int, one: str) -> str:
    return one if count == 1 else f"{one}s"


def _size(size: int) -> str:
    """Return a number of bytes in the unit in which it is short."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / 1024**power:,.{1 if power else 0}f} {_UNITS[power]}"
