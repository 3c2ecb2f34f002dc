"""Findings about brokers and the settings of topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.api.admin.doctor.brokers_core import broker_findings
from fencelog.api.admin.doctor.findings import FindingKind, Severity
from fencelog.api.admin.doctor.observations import NotAnswered
from tests.api.admin.doctor import healthy

SILENT = NotAnswered("connection refused")


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


@pytest.mark.parametrize(
    ("reasons", "command"),
    [
        ([], "fencelog bookie --metadata URL --data DIR"),
        ([["disk"]], "fencelog topic trim TOPIC PARTITION --before OFFSET"),
        ([["disk"], ["operator"]], "fencelog bookies read-only b2 off --metadata URL"),
    ],
)
def test_too_few_bookies_are_helped_by_what_has_made_them_few(
    reasons: list[list[str]], command: str
) -> None:
    seen = healthy.cluster(topics=[healthy.topic(ensemble=32)])
    states = {f"b{n}": healthy.bookie(read_only_for=why) for n, why in enumerate(reasons, 1)}
    (found,) = broker_findings(replace(seen, bookies={**seen.bookies, **states}))
    assert found.command == command
