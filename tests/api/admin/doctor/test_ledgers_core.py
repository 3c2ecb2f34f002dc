"""Findings about ledgers, their copies, and self-healing."""

from __future__ import annotations

from typing import Any

import pytest

from fencelog.api.admin.doctor.findings import FindingKind, Severity
from fencelog.api.admin.doctor.ledgers_core import ledger_findings
from fencelog.api.admin.doctor.limits import CHECK_OVERDUE_MS
from fencelog.api.admin.doctor.observations import Leftovers, NotAnswered, UnownedPartition
from fencelog.bookie.repair.core import MissingReason
from tests.api.admin.doctor import healthy

SILENT = NotAnswered("away")


def findings_of(**healing: Any) -> Any:
    return ledger_findings(healthy.cluster(healing=healthy.healing(**healing)))


def test_nothing_is_said_about_what_is_unknown() -> None:
    assert list(ledger_findings(healthy.cluster(healing=SILENT, leftovers=SILENT))) == []


def test_healing_that_is_off() -> None:
    found = findings_of(status={"is_enabled": False})
    healthy.only(found, FindingKind.HEALING_OFF, Severity.WARNING)


def test_no_auditor() -> None:
    healthy.only(findings_of(status={"auditor": None}), FindingKind.NO_AUDITOR, Severity.WARNING)


def test_ledgers_that_lack_copies() -> None:
    marks = [
        healthy.MARK | {"ledger_id": id_, "since_us": 50 - id_, "missing": {"b1": [], "b2": []}}
        for id_ in range(30)
    ]
    found = healthy.only(
        findings_of(marks=marks, marked=1234), FindingKind.UNDER_REPLICATED, Severity.WARNING
    )
    assert "1,234 ledgers lack copies" in found.summary
    assert "b1 (30), b2 (30)" in found.summary
    assert found.since_us == 21
    assert found.details["ledgers"] == list(range(20))
    assert found.details["ledger_count"] == 1234


def test_one_ledger_lacks_copies() -> None:
    (found,) = findings_of(marks=[healthy.MARK], marked=1)
    assert "1 ledger lacks copies" in found.summary


@pytest.mark.parametrize(
    ("why", "attempts"),
    [(MissingReason.LOST, 1), (MissingReason.IN_LIMBO, 1), (MissingReason.UNREACHED, 2)],
)
@pytest.mark.parametrize(("count", "words"), [(1, "ledger 0 has"), (2, "ledgers 0, 1 have")])
def test_entries_without_a_copy(count: int, words: str, why: MissingReason, attempts: int) -> None:
    lost = {"why": why.value, "entries": [[0, 3]], "entry_count": 4, "attempts": attempts}
    other = {"why": MissingReason.UNREACHED.value, "entries": [], "entry_count": 0, "attempts": 1}
    marks = [healthy.MARK | {"ledger_id": n, "waiting": [other, lost]} for n in range(count)]
    marks.append(healthy.MARK | {"ledger_id": 9, "waiting": [other]})
    found, second = findings_of(marks=marks, marked=count + 1)
    assert (found.kind, found.severity) == (FindingKind.UNRECOVERABLE, Severity.CRITICAL)
    assert words in found.summary
    assert "missing: b1." in found.summary
    assert found.since_us == 5
    what = {"missing": ["b1"], "entries": [[0, 3]], "entry_count": 4}
    assert found.details["ledgers"] == {str(n): what for n in range(count)}
    assert second.kind is FindingKind.UNDER_REPLICATED


@pytest.mark.parametrize(
    ("kind", "severity"),
    [
        ("no_copy", Severity.CRITICAL),
        ("below_ack_quorum", Severity.CRITICAL),
        ("below_write_quorum", Severity.WARNING),
        ("placement", Severity.WARNING),
    ],
)
def test_violations_of_the_last_check(kind: str, severity: Severity) -> None:
    result = {"finished_us": healthy.NOW_US - 1, "counts": {kind: 2, "other": 0}}
    found = healthy.only(
        findings_of(checks={"results": {"cluster": result}}),
        FindingKind.CHECK_VIOLATIONS,
        severity,
    )
    assert f"{kind} 2" in found.summary
    assert found.since_us == healthy.NOW_US - 1
    assert found.details == {"counts": {kind: 2}, "violations": []}


@pytest.mark.parametrize(
    ("names", "words"),
    [(["ledgers"], "last check of ledgers failed"), (["ledgers", "cluster"], "ledgers, cluster")],
)
def test_a_check_that_has_failed(names: list[str], words: str) -> None:
    """Its result has an end and an error, and no counts."""
    ends = {name: healthy.NOW_US - n for n, name in enumerate(names, 1)}
    results = {name: {"finished_us": at, "error": f"no {name}"} for name, at in ends.items()}
    results["placement"] = {"finished_us": 1}
    found = healthy.only(
        findings_of(checks={"results": results}), FindingKind.CHECK_FAILED, Severity.WARNING
    )
    assert words in found.summary
    assert found.summary.endswith("; ".join(f"no {name}" for name in names))
    assert found.command == f"fencelog ledger audit {' '.join(names)}"
    assert found.since_us == min(ends.values())
    assert found.details == {"errors": {name: f"no {name}" for name in names}}


@pytest.mark.parametrize("late_us", [0, 1])
@pytest.mark.parametrize("was_made", [False, True])
def test_a_check_that_is_overdue(late_us: int, was_made: bool) -> None:
    last_us = healthy.NOW_US - CHECK_OVERDUE_MS * 1000 - late_us
    since_us = 1 if was_made else last_us
    results = {"cluster": {"finished_us": last_us}} if was_made else {}
    findings = findings_of(
        status={"auditor": {"process_id": "h", "since_us": since_us}}, checks={"results": results}
    )
    if late_us:
        found = healthy.only(findings, FindingKind.CHECK_OVERDUE, Severity.WARNING)
        assert found.since_us == last_us
    else:
        assert list(findings) == []


def test_a_check_that_fails_again_and_again_is_overdue() -> None:
    last_us = healthy.NOW_US - CHECK_OVERDUE_MS * 1000 - 1
    failed = {"finished_us": healthy.NOW_US, "error": "why", "completed_us": last_us}
    findings = findings_of(
        status={"auditor": {"process_id": "h", "since_us": 1}},
        checks={"results": {"cluster": failed}},
    )
    since = {finding.kind: finding.since_us for finding in findings}
    assert since == {
        FindingKind.CHECK_FAILED: healthy.NOW_US,
        FindingKind.CHECK_OVERDUE: last_us,
    }


@pytest.mark.parametrize(
    ("ledgers", "topic_ids", "words"),
    [
        ([4, 5], [], "2 ledgers belong to nothing"),
        ([], ["x"], "nodes of 1 deleted topics belong"),
        ([4], ["x"], "1 ledgers and nodes of 1 deleted topics belong"),
    ],
)
def test_orphans(ledgers: list[int], topic_ids: list[str], words: str) -> None:
    seen = healthy.cluster(leftovers=Leftovers(ledgers, topic_ids, []))
    found = healthy.only(ledger_findings(seen), FindingKind.ORPHANED, Severity.NOTICE)
    assert words in found.summary
    assert found.details == {"ledgers": ledgers, "topic_ids": topic_ids}


@pytest.mark.parametrize(("count", "more"), [(1, False), (3, True)])
def test_unsealed_ledgers(count: int, more: bool) -> None:
    unsealed = [UnownedPartition("ns/t", n, (n,), 10 - n) for n in range(count)]
    seen = healthy.cluster(leftovers=Leftovers([], [], unsealed))
    found = healthy.only(ledger_findings(seen), FindingKind.LEDGER_UNSEALED, Severity.NOTICE)
    assert ("and 2 others" in found.summary) is more
    assert found.since_us == 11 - count
    assert len(found.details["partitions"]) == count
