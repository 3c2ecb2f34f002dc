"""The diagnosis: its order, clocks, what was not answered, and that each command exists."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
from typer.main import get_command

from fencelog.api.admin.doctor.core import diagnose, worst
from fencelog.api.admin.doctor.findings import FindingKind, Severity
from fencelog.api.admin.doctor.observations import (
    ClockOffset,
    Leftovers,
    Membership,
    NotAnswered,
    Observations,
    UnownedPartition,
)
from fencelog.api.cli.main import application
from fencelog.bookie.repair.core import MissingReason
from fencelog.broker.partition.stats.troubles import SlowSubscription, StuckOpening, StuckStep
from fencelog.ledgers.metastore.zookeeper_tls import Certificate, CertificateRole
from tests.api.admin.doctor import healthy

SILENT = NotAnswered("no answer within 3 s")


def test_a_healthy_cluster_has_no_finding() -> None:
    assert diagnose(healthy.cluster()) == []
    assert diagnose(healthy.cluster(leftovers=None)) == []
    assert worst([]) is None


@pytest.mark.parametrize("part", ["membership", "brokers", "healing", "topics", "leftovers"])
def test_what_could_not_be_asked_is_a_finding(part: str) -> None:
    found = healthy.only(
        diagnose(healthy.cluster(**{part: SILENT})), FindingKind.NOT_ANSWERED, Severity.WARNING
    )
    assert found.summary.startswith("not known: ")
    assert SILENT.why in found.summary


def test_the_worst_comes_first_and_the_oldest_of_those() -> None:
    seen = everything_is_wrong()
    found = diagnose(seen)
    assert [f.severity for f in found] == sorted((f.severity for f in found), reverse=True)
    assert worst(found) is Severity.CRITICAL
    times = [f.since_us for f in found if f.severity is Severity.CRITICAL]
    known = [time for time in times if time is not None]
    assert known == sorted(known)
    assert times == [*known, *[None] * (len(times) - len(known))]


@pytest.mark.parametrize(
    ("offset_us", "error_us", "is_off"),
    [
        (1_000_000, 0, False),
        (1_000_001, 0, True),
        (-1_000_001, 0, True),
        (1_400_000, 500_000, False),
        (1_600_000, 500_000, True),
    ],
)
def test_a_clock_is_off_by_more_than_its_answer_took(
    offset_us: int, error_us: int, is_off: bool
) -> None:
    bookies = {b: healthy.bookie() for b in healthy.BOOKIES}
    bookies["b2"] = replace(bookies["b2"], clock=ClockOffset(offset_us, error_us))
    findings = diagnose(healthy.cluster(bookies=bookies))
    if not is_off:
        assert findings == []
        return
    found = healthy.only(findings, FindingKind.CLOCK_SKEW, Severity.WARNING)
    assert found.subject == "bookie b2"
    assert ("ahead" if offset_us > 0 else "behind") in found.summary


def test_the_observers_own_clock_is_found_wrong_by_the_others() -> None:
    off = ClockOffset(-90_000_000, 0)
    seen = healthy.cluster(
        bookies={b: replace(healthy.bookie(), clock=off) for b in healthy.BOOKIES},
        brokers={"r1": replace(healthy.broker(), clock=off)},
    )
    found = healthy.only(diagnose(seen), FindingKind.CLOCK_SKEW, Severity.WARNING)
    assert found.subject == "this process"
    assert "90.0 s ahead" in found.summary
    assert found.command == "timedatectl set-ntp true"


def test_a_store_that_nobody_has_initialised() -> None:
    seen = healthy.cluster(membership=Membership(None, {}, {}), bookies={}, topics=[])
    found = healthy.only(diagnose(seen), FindingKind.NO_INSTANCE, Severity.CRITICAL)
    assert found.summary.startswith("the metadata store belongs to no cluster yet")
    assert found.command == "fencelog metadata init --metadata URL"


@pytest.mark.parametrize(
    "members", [healthy.membership(), healthy.membership(registered=[]), healthy.membership([])]
)
def test_a_store_that_has_lost_its_instance_is_not_to_be_initialised(members: Membership) -> None:
    """Cookies are of another cluster then; it is one thing that is wrong, not four."""
    seen = healthy.cluster(membership=replace(members, instance=None))
    kinds = {finding.kind: finding for finding in diagnose(seen)}
    found = kinds[FindingKind.NO_INSTANCE]
    assert found.severity is Severity.CRITICAL
    assert "Restore it from a backup" in found.summary
    assert found.command is None
    assert found.details == {"bookies": list(healthy.BOOKIES)}
    assert FindingKind.COOKIE_FOREIGN not in kinds


def test_a_finding_is_shown_as_json() -> None:
    found = diagnose(healthy.cluster(brokers={}))[0]
    assert found.to_json() == {
        "kind": "no_broker",
        "severity": "critical",
        "subject": "brokers",
        "summary": found.summary,
        "command": "fencelog broker --metadata URL",
        "look_first": None,
        "since_us": None,
        "seen_since_us": None,
        "details": {},
    }


def everything_is_wrong() -> Observations:
    """A cluster with a finding of each kind that can be beside the others."""
    status = healthy.STATUS
    waiting = {"why": MissingReason.LOST.value, "entries": [(0, 1)], "entry_count": 2}
    mark = healthy.MARK | {"waiting": [waiting]}
    members = healthy.membership(["b1", "b2", "b3", "b5", "b6"])
    cookies = {
        **members.cookies,
        "b2": healthy.cookie("b2", incarnation="another"),
        "b3": None,
        "b5": healthy.cookie("b5", instance="other"),
    }
    disk = {"left_bytes": 1, "full_in_s": 60}
    integrity = status["integrity"] | {"damaged_runs": 3, "ledgers_lost": 1}
    results = {
        "cluster": {"finished_us": 1, "counts": {"no_copy": 1}},
        "ledgers": {"finished_us": 1, "error": "nonsense"},
    }
    return healthy.cluster(
        membership=replace(members, cookies=cookies),
        bookies={
            "b1": replace(
                healthy.bookie(read_only_for=["operator"], disk=disk, integrity=integrity),
                certificates=[Certificate(CertificateRole.OWN, "b1.crt", healthy.NOW_US)],
            ),
            "b2": SILENT,
            "b3": replace(
                healthy.bookie(read_only_for=["disk"], ledgers_in_limbo=1),
                clock=ClockOffset(9_000_000, 0),
            ),
            "b4": healthy.bookie(ledgers_in_limbo=3, integrity=integrity),
        },
        healing=healthy.healing(
            status={"is_enabled": False, "auditor": {"process_id": "h", "since_us": 2}},
            checks={"results": results},
            marks=[mark],
            marked=1,
            leaving=[{"bookie_id": "b3", "phase": "draining", "since_us": 3}],
        ),
        brokers={
            "r1": SILENT,
            "r2": replace(
                healthy.broker(
                    openings=[StuckOpening("ns/t", 0, 1, "")],
                    steps=[StuckStep("ns/t", 1, "CreateLedger", 2, "", 5)],
                    subscriptions=[SlowSubscription("ns/t", 1, "s", 1, 9, 1, 3)],
                ),
                is_draining=True,
            ),
        },
        topics=[healthy.topic(ensemble=32, acks=1)],
        leftovers=Leftovers([1], ["id"], [UnownedPartition("ns/t", 1, (4,), 5)]),
    )


def commands() -> dict[str, list[str]]:
    """The commands that findings name, by kind."""
    views: list[Observations] = [
        everything_is_wrong(),
        healthy.cluster(brokers={}, leftovers=SILENT),
        healthy.cluster(membership=Membership(None, {}, {})),
        healthy.cluster(healing=healthy.healing(status={"auditor": None})),
    ]
    found: dict[str, list[str]] = {}
    for seen in views:
        for finding in diagnose(seen):
            for command in (finding.command, finding.look_first):
                if command is not None:
                    found.setdefault(finding.kind, []).append(command)
    return found


def test_each_kind_is_found_and_names_a_command_that_exists() -> None:
    """What a reader fills in is replaced by something valid."""
    named = commands()
    assert set(FindingKind) == named.keys()
    del named[FindingKind.CLOCK_SKEW]  # a command of the machine: nothing of ours sets a clock
    *_, looked = named[FindingKind.CERTIFICATE_ENDING]  # nor shows a certificate
    named[FindingKind.CERTIFICATE_ENDING].remove(looked)
    assert looked.startswith("openssl x509 ")
    values = {"URL": "zk://h:1/r", "OFFSET": "1", "BYTES": "1", "TOPIC": "ns/t", "PARTITION": "0"}
    values |= {"DIR": "data", "SUBSCRIPTION": "s"}
    root = get_command(application())
    for kind, lines in named.items():
        for line in lines:
            words = shlex.split(re.sub("|".join(values), lambda m: values[m[0]], line))
            assert words[0] == "fencelog", kind
            parsed(root, words[1:])


def parsed(command: Any, words: list[str]) -> None:
    """Parse a command line as the program does; nothing is run. Raises TyperException."""
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    command.make_context("fencelog", words)
