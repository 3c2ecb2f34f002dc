"""The first sightings of findings."""

from __future__ import annotations

from fencelog.api.admin.doctor.findings import Finding, FindingKind, Severity
from fencelog.api.admin.doctor.limits import FORGOTTEN_MS
from fencelog.api.admin.doctor.sightings import Sightings

LONG_US = FORGOTTEN_MS * 1000 + 1


def finding(kind: FindingKind = FindingKind.CLOCK_SKEW, **details: str) -> Finding:
    return Finding(kind, Severity.WARNING, "b1", "", details=details)


def seen(sightings: Sightings, now_us: int, *findings: Finding, scanned: bool = True) -> list[int]:
    dated = sightings.dated(findings, now_us, scanned=scanned)
    return [each.seen_since_us for each in dated if each.seen_since_us is not None]


def test_a_finding_keeps_its_first_sighting_however_rarely_it_is_looked_for() -> None:
    sightings = Sightings()
    assert seen(sightings, 5, finding()) == [5]
    assert seen(sightings, 9, finding(), finding(broker_id="r1")) == [5, 9]
    assert seen(sightings, 9 + LONG_US, finding()) == [5]


def test_what_is_not_found_for_a_while_is_forgotten() -> None:
    """What is missing once may not have been answered."""
    sightings = Sightings()
    assert seen(sightings, 5, finding()) == [5]
    assert seen(sightings, 6) == []
    assert seen(sightings, 7, finding()) == [5]
    assert seen(sightings, 8 + LONG_US) == []
    assert seen(sightings, 9 + LONG_US, finding()) == [9 + LONG_US]


def test_what_was_not_looked_for_is_not_forgotten() -> None:
    sightings = Sightings()
    orphaned = finding(FindingKind.ORPHANED)
    assert seen(sightings, 5, orphaned) == [5]
    assert seen(sightings, 6 + LONG_US, scanned=False) == []
    assert seen(sightings, 7 + LONG_US, orphaned) == [5]
    assert seen(sightings, 8 + 2 * LONG_US) == []
    assert seen(sightings, 9 + 2 * LONG_US, orphaned) == [9 + 2 * LONG_US]
