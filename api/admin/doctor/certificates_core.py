"""Findings about certificates that end soon, on which connections to ZooKeeper depend. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from fencelog.api.admin.doctor.findings import START_BOOKIE, Finding, FindingKind, Severity
from fencelog.api.admin.doctor.limits import (
    CERTIFICATE_CRITICAL_S,
    CERTIFICATE_NOTICE_S,
    CERTIFICATE_WARNING_S,
    MAX_SHOWN,
)
from fencelog.api.admin.doctor.observations import NotAnswered, Observations
from fencelog.ledgers.metastore.zookeeper_tls import Certificate, CertificateRole

_US_PER_S = 1_000_000

_START = {"broker": "fencelog broker --metadata URL", "bookie": START_BOOKIE}
"""The commands that start a process again, which reads its files anew."""


def certificate_findings(seen: Observations) -> Iterator[Finding]:
    """Yield the certificates that end soon, each once for all processes that depend on it."""
    needed: dict[Certificate, list[tuple[str, str]]] = {}
    for process, certificates in _by_process(seen).items():
        for certificate in certificates:
            needed.setdefault(certificate, []).append(process)
    for certificate, processes in sorted(needed.items()):
        left_s = (certificate.ends_us - seen.now_us) / _US_PER_S
        if left_s <= CERTIFICATE_NOTICE_S:
            yield _ending(certificate, sorted(processes), left_s)


def _by_process(seen: Observations) -> Mapping[tuple[str, str], Sequence[Certificate]]:
    """Return the certificates of each process that has answered, by its kind and id."""
    brokers = {} if isinstance(seen.brokers, NotAnswered) else seen.brokers
    return {
        (kind, name): state.certificates
        for kind, states in (("broker", brokers), ("bookie", seen.bookies))
        for name, state in states.items()
        if not isinstance(state, NotAnswered)
    }


def _ending(
    certificate: Certificate, processes: Sequence[tuple[str, str]], left_s: float
) -> Finding:
    severity = Severity.NOTICE
    if left_s <= CERTIFICATE_WARNING_S:
        severity = Severity.CRITICAL if left_s <= CERTIFICATE_CRITICAL_S else Severity.WARNING
    role, name = certificate.role, certificate.name
    (kind, first), count = processes[0], len(processes)
    who = f"{kind} {first}" if count == 1 else f"{count:,} processes, {kind} {first} first,"
    shows = "shows" if count == 1 else "show"
    what = {
        CertificateRole.OWN: f"the certificate in {name}, which {who} {shows} to ZooKeeper,",
        CertificateRole.AUTHORITY: f"the last certificate in {name}, which says whom to trust,",
        CertificateRole.SERVER: f"the certificate of ZooKeeper at {name}",
    }[role]
    if role is CertificateRole.SERVER:
        look, command = None, f"openssl s_client -connect {shlex.quote(name)} -showcerts"
        then = "give that server another one"
    else:
        look = f"openssl x509 -noout -subject -enddate -in {shlex.quote(name)}"
        command = f"{_START[kind]} --id {first}"
        then = "put another one there, and start what uses it again, one process after the other"
    since, by = ("then", "Before") if left_s > 0 else ("since then", "Now")
    return Finding(
        FindingKind.CERTIFICATE_ENDING,
        severity,
        name,
        f"{what} {_when(left_s)}: {since} {who} cannot connect to ZooKeeper again. {by}, {then}",
        command,
        details={
            "role": role.value,
            "ends_us": certificate.ends_us,
            "processes": [f"{kind} {name}" for kind, name in processes[:MAX_SHOWN]],
            "process_count": count,
        },
        look_first=look,
    )


def _when(left_s: float) -> str:
    if left_s <= 0:
        return "has ended"
    hours = left_s / 3600
    return f"ends in {hours / 24:.0f} days" if hours > 48 else f"ends in {hours:.1f} hours"
