"""Findings about certificates that end soon."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.api.admin.doctor.certificates_core import certificate_findings
from fencelog.api.admin.doctor.findings import FindingKind, Severity
from fencelog.api.admin.doctor.observations import NotAnswered
from fencelog.ledgers.metastore.zookeeper_tls import Certificate, CertificateRole
from tests.api.admin.doctor import healthy

HOUR_US = 3_600_000_000
SILENT = NotAnswered("no answer within 3 s")


def ending(in_us: int, role: CertificateRole = CertificateRole.OWN) -> Certificate:
    return Certificate(role, "/tls/its own.crt", healthy.NOW_US + in_us)


def test_nothing_is_said_about_what_is_unknown() -> None:
    seen = healthy.cluster(brokers=SILENT, bookies={"b1": SILENT})
    assert list(certificate_findings(seen)) == []


@pytest.mark.parametrize(
    ("in_us", "severity", "when"),
    [
        (30 * healthy.DAY_US + 1, None, ""),
        (30 * healthy.DAY_US, Severity.NOTICE, "ends in 30 days"),
        (7 * healthy.DAY_US + 1, Severity.NOTICE, "ends in 7 days"),
        (7 * healthy.DAY_US, Severity.WARNING, "ends in 7 days"),
        (30 * HOUR_US, Severity.WARNING, "ends in 30.0 hours"),
        (24 * HOUR_US, Severity.CRITICAL, "ends in 24.0 hours"),
        (0, Severity.CRITICAL, "has ended"),
    ],
)
def test_it_is_the_more_urgent_the_sooner_it_ends(
    in_us: int, severity: Severity | None, when: str
) -> None:
    broker = replace(healthy.broker(), certificates=[ending(in_us)])
    found = certificate_findings(healthy.cluster(brokers={"r1": broker}))
    if severity is None:
        assert list(found) == []
        return
    finding = healthy.only(found, FindingKind.CERTIFICATE_ENDING, severity)
    since, by = ("since then", "Now") if in_us == 0 else ("then", "Before")
    assert finding.summary == (
        f"the certificate in /tls/its own.crt, which broker r1 shows to ZooKeeper, {when}: {since} "
        f"broker r1 cannot connect to ZooKeeper again. {by}, put another one there, and start what "
        "uses it again, one process after the other"
    )
    assert finding.subject == "/tls/its own.crt"
    assert finding.look_first == "openssl x509 -noout -subject -enddate -in '/tls/its own.crt'"
    assert finding.command == "fencelog broker --metadata URL --id r1"


def test_one_that_many_need_is_found_once() -> None:
    authority = ending(HOUR_US, CertificateRole.AUTHORITY)
    brokers = {name: replace(healthy.broker(), certificates=[authority]) for name in ("r1", "r2")}
    bookies = {"b1": replace(healthy.bookie(), certificates=[authority]), "b2": healthy.bookie()}
    found = healthy.only(
        certificate_findings(healthy.cluster(brokers=brokers, bookies=bookies)),
        FindingKind.CERTIFICATE_ENDING,
        Severity.CRITICAL,
    )
    assert found.summary.startswith("the last certificate in /tls/its own.crt, which says whom")
    assert "3 processes, bookie b1 first, cannot connect" in found.summary
    assert found.command == "fencelog bookie --metadata URL --data DIR --id b1"
    assert found.details == {
        "role": "authority",
        "ends_us": authority.ends_us,
        "processes": ["bookie b1", "broker r1", "broker r2"],
        "process_count": 3,
    }


def test_one_that_many_show_is_found_once() -> None:
    brokers = {
        name: replace(healthy.broker(), certificates=[ending(HOUR_US)]) for name in ("r1", "r2")
    }
    (found,) = certificate_findings(healthy.cluster(brokers=brokers))
    assert "which 2 processes, broker r1 first, show to ZooKeeper, ends" in found.summary


def test_a_server_needs_another_one_and_no_process_of_ours_a_restart() -> None:
    server = Certificate(CertificateRole.SERVER, "zk1:2281", healthy.NOW_US + HOUR_US)
    bookies = {"b1": replace(healthy.bookie(), certificates=[server])}
    found = healthy.only(
        certificate_findings(healthy.cluster(bookies=bookies)),
        FindingKind.CERTIFICATE_ENDING,
        Severity.CRITICAL,
    )
    assert found.summary.startswith("the certificate of ZooKeeper at zk1:2281 ends in 1.0 hours")
    assert found.summary.endswith("give that server another one")
    assert found.command == "openssl s_client -connect zk1:2281 -showcerts"
    assert found.look_first is None
