"""The diagnosis: findings from observations. Pure.

What could not be asked is a finding like any other: unknown is not healthy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from fencelog.api.admin.doctor.bookies_core import bookie_findings
from fencelog.api.admin.doctor.brokers_core import broker_findings
from fencelog.api.admin.doctor.certificates_core import certificate_findings
from fencelog.api.admin.doctor.findings import Finding, FindingKind, Severity
from fencelog.api.admin.doctor.ledgers_core import ledger_findings
from fencelog.api.admin.doctor.limits import CLOCK_SKEW_MS, MAX_SHOWN
from fencelog.api.admin.doctor.observations import ClockOffset, NotAnswered, Observations


def diagnose(seen: Observations) -> list[Finding]:
    """Return all findings, the worst first, and the oldest of those."""
    found = [
        *_not_answered(seen),
        *_no_instance(seen),
        *broker_findings(seen),
        *bookie_findings(seen),
        *ledger_findings(seen),
        *_clocks(seen),
        *certificate_findings(seen),
    ]
    return sorted(found, key=_rank)


def worst(findings: Sequence[Finding]) -> Severity | None:
    """Return the severity of the worst finding; None: there is none."""
    return max((finding.severity for finding in findings), default=None)


def _rank(finding: Finding) -> tuple[int, int, str, str]:
    since_us = finding.since_us if finding.since_us is not None else 2**63
    return -finding.severity, since_us, finding.kind, finding.subject


def _not_answered(seen: Observations) -> Iterator[Finding]:
    """Yield what could not be asked; processes that do not answer have findings of their own."""
    parts = {
        "registrations and cookies of bookies": seen.membership,
        "the brokers": seen.brokers,
        "the state of self-healing, and the ledgers that lack copies": seen.healing,
        "the settings of topics": seen.topics,
        "ledgers that belong to nothing, or are not sealed": seen.leftovers,
    }
    for what, part in parts.items():
        if isinstance(part, NotAnswered):
            yield Finding(
                FindingKind.NOT_ANSWERED,
                Severity.WARNING,
                "metadata",
                f"not known: {what}: {part.why}",
                "fencelog doctor",
            )


def _no_instance(seen: Observations) -> Iterator[Finding]:
    """Yield that the metadata store belongs to no cluster. One that bookies have used must not be
    initialised: they would never start over another instance."""
    members = seen.membership
    if isinstance(members, NotAnswered) or members.instance is not None:
        return
    used_by = sorted({*members.cookies, *members.registered})
    if used_by:
        named = ", ".join(used_by[:MAX_SHOWN])
        summary = (
            "the metadata store has lost the id of its cluster, and bookies have used it: "
            f"{named}. None of them can start again. Restore it from a backup "
            "(k8s/restore_zookeeper.sh)"
        )
    else:
        summary = (
            "the metadata store belongs to no cluster yet, so no bookie starts: initialise it "
            "once, if it is that of a new cluster; if bookies have used it before, it was emptied: "
            "restore it; else name the right one, with its root"
        )
    yield Finding(
        FindingKind.NO_INSTANCE,
        Severity.CRITICAL,
        "metadata",
        summary,
        None if used_by else "fencelog metadata init --metadata URL",
        details={"bookies": used_by[:MAX_SHOWN]},
    )


def _clocks(seen: Observations) -> Iterator[Finding]:
    """Yield the processes whose clocks differ from most others by more than an answer takes."""
    clocks: dict[str, ClockOffset] = {"this process": ClockOffset(0, 0)}
    brokers = {} if isinstance(seen.brokers, NotAnswered) else seen.brokers
    for kind, states in (("broker", brokers), ("bookie", seen.bookies)):
        for name, state in states.items():
            if not isinstance(state, NotAnswered):
                clocks[f"{kind} {name}"] = state.clock
    middle_us = median(clock.offset_us for clock in clocks.values())
    for name, clock in sorted(clocks.items()):
        off_us = clock.offset_us - middle_us
        if abs(off_us) - clock.error_us > CLOCK_SKEW_MS * 1000:
            way = "ahead" if off_us > 0 else "behind"
            yield Finding(
                FindingKind.CLOCK_SKEW,
                Severity.WARNING,
                name,
                f"the clock of {name} is {abs(off_us) / 1e6:,.1f} s {way} of the others: publish "
                "times and retention go by it. Have its machine synchronize it (NTP)",
                "timedatectl set-ntp true",
                details={"offset_us": round(off_us), "error_us": clock.error_us},
            )
