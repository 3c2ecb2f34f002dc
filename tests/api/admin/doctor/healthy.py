"""A cluster in which nothing is wrong, as a doctor observes it; tests change one thing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fencelog.api.admin.doctor.findings import Finding, FindingKind, Severity
from fencelog.api.admin.doctor.observations import (
    BookieState,
    BrokerState,
    ClockOffset,
    HealingState,
    Leftovers,
    Membership,
    Observations,
    TopicReplication,
)
from fencelog.bookie.identity.cookies import Cookie
from fencelog.broker.partition.stats.troubles import Troubles
from fencelog.ledgers.rpc.bookie_port import BookieInfo

NOW_US = 1_800_000_000_000_000
DAY_US = 86_400_000_000
EXACT = ClockOffset(0, 0)
BOOKIES = ("b1", "b2", "b3", "b4")
STATUS: dict[str, Any] = {
    "read_only_for": [],
    "read_only_since_us": None,
    "ledgers_in_limbo": 0,
    "free_bytes": 10**12,
    "integrity": {"damaged_runs": 0, "ledgers_lost": 0, "ledgers_wholly_in_limbo": 0},
    "disk": {"left_bytes": 10**12, "full_in_s": None},
}
MARK: dict[str, Any] = {"ledger_id": 7, "since_us": 5, "missing": {"b1": ["lost"]}, "waiting": []}


def cookie(bookie_id: str, **changed: Any) -> Cookie:
    return replace(Cookie(bookie_id, "cluster", "incarnation", "directory"), **changed)


def info(bookie_id: str, **changed: Any) -> BookieInfo:
    return BookieInfo(bookie_id, "incarnation", **changed)


def bookie(**changed: Any) -> BookieState:
    return BookieState(EXACT, STATUS | changed)


def broker(**troubles: Any) -> BrokerState:
    return BrokerState(EXACT, False, Troubles(**troubles))


def membership(cookies: Iterable[str] = BOOKIES, registered: Iterable[str] = BOOKIES) -> Membership:
    return Membership("cluster", {b: cookie(b) for b in cookies}, {b: info(b) for b in registered})


def healing(**changed: Any) -> HealingState:
    """The state of self-healing; ``status`` is added to a healthy one."""
    status = {
        "is_enabled": True,
        "auditor": {"process_id": "h1", "since_us": NOW_US - DAY_US},
        "processes": [{"auditor": {"absent_bookies": {}, "lost_bookies": []}}, {}],
    }
    state = HealingState(status, {"results": {}, "requested": []}, [], 0, [])
    return replace(state, **{**changed, "status": status | changed.get("status", {})})


def topic(name: str = "ns/t", ensemble: int = 3, acks: int = 2) -> TopicReplication:
    return TopicReplication(name, ensemble, ensemble, acks, created_us=9)


def cluster(**changed: Any) -> Observations:
    seen = Observations(
        NOW_US,
        membership(),
        healing(),
        [topic()],
        {"r1": broker(), "r2": broker()},
        {b: bookie() for b in BOOKIES},
        Leftovers([], [], []),
    )
    return replace(seen, **changed)


def only(findings: Iterable[Finding], kind: FindingKind, severity: Severity) -> Finding:
    """Return the only finding, which is of this kind."""
    (found,) = findings
    assert (found.kind, found.severity) == (kind, severity)
    return found
