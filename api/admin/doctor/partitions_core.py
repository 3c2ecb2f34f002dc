"""Findings about partitions that brokers cannot serve, and about subscriptions for which they keep
space. What ails a few is told one by one; what ails many is one finding. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from fencelog.broker.partition.stats.troubles import (
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


def partition_findings(
    brokers: Mapping[str, Troubles], now_us: int, *, for_bookies: str
) -> Iterator[Finding]:
    """Yield what is wrong with the partitions of the brokers that have answered. ``for_bookies``:
    the command after which more bookies take entries."""
    openings = {
        broker_id: _Listed(troubles.openings, troubles.more_openings)
        for broker_id, troubles in brokers.items()
    }
    steps = {
        broker_id: _Listed(troubles.steps, troubles.more_steps)
        for broker_id, troubles in brokers.items()
    }
    yield from _stuck(
        openings,
        now_us - STUCK_TAKEOVER_MS * 1000,
        _TAKEOVER.helped_by(for_bookies),
        _cannot_be_taken_over,
    )
    yield from _stuck(
        steps, now_us - STUCK_STEP_MS * 1000, _ROLL.helped_by(for_bookies), _cannot_roll
    )
    yield from _subscriptions(
        [slow for troubles in brokers.values() for slow in troubles.subscriptions],
        sum(troubles.more_subscriptions for troubles in brokers.values()),
    )


# -- partitions that are not served ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Listed(Generic[T]):
    """The troubles that a broker has named, the oldest first, and the number of those that it has
    counted only."""

    troubles: Sequence[T]
    more: int


@dataclass(frozen=True, slots=True)
class _Ailment:
    """The common part of findings about stuck partitions. ``of_many``: said of more than a few;
    ``command``: what helps."""

    kind: FindingKind
    of_many: str
    command: str = ""

    def helped_by(self, command: str) -> _Ailment:
        return replace(self, command=command)


_TAKEOVER = _Ailment(FindingKind.TAKEOVER_STUCK, "cannot be taken over, and nobody serves them")
_ROLL = _Ailment(
    FindingKind.ROLL_STUCK, "refuse appends, or soon will: their next ledgers cannot be begun"
)


def _stuck(
    brokers: Mapping[str, _Listed[T]],
    before_us: int,
    ailment: _Ailment,
    summary_of: Callable[[str, T], str],
) -> Iterator[Finding]:
    """Yield the partitions that are stuck since before a time: a few one by one, many at once."""
    stuck: list[_Stuck[T]] = []
    unlisted = 0
    for broker_id, listed in sorted(brokers.items()):
        found = [_Stuck(broker_id, each) for each in listed.troubles if each.since_us <= before_us]
        unlisted += listed.more if len(found) == len(listed.troubles) else 0
        stuck += found
    if stuck and (len(stuck) > MAX_ALONE or unlisted):
        yield _many(ailment, stuck, unlisted)
        return
    for each in stuck:
        yield Finding(
            ailment.kind,
            Severity.CRITICAL,
            each.place,
            summary_of(each.broker_id, each.trouble),
            ailment.command,
            each.trouble.since_us,
            _details(each.broker_id, each.trouble),
            look_first=WHY_NO_BOOKIES,
        )


def _cannot_be_taken_over(broker_id: str, opening: StuckOpening) -> str:
    why = opening.error or "it has not ended"
    return (
        f"broker {broker_id} cannot take over partition {opening.partition} of {opening.topic}, "
        f"which nobody serves: {why}"
    )


def _cannot_roll(broker_id: str, step: StuckStep) -> str:
    why = step.error or "bookies or the metadata store do not answer"
    waiting = f"; {step.pending_bytes:,} bytes wait" if step.pending_bytes else ""
    return (
        f"appends to partition {step.partition} of {step.topic} fail, or soon will: its next "
        f"ledger cannot be begun ({why}){waiting}"
    )


def _details(broker_id: str, trouble: StuckOpening | StuckStep) -> dict[str, str]:
    step = {"step": trouble.step} if isinstance(trouble, StuckStep) else {}
    return {"broker_id": broker_id, **step, "error": trouble.error}


def _many(ailment: _Ailment, stuck: Sequence[_Stuck[T]], unlisted: int) -> Finding:
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
        ailment.kind,
        Severity.CRITICAL,
        "partitions",
        f"{counted}{further} {ailment.of_many}. First was {oldest.place}{why}",
        ailment.command,
        oldest.trouble.since_us,
        {
            "broker_ids": sorted({each.broker_id for each in stuck}),
            "partitions": places[:MAX_SHOWN],
            "partition_count": len(places),
            "topics": topics[:MAX_SHOWN],
            "topic_count": len(topics),
            "unlisted": unlisted,
        },
        look_first=WHY_NO_BOOKIES,
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
        f"fencelog subscription seek {topic} {subscription} --to latest",
        _oldest_us(places),
        {
            "topic": topic,
            "subscription": subscription,
            "held_bytes": held.size,
            "backlog_messages": sum(slow.backlog_messages for slow in places),
            "partitions": sorted({slow.partition for slow in places}),
        },
        look_first=f"fencelog subscription show {topic} {subscription}",
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
        "fencelog subscription seek TOPIC SUBSCRIPTION --to latest",
        _oldest_us([slow for each in rest for slow in each.places]),
        {
            "topics": topics[:MAX_SHOWN],
            "topic_count": len(topics),
            "subscription_count": len(rest),
            "held_bytes": size,
            "unlisted": unlisted,
        },
        look_first="fencelog subscription list TOPIC",
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
