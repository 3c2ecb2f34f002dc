"""Findings about brokers and the settings of topics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fencelog.api.admin.doctor.findings import START_BOOKIE, Finding, FindingKind, Severity
from fencelog.api.admin.doctor.limits import MAX_SHOWN
from fencelog.api.admin.doctor.observations import (
    BrokerState,
    NotAnswered,
    Observations,
    TopicReplication,
)
from fencelog.api.admin.doctor.partitions_core import partition_findings
from fencelog.bookie.disk.space import BY_DISK


def broker_findings(seen: Observations) -> Iterator[Finding]:
    """Yield what is wrong with brokers and with what they serve."""
    if not isinstance(seen.brokers, NotAnswered):
        yield from _brokers(seen.brokers)
        answered = {
            broker_id: state.troubles
            for broker_id, state in seen.brokers.items()
            if not isinstance(state, NotAnswered)
        }
        more = _for_more_bookies(seen)
        yield from partition_findings(answered, seen.now_us, for_bookies=more)
    if not isinstance(seen.topics, NotAnswered):
        yield from _single_acks(seen.topics)
        yield from _too_few_bookies(seen.topics, seen)


def _brokers(brokers: Mapping[str, BrokerState | NotAnswered]) -> Iterator[Finding]:
    if not brokers:
        yield Finding(
            FindingKind.NO_BROKER,
            Severity.CRITICAL,
            "brokers",
            "no broker is registered: nothing can be appended or read over HTTP",
            "fencelog broker --metadata URL",
        )
    for broker_id, state in sorted(brokers.items()):
        if isinstance(state, NotAnswered):
            yield Finding(
                FindingKind.BROKER_UNREACHABLE,
                Severity.CRITICAL,
                broker_id,
                f"broker {broker_id} is registered, and does not answer: {state.why}. Requests "
                "for its partitions wait until another broker takes them over. Start it again",
                f"fencelog broker --metadata URL --id {broker_id}",
                look_first=f"fencelog brokers show {broker_id}",
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
        _for_more_bookies(seen),
        details={
            "writable": writable,
            "needed": most,
            "topics": [topic.name for topic in failing[:MAX_SHOWN]],
            "topic_count": len(failing),
        },
    )


def _for_more_bookies(seen: Observations) -> str:
    """Return the command after which more bookies take entries, by why some take none."""
    reasons = {
        bookie_id: state.status["read_only_for"]
        for bookie_id, state in sorted(seen.bookies.items())
        if not isinstance(state, NotAnswered) and state.status["read_only_for"]
    }
    by_operator = [bookie_id for bookie_id, why in reasons.items() if BY_DISK not in why]
    if by_operator:
        return f"fencelog bookies read-only {by_operator[0]} off --metadata URL"
    if reasons:
        return "fencelog topic trim TOPIC PARTITION --before OFFSET"
    return START_BOOKIE
