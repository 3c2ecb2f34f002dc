"""Findings about bookies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencelog.api.admin.doctor.bookies_core import bookie_findings
from fencelog.api.admin.doctor.findings import FindingKind, Severity
from fencelog.api.admin.doctor.observations import NotAnswered
from tests.api.admin.doctor import healthy

SILENT = NotAnswered("no answer within 3 s")


def test_nothing_is_said_about_unknown_members() -> None:
    assert list(bookie_findings(healthy.cluster(membership=SILENT))) == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_absent_bookie_is_said_with_its_time(is_lost: bool) -> None:
    auditor = {"absent_bookies": {"b4": 90.0}, "lost_bookies": ["b4"] * is_lost}
    seen = healthy.cluster(
        membership=healthy.membership(registered=["b1", "b2", "b3"]),
        healing=healthy.healing(status={"processes": [{}, {"auditor": auditor}]}),
    )
    seen = replace(seen, bookies={b: healthy.bookie() for b in ("b1", "b2", "b3")})
    found = healthy.only(bookie_findings(seen), FindingKind.BOOKIE_ABSENT, Severity.WARNING)
    assert found.subject == "b4"
    assert found.since_us == healthy.NOW_US - 90_000_000
    assert ("counts as lost, and" in found.summary) is is_lost


@pytest.mark.parametrize("healing", [SILENT, healthy.healing(status={"processes": []})])
def test_without_an_auditor_nobody_knows_since_when(healing: Any) -> None:
    members = healthy.membership([*healthy.BOOKIES, "b5"])
    seen = healthy.cluster(membership=members, healing=healing)
    found = healthy.only(bookie_findings(seen), FindingKind.BOOKIE_ABSENT, Severity.WARNING)
    assert (found.subject, found.since_us) == ("b5", None)


def test_a_registered_bookie_that_does_not_answer() -> None:
    bookies = {b: healthy.bookie() for b in healthy.BOOKIES} | {"b2": SILENT}
    found = healthy.only(
        bookie_findings(healthy.cluster(bookies=bookies)),
        FindingKind.BOOKIE_UNREACHABLE,
        Severity.WARNING,
    )
    assert found.subject == "b2"
    assert SILENT.why in found.summary


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        (None, FindingKind.COOKIE_UNREADABLE),
        (healthy.cookie("b1", instance="other"), FindingKind.COOKIE_FOREIGN),
        (healthy.cookie("b1", incarnation="other"), FindingKind.COOKIE_STALE),
    ],
)
def test_a_cookie_that_does_not_fit(changed: Any, kind: FindingKind) -> None:
    members = healthy.membership()
    members = replace(members, cookies={**members.cookies, "b1": changed})
    seen = healthy.cluster(membership=members)
    found = healthy.only(bookie_findings(seen), kind, Severity.WARNING)
    assert found.subject == "b1"


def test_a_bookie_without_a_cookie() -> None:
    seen = healthy.cluster(membership=healthy.membership(["b1", "b2", "b3"]))
    found = healthy.only(bookie_findings(seen), FindingKind.COOKIE_MISSING, Severity.WARNING)
    assert found.subject == "b4"


def test_a_registration_that_is_not_valid() -> None:
    members = healthy.membership()
    members = replace(members, registered={**members.registered, "b1": None})
    seen = healthy.cluster(membership=members)
    found = healthy.only(bookie_findings(seen), FindingKind.BOOKIE_UNREACHABLE, Severity.WARNING)
    assert "not valid" in found.summary


def findings_of(**status: Any) -> Any:
    bookies = {b: healthy.bookie() for b in healthy.BOOKIES} | {"b1": healthy.bookie(**status)}
    return bookie_findings(healthy.cluster(bookies=bookies))


@pytest.mark.parametrize(
    ("reasons", "words", "command"),
    [
        (["operator"], "an operator", "fencelog bookies read-only b1 off"),
        (["disk"], "its disk is full", "fencelog topic trim"),
        (["disk", "operator"], "its disk is full", "fencelog topic trim"),
    ],
)
def test_a_read_only_bookie(reasons: list[str], words: str, command: str) -> None:
    found = healthy.only(
        findings_of(read_only_for=reasons, read_only_since_us=8),
        FindingKind.BOOKIE_READ_ONLY,
        Severity.WARNING,
    )
    assert words in found.summary
    assert found.since_us == 8
    assert (found.command or "").startswith(command)


@pytest.mark.parametrize(("phase", "words"), [("drained", "can be stopped"), ("draining", "is dr")])
def test_a_bookie_that_leaves_is_read_only_for_that(phase: str, words: str) -> None:
    job = {"bookie_id": "b1", "phase": phase, "since_us": 3}
    seen = healthy.cluster(healing=healthy.healing(leaving=[job]))
    bookies = {**seen.bookies, "b1": healthy.bookie(read_only_for=["operator"])}
    found = healthy.only(
        bookie_findings(replace(seen, bookies=bookies)),
        FindingKind.BOOKIE_LEAVING,
        Severity.NOTICE,
    )
    assert words in found.summary
    assert found.since_us == 3


@pytest.mark.parametrize(
    ("repair", "severity"),
    [
        ({}, Severity.WARNING),
        ({"ledgers_lost": 1}, Severity.CRITICAL),
        ({"ledgers_wholly_in_limbo": 1}, Severity.CRITICAL),
    ],
)
def test_ledgers_in_limbo(repair: dict[str, int], severity: Severity) -> None:
    found = healthy.only(
        findings_of(ledgers_in_limbo=12, integrity=repair), FindingKind.BOOKIE_IN_LIMBO, severity
    )
    assert "12 ledgers" in found.summary
    assert ("no other bookie has" in found.summary) is (severity is Severity.CRITICAL)


def test_damaged_runs() -> None:
    found = healthy.only(
        findings_of(integrity={"damaged_runs": 1200}), FindingKind.BOOKIE_DAMAGED, Severity.WARNING
    )
    assert "1,200 damaged runs" in found.summary


@pytest.mark.parametrize(
    ("full_in_s", "severity", "words"),
    [
        (3600, Severity.CRITICAL, "1.0 hours"),
        (12 * 3600, Severity.WARNING, "12.0 hours"),
        (5 * 86_400, Severity.NOTICE, "5 days"),
        (8 * 86_400, None, ""),
    ],
)
def test_a_disk_that_fills_up(full_in_s: int, severity: Severity | None, words: str) -> None:
    findings = findings_of(disk={"left_bytes": 1, "full_in_s": full_in_s})
    if severity is None:
        assert list(findings) == []
    else:
        found = healthy.only(findings, FindingKind.DISK_FILLING, severity)
        assert words in found.summary


def test_a_full_disk_does_not_fill_up() -> None:
    disk = {"left_bytes": 0, "full_in_s": 0}
    found = findings_of(read_only_for=["disk"], disk=disk)
    healthy.only(found, FindingKind.BOOKIE_READ_ONLY, Severity.WARNING)
