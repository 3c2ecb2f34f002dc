"""Findings about bookies: away, silent, read-only, in limbo, filling up, of another cluster.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fencelog.api.admin.doctor.findings import START_BOOKIE, Finding, FindingKind, Severity
from fencelog.api.admin.doctor.limits import (
    FILLING_CRITICAL_S,
    FILLING_NOTICE_S,
    FILLING_WARNING_S,
)
from fencelog.api.admin.doctor.observations import (
    BookieState,
    HealingState,
    Membership,
    NotAnswered,
    Observations,
)
from fencelog.bookie.disk.space import BY_DISK

_US_PER_S = 1_000_000


def bookie_findings(seen: Observations) -> Iterator[Finding]:
    """Yield what is wrong with bookies."""
    members = seen.membership
    if isinstance(members, NotAnswered):
        return
    yield from _absences(members, seen)
    yield from _cookies(members)
    leaving = _leaving(seen.healing)
    for job in leaving.values():
        yield _left(job)
    for bookie_id, state in sorted(seen.bookies.items()):
        if isinstance(state, NotAnswered):
            yield Finding(
                FindingKind.BOOKIE_UNREACHABLE,
                Severity.WARNING,
                bookie_id,
                f"bookie {bookie_id} is registered, and does not answer: {state.why}. Start it "
                "again",
                f"{START_BOOKIE} --id {bookie_id}",
                look_first=f"fencelog bookies status {bookie_id} --metadata URL",
            )
        else:
            yield from _state(bookie_id, state, seen, is_leaving=bookie_id in leaving)


def _absences(members: Membership, seen: Observations) -> Iterator[Finding]:
    """Yield the bookies of the cluster that are not registered."""
    absent_s, lost = _absent(seen.healing)
    for bookie_id in sorted(members.cookies.keys() - members.registered.keys()):
        for_s = absent_s.get(bookie_id)
        is_lost = bookie_id in lost
        then = (
            "it counts as lost, and its copies are made elsewhere"
            if is_lost
            else "its copies are missing until it is back, or counts as lost"
        )
        yield Finding(
            FindingKind.BOOKIE_ABSENT,
            Severity.WARNING,
            bookie_id,
            f"bookie {bookie_id} belongs to the cluster and is not running: {then}",
            f"fencelog bookie recover {bookie_id}",
            None if for_s is None else seen.now_us - round(for_s * _US_PER_S),
            {"is_lost": is_lost},
            look_first="fencelog bookies list --metadata URL",
        )


def _absent(healing: HealingState | NotAnswered) -> tuple[Mapping[str, float], frozenset[str]]:
    """Return since how many seconds the auditor misses bookies, and those that it gave up."""
    if not isinstance(healing, NotAnswered):
        for process in healing.status["processes"]:
            if (auditor := process.get("auditor")) is not None:
                return auditor["absent_bookies"], frozenset(auditor["lost_bookies"])
    return {}, frozenset()


def _leaving(healing: HealingState | NotAnswered) -> dict[str, Mapping[str, Any]]:
    """Return the decommissions in progress by their bookies."""
    if isinstance(healing, NotAnswered):
        return {}
    return {job["bookie_id"]: job for job in healing.leaving}


def _left(job: Mapping[str, Any]) -> Finding:
    bookie_id, phase = job["bookie_id"], job["phase"]
    told = {"drained": "it can be stopped", "cancelling": "no, that is being cancelled"}
    what = told.get(phase, f"it is {phase}")
    return Finding(
        FindingKind.BOOKIE_LEAVING,
        Severity.NOTICE,
        bookie_id,
        f"bookie {bookie_id} is being taken out of the cluster: {what}",
        f"fencelog bookie decommission {bookie_id} --status",
        job["since_us"],
        {"phase": phase},
    )


# -- cookies --------------------------------------------------------------------------------------


def _cookies(members: Membership) -> Iterator[Finding]:
    """Yield where cookies and registrations do not fit each other, or the cluster."""
    for bookie_id, cookie in sorted(members.cookies.items()):
        show = f"fencelog cookie show {bookie_id} --metadata URL"
        if cookie is None:
            yield Finding(
                FindingKind.COOKIE_UNREADABLE,
                Severity.WARNING,
                bookie_id,
                f"the cookie of bookie {bookie_id} in the metadata store is not valid: the bookie "
                "cannot start again",
                show,
            )
        elif members.instance is not None and cookie.instance != members.instance:
            yield Finding(
                FindingKind.COOKIE_FOREIGN,
                Severity.WARNING,
                bookie_id,
                f"the cookie of bookie {bookie_id} is of cluster {cookie.instance}, and this is "
                f"{members.instance}: the bookie cannot start again",
                show,
                details={"instance": cookie.instance},
            )
    for bookie_id, info in sorted(members.registered.items()):
        cookie = members.cookies.get(bookie_id)
        if bookie_id not in members.cookies:
            yield Finding(
                FindingKind.COOKIE_MISSING,
                Severity.WARNING,
                bookie_id,
                f"bookie {bookie_id} runs without a cookie: its cookie was deleted, and it cannot "
                "start again with its data",
                "fencelog cookie list --metadata URL",
            )
        elif info is None:
            yield Finding(
                FindingKind.BOOKIE_UNREACHABLE,
                Severity.WARNING,
                bookie_id,
                f"the registration of bookie {bookie_id} is not valid: nobody can reach it. Start "
                "it again",
                f"{START_BOOKIE} --id {bookie_id}",
            )
        elif cookie is not None and info.incarnation != cookie.incarnation:
            yield Finding(
                FindingKind.COOKIE_STALE,
                Severity.WARNING,
                bookie_id,
                f"bookie {bookie_id} runs as incarnation {info.incarnation[:8]}, its cookie says "
                f"{cookie.incarnation[:8]}: two processes have its id, or its cookie was restored",
                f"fencelog cookie show {bookie_id} --metadata URL",
            )


# -- what a bookie says of itself -----------------------------------------------------------------


def _state(
    bookie_id: str, state: BookieState, seen: Observations, *, is_leaving: bool
) -> Iterator[Finding]:
    status = state.status
    reasons = status["read_only_for"]
    if reasons and not is_leaving:
        yield _read_only(bookie_id, status, reasons)
    if status["ledgers_in_limbo"]:
        yield _limbo(bookie_id, status)
    if damaged := status.get("integrity", {}).get("damaged_runs"):
        yield Finding(
            FindingKind.BOOKIE_DAMAGED,
            Severity.WARNING,
            bookie_id,
            f"bookie {bookie_id} has found {damaged:,} damaged runs, which it replaces by copies "
            "of other bookies: look at its disk",
            f"fencelog bookies integrity {bookie_id} --metadata URL",
            details={"damaged_runs": damaged},
            look_first=f"fencelog bookies status {bookie_id} --metadata URL",
        )
    disk = status.get("disk", {})
    if (full_in_s := disk.get("full_in_s")) is not None and BY_DISK not in reasons:
        yield from _filling(bookie_id, full_in_s, disk)


def _read_only(bookie_id: str, status: Mapping[str, Any], reasons: list[str]) -> Finding:
    by_disk = BY_DISK in reasons
    why = "its disk is full" if by_disk else "an operator has said so"
    command = (
        "fencelog topic trim TOPIC PARTITION --before OFFSET"
        if by_disk
        else f"fencelog bookies read-only {bookie_id} off --metadata URL"
    )
    return Finding(
        FindingKind.BOOKIE_READ_ONLY,
        Severity.WARNING,
        bookie_id,
        f"bookie {bookie_id} takes no entries: {why}",
        command,
        status.get("read_only_since_us"),
        {"reasons": reasons, "free_bytes": status["free_bytes"]},
    )


def _limbo(bookie_id: str, status: Mapping[str, Any]) -> Finding:
    ledgers, repair = status["ledgers_in_limbo"], status.get("integrity", {})
    stuck = repair.get("ledgers_lost", 0) + repair.get("ledgers_wholly_in_limbo", 0)
    then = f"; {stuck:,} of them have entries that no other bookie has" if stuck else ""
    return Finding(
        FindingKind.BOOKIE_IN_LIMBO,
        Severity.CRITICAL if stuck else Severity.WARNING,
        bookie_id,
        f"bookie {bookie_id} may have lost entries of {ledgers:,} ledgers, and is copying them "
        f"from others{then}",
        f"fencelog bookies integrity {bookie_id} --metadata URL",
        details={"ledgers": ledgers, "waiting": repair.get("waiting", [])},
    )


def _filling(bookie_id: str, full_in_s: int, disk: Mapping[str, Any]) -> Iterator[Finding]:
    if full_in_s > FILLING_NOTICE_S:
        return
    severity = Severity.NOTICE
    if full_in_s <= FILLING_WARNING_S:
        severity = Severity.CRITICAL if full_in_s <= FILLING_CRITICAL_S else Severity.WARNING
    hours = full_in_s / 3600
    when = f"{hours / 24:.0f} days" if hours > 48 else f"{hours:.1f} hours"
    yield Finding(
        FindingKind.DISK_FILLING,
        severity,
        bookie_id,
        f"the disk of bookie {bookie_id} is full in {when} at the pace of the last hours; then it "
        "takes no entries",
        "fencelog topic update TOPIC --set retention_bytes=BYTES",
        details={"full_in_s": full_in_s, "left_bytes": disk["left_bytes"]},
    )
