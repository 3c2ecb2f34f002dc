"""Findings about partitions that are stuck, and about subscriptions that hold back retention."""

from __future__ import annotations

from typing import Any

import pytest

from fencelog.api.admin.doctor.brokers_core import broker_findings
from fencelog.api.admin.doctor.findings import FindingKind, Severity
from fencelog.api.admin.doctor.limits import (
    MAX_ALONE,
    MAX_SHOWN,
    MAX_SUBSCRIPTIONS,
    STUCK_STEP_MS,
    STUCK_TAKEOVER_MS,
)
from fencelog.broker.partition.stats.troubles import SlowSubscription, StuckOpening, StuckStep
from tests.api.admin.doctor import healthy

OLD_US = healthy.NOW_US - 60_000_000


def findings_of(**troubles: Any) -> Any:
    return broker_findings(healthy.cluster(brokers={"r1": healthy.broker(**troubles)}))


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
    found, other = findings_of(subscriptions=slow)
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


@pytest.mark.parametrize(
    ("unlisted", "words"),
    [
        (0, "36 partitions of 3 topics cannot be taken over"),
        (9_900, "36 partitions of 3 topics, and up to 9,900 more partitions, cannot be taken over"),
    ],
)
def test_many_takeovers_that_do_not_end_are_one_finding(unlisted: int, words: str) -> None:
    """Two brokers try to open one of the partitions."""
    here = [StuckOpening(f"ns/t{n % 3}", n, OLD_US - n, "2 of 3 bookies") for n in range(30)]
    there = [StuckOpening(f"ns/t{n % 3}", n, OLD_US, "") for n in range(29, 36)]
    brokers = {
        "r1": healthy.broker(openings=here, more_openings=unlisted),
        "r2": healthy.broker(openings=there),
    }
    found = healthy.only(
        broker_findings(healthy.cluster(brokers=brokers)),
        FindingKind.TAKEOVER_STUCK,
        Severity.CRITICAL,
    )
    assert found.summary.startswith(words)
    assert found.summary.endswith("First was ns/t2/29. Mostly: 2 of 3 bookies")
    assert found.since_us == OLD_US - 29
    details = dict(found.details)
    assert len(details.pop("partitions")) == MAX_SHOWN
    assert details == {
        "broker_ids": ["r1", "r2"],
        "partition_count": 36,
        "topics": ["ns/t0", "ns/t1", "ns/t2"],
        "topic_count": 3,
        "unlisted": unlisted,
    }


def test_many_rolls_that_do_not_end_are_one_finding() -> None:
    steps = [StuckStep("ns/t", n, "CreateLedger", OLD_US, "", 1) for n in range(MAX_ALONE + 1)]
    found = healthy.only(findings_of(steps=steps), FindingKind.ROLL_STUCK, Severity.CRITICAL)
    assert found.summary.startswith("6 partitions of 1 topic refuse appends, or soon will")
    assert found.summary.endswith("First was ns/t/0")
    each = list(findings_of(steps=steps[:MAX_ALONE]))
    assert [one.subject for one in each] == [f"ns/t/{n}" for n in range(MAX_ALONE)]


def test_what_is_younger_than_what_has_just_begun_is_not_stuck() -> None:
    """A broker names the oldest, so that those which it counts only are younger."""
    openings = [StuckOpening("ns/t", n, OLD_US, "why") for n in range(2)]
    young = StuckOpening("ns/t", 9, healthy.NOW_US, "")
    found = list(findings_of(openings=[*openings, young], more_openings=500))
    assert [each.subject for each in found] == ["ns/t/0", "ns/t/1"]


@pytest.mark.parametrize(("unlisted", "at_least"), [(0, ""), (7, "at least ")])
def test_subscriptions_beyond_those_that_hold_most_are_counted(
    unlisted: int, at_least: str
) -> None:
    slow = [
        SlowSubscription(f"ns/t{n % 2}", 0, f"s{n}", 1, 1024 * n, 1, n)
        for n in range(1, MAX_SUBSCRIPTIONS + 4)
    ]
    found = list(findings_of(subscriptions=slow, more_subscriptions=unlisted))
    assert [each.details["held_bytes"] // 1024 for each in found[:-1]] == list(range(13, 3, -1))
    assert f"retention: {at_least}13.0 KiB in 1 ledger" in found[0].summary
    assert found[-1].summary == (
        "3 further subscriptions of 2 topics hold back retention: "
        f"{at_least}6.0 KiB are kept for them"
    )
    assert (found[-1].since_us, found[-1].subject) == (1, "subscriptions")
    assert found[-1].details["unlisted"] == unlisted
