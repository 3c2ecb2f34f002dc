"""Findings about ledgers and their copies, and about self-healing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fencelog.api.admin.doctor.findings import START_BOOKIE, Finding, FindingKind, Severity
from fencelog.api.admin.doctor.limits import CHECK_OVERDUE_MS, MAX_SHOWN
from fencelog.api.admin.doctor.observations import (
    HealingState,
    Leftovers,
    NotAnswered,
    Observations,
)
from fencelog.bookie.auditor.audit_store import completed_us
from fencelog.bookie.auditor.check_core import ViolationKind
from fencelog.bookie.repair.core import MissingReason

_LOSSES = {ViolationKind.NO_COPY.value, ViolationKind.BELOW_ACK_QUORUM.value}
"""The violations that one more failure turns into a loss, or that are one."""


_NO_COPY = {reason.value for reason in MissingReason}


def ledger_findings(seen: Observations) -> Iterator[Finding]:
    """Yield what is wrong with ledgers."""
    if not isinstance(seen.healing, NotAnswered):
        yield from _healing(seen.healing)
        yield from _marks(seen.healing)
        yield from _failed_checks(seen.healing)
        yield from _checks(seen.healing, seen.now_us)
    if isinstance(seen.leftovers, Leftovers):
        yield from _leftovers(seen.leftovers)


def _healing(healing: HealingState) -> Iterator[Finding]:
    if not healing.status["is_enabled"]:
        yield Finding(
            FindingKind.HEALING_OFF,
            Severity.WARNING,
            "autorecovery",
            "self-healing is turned off: lost copies are not made again",
            "fencelog autorecovery on",
        )
    if healing.status["auditor"] is None:
        yield Finding(
            FindingKind.NO_AUDITOR,
            Severity.WARNING,
            "autorecovery",
            "no process of self-healing is the auditor: nobody notices lost copies",
            "fencelog autorecovery --metadata URL",
        )


def _marks(healing: HealingState) -> Iterator[Finding]:
    """Yield the ledgers that are marked: those of which entries have no copy for themselves."""
    lost = [mark for mark in healing.marks if _lost_entries(mark)]
    if lost:
        yield _unrecoverable(lost)
    if not healing.marks:
        return
    bookies = Counter(bookie for mark in healing.marks for bookie in mark["missing"])
    names = ", ".join(f"{bookie} ({count:,})" for bookie, count in bookies.most_common(MAX_SHOWN))
    many = f"{healing.marked:,} ledgers lack" if healing.marked > 1 else "1 ledger lacks"
    yield Finding(
        FindingKind.UNDER_REPLICATED,
        Severity.WARNING,
        "ledgers",
        f"{many} copies; missing are those of: {names}",
        "fencelog ledger underreplicated",
        min(mark["since_us"] for mark in healing.marks),
        {
            "ledgers": [mark["ledger_id"] for mark in healing.marks[:MAX_SHOWN]],
            "ledger_count": healing.marked,
            "bookies": dict(bookies.most_common(MAX_SHOWN)),
        },
    )


def _lost_entries(mark: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what workers say of entries that they find nowhere. One that could not ask some
    bookie has to find that again: the bookie may just be starting."""
    return [
        wait
        for wait in mark["waiting"]
        if wait["why"] in _NO_COPY
        and (wait["why"] != MissingReason.UNREACHED.value or wait["attempts"] > 1)
    ]


def _unrecoverable(lost: Sequence[Mapping[str, Any]]) -> Finding:
    ledgers = {
        mark["ledger_id"]: {
            "missing": sorted(mark["missing"]),
            "entries": _lost_entries(mark)[0]["entries"],
            "entry_count": _lost_entries(mark)[0]["entry_count"],
        }
        for mark in lost[:MAX_SHOWN]
    }
    first = lost[0]["ledger_id"]
    many = (
        f"ledgers {', '.join(map(str, ledgers))} have" if len(lost) > 1 else f"ledger {first} has"
    )
    return Finding(
        FindingKind.UNRECOVERABLE,
        Severity.CRITICAL,
        "ledgers",
        f"{many} entries without a copy on any bookie that answers; the bookies that are missing: "
        f"{', '.join(sorted({bookie for mark in lost for bookie in mark['missing']}))}. Bring one "
        "of them back",
        START_BOOKIE,
        min(mark["since_us"] for mark in lost),
        {"ledgers": {str(id_): found for id_, found in ledgers.items()}},
        look_first=f"fencelog ledger check {first} --metadata URL",
    )


def _failed_checks(healing: HealingState) -> Iterator[Finding]:
    """Yield the checks that ended with an error: their results have nothing else."""
    results = healing.checks["results"]
    errors = {name: result["error"] for name, result in results.items() if "error" in result}
    if not errors:
        return
    many = f"checks of {', '.join(errors)}" if len(errors) > 1 else f"check of {next(iter(errors))}"
    yield Finding(
        FindingKind.CHECK_FAILED,
        Severity.WARNING,
        "ledgers",
        f"the last {many} failed, so nothing is known from it: {'; '.join(errors.values())}",
        f"fencelog ledger audit {' '.join(errors)}",
        min(results[name]["finished_us"] for name in errors),
        {"errors": errors},
    )


def _checks(healing: HealingState, now_us: int) -> Iterator[Finding]:
    """Yield what the last complete check has found, and that there was none for long."""
    result = healing.checks["results"].get("cluster", {})
    counts = {kind: count for kind, count in result.get("counts", {}).items() if count}
    if counts:
        named = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))
        yield Finding(
            FindingKind.CHECK_VIOLATIONS,
            Severity.CRITICAL if counts.keys() & _LOSSES else Severity.WARNING,
            "ledgers",
            f"the last check of all ledgers has found violations: {named}",
            "fencelog ledger audit ledgers placement",
            result["finished_us"],
            {"counts": counts, "violations": result.get("violations", [])[:MAX_SHOWN]},
            look_first="fencelog check",
        )
    auditor = healing.status["auditor"]
    if auditor is None:
        return
    last_us = max(auditor["since_us"], completed_us(result) or 0)
    if now_us - last_us > CHECK_OVERDUE_MS * 1000:
        yield Finding(
            FindingKind.CHECK_OVERDUE,
            Severity.WARNING,
            "ledgers",
            "all ledgers have not been checked for days: whether every copy is there is not known",
            "fencelog ledger audit cluster",
            last_us,
        )


def _leftovers(found: Leftovers) -> Iterator[Finding]:
    if found.ledgers or found.topic_ids:
        what = [f"{len(found.ledgers):,} ledgers"] if found.ledgers else []
        what += [f"nodes of {len(found.topic_ids):,} deleted topics"] if found.topic_ids else []
        yield Finding(
            FindingKind.ORPHANED,
            Severity.NOTICE,
            "metadata",
            f"{' and '.join(what)} belong to nothing any more: crashes have left them behind",
            "fencelog topic sweep",
            details={
                "ledgers": list(found.ledgers[:MAX_SHOWN]),
                "topic_ids": list(found.topic_ids[:MAX_SHOWN]),
            },
            look_first="fencelog topic sweep --dry-run",
        )
    if found.unsealed:
        first = found.unsealed[0]
        count = len(found.unsealed)
        more = f", and {count - 1:,} others" if count > 1 else ""
        yield Finding(
            FindingKind.LEDGER_UNSEALED,
            Severity.NOTICE,
            f"{first.topic}/{first.partition}",
            f"partition {first.partition} of {first.topic} has no owner, and ledgers that are not "
            f"sealed{more}: the broker that had it has died, and the next request recovers them",
            f"fencelog read {first.topic} --partition {first.partition} --limit 1",
            min(each.since_us for each in found.unsealed),
            {
                "partitions": [
                    {"topic": p.topic, "partition": p.partition, "ledgers": list(p.ledgers)}
                    for p in found.unsealed[:MAX_SHOWN]
                ]
            },
        )
