"""Findings about brokers, partitions and the settings of topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencelog.api.admin.doctor.brokers_core import broker_findings
from fencelog.api.admin.doctor.findings import FindingKind, Severity
from fencelog.api.admin.doctor.limits import STUCK_STEP_MS, STUCK_TAKEOVER_MS
from fencelog.api.admin.doctor.observations import NotAnswered
from fencelog.broker.partition.troubles import SlowSubscription, StuckOpening, StuckStep
from tests.api.admin.doctor import healthy

SILENT = NotAnswered("connection refused")


def findings_of(**troubles: Any) -> Any:
    return broker_findings(healthy.cluster(brokers={"r1": healthy.broker(**troubles)}))


def test_nothing_is_said_about_what_is_unknown() -> None:
    assert list(broker_findings(healthy.cluster(brokers=SILENT, topics=SILENT))) == []


def test_no_broker() -> None:
    found = broker_findings(healthy.cluster(brokers={}))
    healthy.only(found, FindingKind.NO_BROKER, Severity.CRITICAL)


def test_a_broker_that_does_not_answer() -> None:
    found = healthy.only(
        broker_findings(healthy.cluster(brokers={"r1": SILENT, "r2": healthy.broker()})),
        FindingKind.BROKER_UNREACHABLE,
        Severity.CRITICAL,
    )
    assert (found.subject, SILENT.why in found.summary) == ("r1", True)


def test_a_drained_broker() -> None:
    seen = healthy.cluster(brokers={"r1": replace(healthy.broker(), is_draining=True)})
    healthy.only(broker_findings(seen), FindingKind.BROKER_DRAINING, Severity.NOTICE)


@pytest.mark.parametrize(("error", "words"), [("why", ": why"), ("", "it has not ended")])
def test_a_takeover_that_does_not_end(error: str, words: str) -> None:
    since_us = healthy.NOW_US - STUCK_TAKEOVER_MS * 1000
    found = healthy.only(
        findings_of(openings=[StuckOpening("ns/t", 3, since_us, error)]),
        FindingKind.TAKEOVER_STUCK,
        Severity.CRITICAL,
    )
    assert (found.subject, found.since_us) == ("ns/t/3", since_us)
    assert words in found.summary


@pytest.mark.parametrize(
    ("error", "pending", "words"),
    [("why", 0, "(why)"), ("", 0, "do not answer)"), ("why", 4096, "(why); 4,096 bytes wait")],
)
def test_a_roll_that_does_not_end(error: str, pending: int, words: str) -> None:
    since_us = healthy.NOW_US - STUCK_STEP_MS * 1000
    found = healthy.only(
        findings_of(steps=[StuckStep("ns/t", 3, "CreateLedger", since_us, error, pending)]),
        FindingKind.ROLL_STUCK,
        Severity.CRITICAL,
    )
    assert found.since_us == since_us
    assert found.summary.endswith(words)


def test_what_has_just_begun_is_not_stuck() -> None:
    now_us = healthy.NOW_US - 1_000_000
    openings = [StuckOpening("ns/t", 3, now_us, "why")]
    steps = [StuckStep("ns/t", 3, "CreateLedger", now_us, "", 0)]
    assert list(findings_of(openings=openings, steps=steps)) == []


def test_a_subscription_that_holds_back_retention() -> None:
    mib = 1024 * 1024
    slow = [
        SlowSubscription("ns/t", 1, "s", 2, 3 * mib, 5, 7),
        SlowSubscription("ns/t", 0, "other", 1, mib, 1, None),
        SlowSubscription("ns/t", 0, "s", 1, mib, 6, 4),
    ]
    other, found = findings_of(subscriptions=slow)
    assert (other.subject, other.since_us) == ("ns/t other", None)
    assert (found.kind, found.severity) == (FindingKind.RETENTION_HELD_BACK, Severity.WARNING)
    assert (found.subject, found.since_us) == ("ns/t s", 4)
    assert "4.0 MiB in 3 ledgers" in found.summary
    assert found.details["backlog_messages"] == 11
    assert found.details["held_bytes"] == 4 * mib


def test_what_a_subscription_holds_back_at_several_brokers_is_one_finding() -> None:
    mib = 1024 * 1024
    brokers = {
        name: healthy.broker(subscriptions=[SlowSubscription("ns/t", n, "s", 1, mib, 5, 7 - n)])
        for n, name in enumerate(("r2", "r1"))
    }
    found = healthy.only(
        broker_findings(healthy.cluster(brokers=brokers)),
        FindingKind.RETENTION_HELD_BACK,
        Severity.WARNING,
    )
    assert "2.0 MiB in 2 ledgers" in found.summary
    assert (found.since_us, found.details["partitions"]) == (6, [0, 1])


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B in 1 ledger is kept"),
        (1023, "1,023 B in"),
        (2500, "2.4 KiB in"),
        (5 * 2**40, "5.0 TiB in"),
        (3 * 2**51, "6,144.0 TiB in"),
    ],
)
def test_space_is_told_in_its_unit(size: int, words: str) -> None:
    (found,) = findings_of(subscriptions=[SlowSubscription("ns/t", 0, "s", 1, size, 1, None)])
    assert words in found.summary


@pytest.mark.parametrize(("count", "words"), [(1, "of ns/0 are"), (30, "of 30 topics, ns/0 first")])
def test_topics_that_acknowledge_one_copy(count: int, words: str) -> None:
    topics = [healthy.topic(f"ns/{n}", acks=1) for n in range(count)]
    found = healthy.only(
        broker_findings(healthy.cluster(topics=[healthy.topic(), *topics])),
        FindingKind.ACK_QUORUM_ONE,
        Severity.WARNING,
    )
    assert words in found.summary
    assert len(found.details["topics"]) == min(count, 20)


@pytest.mark.parametrize(("count", "words"), [(1, "and ns/0 need 4"), (2, "and 2 topics need 4")])
def test_too_few_bookies_that_take_entries(count: int, words: str) -> None:
    members = healthy.membership()
    registered = {**members.registered, "b1": None, "b2": healthy.info("b2", is_read_only=True)}
    seen = healthy.cluster(
        membership=replace(members, registered=registered),
        topics=[
            healthy.topic("ns/ok", ensemble=1),
            *(healthy.topic(f"ns/{n}", ensemble=4) for n in range(count)),
        ],
    )
    seen = replace(seen, bookies={**seen.bookies, "b3": NotAnswered("silent")})
    found = healthy.only(broker_findings(seen), FindingKind.TOO_FEW_BOOKIES, Severity.CRITICAL)
    assert found.summary.startswith("1 bookies take entries")
    assert words in found.summary
    assert found.details["writable"] == ["b4"]


def test_unknown_bookies_are_not_too_few() -> None:
    seen = healthy.cluster(membership=SILENT, topics=[healthy.topic(ensemble=32)])
    assert list(broker_findings(seen)) == []
