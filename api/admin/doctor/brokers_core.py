"""Findings about brokers, their partitions and the settings of topics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from fencelog.api.admin.doctor.findings import Finding, FindingKind, Severity
from fencelog.api.admin.doctor.limits import MAX_SHOWN, STUCK_STEP_MS, STUCK_TAKEOVER_MS
from fencelog.api.admin.doctor.observations import (
    BrokerState,
    NotAnswered,
    Observations,
    TopicReplication,
)
from fencelog.broker.partition.troubles import SlowSubscription, StuckOpening, StuckStep

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

_WHY_NO_BOOKIES = "fencelog bookies list --metadata URL"


def broker_findings(seen: Observations) -> Iterator[Finding]:
    """Yield what is wrong with brokers and with what they serve."""
    if not isinstance(seen.brokers, NotAnswered):
        yield from _brokers(seen.brokers, seen.now_us)
    if not isinstance(seen.topics, NotAnswered):
        yield from _single_acks(seen.topics)
        yield from _too_few_bookies(seen.topics, seen)


def _brokers(brokers: Mapping[str, BrokerState | NotAnswered], now_us: int) -> Iterator[Finding]:
    if not brokers:
        yield Finding(
            FindingKind.NO_BROKER,
            Severity.CRITICAL,
            "brokers",
            "no broker is registered: nothing can be appended or read over HTTP",
            "fencelog broker --metadata URL",
        )
    slow: list[SlowSubscription] = []
    for broker_id, state in sorted(brokers.items()):
        if isinstance(state, NotAnswered):
            yield Finding(
                FindingKind.BROKER_UNREACHABLE,
                Severity.CRITICAL,
                broker_id,
                f"broker {broker_id} is registered, and does not answer: {state.why}. Requests "
                "for its partitions wait until another broker takes them over",
                f"fencelog brokers show {broker_id}",
            )
            continue
        if state.is_draining:
            yield Finding(
                FindingKind.BROKER_DRAINING,
                Severity.NOTICE,
                broker_id,
                f"broker {broker_id} is drained, and takes no partitions",
                f"fencelog brokers undrain {broker_id}",
            )
        for opening in state.troubles.openings:
            if now_us - opening.since_us >= STUCK_TAKEOVER_MS * 1000:
                yield _takeover(broker_id, opening)
        for step in state.troubles.steps:
            if now_us - step.since_us >= STUCK_STEP_MS * 1000:
                yield _roll(broker_id, step)
        slow += state.troubles.subscriptions
    yield from _subscriptions(slow)


def _takeover(broker_id: str, opening: StuckOpening) -> Finding:
    why = opening.error or "it has not ended"
    return Finding(
        FindingKind.TAKEOVER_STUCK,
        Severity.CRITICAL,
        f"{opening.topic}/{opening.partition}",
        f"broker {broker_id} cannot take over partition {opening.partition} of {opening.topic}, "
        f"which nobody serves: {why}",
        _WHY_NO_BOOKIES,
        opening.since_us,
        {"broker_id": broker_id, "error": opening.error},
    )


def _roll(broker_id: str, step: StuckStep) -> Finding:
    why = step.error or "bookies or the metadata store do not answer"
    waiting = f"; {step.pending_bytes:,} bytes wait" if step.pending_bytes else ""
    return Finding(
        FindingKind.ROLL_STUCK,
        Severity.CRITICAL,
        f"{step.topic}/{step.partition}",
        f"appends to partition {step.partition} of {step.topic} fail, or soon will: its next "
        f"ledger cannot be begun ({why}){waiting}",
        _WHY_NO_BOOKIES,
        step.since_us,
        {"broker_id": broker_id, "step": step.step, "error": step.error},
    )


def _subscriptions(found: Sequence[SlowSubscription]) -> Iterator[Finding]:
    """Yield one finding for each subscription, of its partitions at all brokers."""

    def name_of(slow: SlowSubscription) -> tuple[str, str]:
        return slow.topic, slow.subscription

    for (topic, subscription), group in groupby(sorted(found, key=name_of), key=name_of):
        places = list(group)
        held = sum(slow.held_bytes for slow in places)
        ledgers = sum(slow.held_ledgers for slow in places)
        times = [slow.oldest_us for slow in places if slow.oldest_us is not None]
        yield Finding(
            FindingKind.RETENTION_HELD_BACK,
            Severity.WARNING,
            f"{topic} {subscription}",
            f"subscription {subscription} of {topic} holds back retention: {_size(held)} in "
            f"{ledgers:,} {'ledger is' if ledgers == 1 else 'ledgers are'} kept for it alone",
            f"fencelog subscription show {topic} {subscription}",
            min(times, default=None),
            {
                "topic": topic,
                "subscription": subscription,
                "held_bytes": held,
                "backlog_messages": sum(slow.backlog_messages for slow in places),
                "partitions": sorted({slow.partition for slow in places}),
            },
        )


def _size(size: int) -> str:
    """Return a number of bytes in the unit in which it is short."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / 1024**power:,.{1 if power else 0}f} {_UNITS[power]}"


# -- settings of topics ---------------------------------------------------------------------------


def _single_acks(topics: Sequence[TopicReplication]) -> Iterator[Finding]:
    """Yield one finding for all topics that acknowledge after one copy."""
    weak = [topic for topic in topics if topic.ack_quorum == 1]
    if not weak:
        return
    yield Finding(
        FindingKind.ACK_QUORUM_ONE,
        Severity.WARNING,
        weak[0].name,
        f"{_named(weak)} acknowledged after one copy (Qa = 1): one lost disk loses acknowledged "
        "messages",
        f"fencelog topic update {weak[0].name} --set ack_quorum=2 --set write_quorum=3 "
        "--set ensemble_size=3",
        min(topic.created_us for topic in weak),
        {"topics": [topic.name for topic in weak[:MAX_SHOWN]], "topic_count": len(weak)},
    )


def _named(topics: Sequence[TopicReplication]) -> str:
    if len(topics) == 1:
        return f"messages of {topics[0].name} are"
    return f"messages of {len(topics):,} topics, {topics[0].name} first, are"


def _too_few_bookies(topics: Sequence[TopicReplication], seen: Observations) -> Iterator[Finding]:
    """Yield one finding for the topics whose next ledger finds too few bookies."""
    members = seen.membership
    if isinstance(members, NotAnswered):
        return
    writable = sorted(
        bookie_id
        for bookie_id, info in members.registered.items()
        if info is not None
        and not info.is_read_only
        and not isinstance(seen.bookies.get(bookie_id), NotAnswered)
    )
    failing = [topic for topic in topics if topic.ensemble_size > len(writable)]
    if not failing:
        return
    most = max(topic.ensemble_size for topic in failing)
    topics_of = failing[0].name if len(failing) == 1 else f"{len(failing):,} topics"
    yield Finding(
        FindingKind.TOO_FEW_BOOKIES,
        Severity.CRITICAL,
        "bookies",
        f"{len(writable)} bookies take entries, and {topics_of} need {most}: appends fail as soon "
        "as a ledger is to be begun, or a bookie to be replaced",
        _WHY_NO_BOOKIES,
        details={
            "writable": writable,
            "needed": most,
            "topics": [topic.name for topic in failing[:MAX_SHOWN]],
            "topic_count": len(failing),
        },
    )
