"""The accusations of a checker, compared with the truth (invariant 38)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fencelog.bookie.auditor.check_core import Violation, ViolationKind
from fencelog.ledgers.format.availability import Availability
from tests.sim.healing.plan import HealingPlan
from tests.sim.healing.versions import MetadataVersions
from tests.sim.oracle.history import History, write_set_of

if TYPE_CHECKING:
    from tests.sim.ledgers.cluster import Cluster

LACKS = {
    ViolationKind.BELOW_WRITE_QUORUM,
    ViolationKind.BELOW_ACK_QUORUM,
    ViolationKind.NO_COPY,
}

SEEN_S = 1.0
"""The time after which a checker has seen a change of metadata, unless it was held up."""


class Accusations:
    """The accusations of one check, made at the time of this object or later."""

    def __init__(
        self,
        history: History,
        cluster: Cluster,
        versions: MetadataVersions,
        plan: HealingPlan,
    ) -> None:
        self._history = history
        self._cluster = cluster
        self._versions = versions
        self._late_s = plan.late_s
        self._delay_s = plan.check_delay_ms / 1000 if plan.check_repeats else 0.0
        self._began_s = asyncio.get_running_loop().time()
        self._held = {
            name: set(memory.entries)
            for name, memory in history.bookies.items()
            if not memory.is_damaged
        }
        """Entries that bookies had when the check began."""

    def made(self, violation: Violation) -> None:
        """Check what is said of a ledger, as it is said."""
        self._history.counts[f"accused: {violation.kind.value}"] += 1
        if violation.kind is ViolationKind.UNREADABLE_METADATA:
            self._wrong(violation, "its metadata is as it was written")
        if violation.kind not in LACKS:
            return
        now = asyncio.get_running_loop().time()
        if now - self._began_s < self._delay_s:
            self._wrong(violation, "at first sight")
        marked_s = self._history.marked_since.get(violation.ledger_id)
        if marked_s is not None and now - marked_s > SEEN_S + self._delay_s / 2:
            self._wrong(violation, f"it has been marked for {now - marked_s:.1f} s")
        self._check_metadata(violation)
        for bookie in violation.absent:
            self._check_absence(violation, bookie)

    def _check_metadata(self, violation: Violation) -> None:
        """Check that it is a violation by metadata which was the latest not long ago: it is read
        again before the accusation."""
        now = asyncio.get_running_loop().time()
        latest = self._versions.since(violation.ledger_id, now - self._late_s)
        known = [version for version in latest if version is not None]
        if not known:
            self._wrong(violation, "it was deleted")
            return
        for bookie in violation.absent:
            if not any(bookie in f.bookies for version in known for f in version.fragments):
                self._wrong(violation, f"its metadata does not name {bookie}")

    def _check_absence(self, violation: Violation, bookie: str) -> None:
        """Check that a bookie which is said to lack entries has lacked one since the beginning of
        the check, and is not about to find out what it has."""
        machine = self._cluster.bookies.get(bookie)
        is_there = machine is not None and machine.bookie is not None
        memory = self._history.bookie(bookie)
        if is_there and violation.ledger_id in memory.in_limbo:
            self._wrong(violation, f"{bookie} is in limbo")
        elif memory.limbo_told_s.get(violation.ledger_id, float("-inf")) >= self._began_s:
            self._wrong(violation, f"{bookie} was in limbo when it was asked")
        ranges = Availability(violation.groups).ranges()
        accused = {n for first, last in ranges for n in range(first, last + 1)}
        held = set() if memory.is_damaged else self._held.get(bookie, set())
        for entry in sorted((violation.ledger_id, n) for n in accused):
            if entry in held and entry in memory.entries and self._is_own(bookie, entry):
                self._wrong(violation, f"{bookie} has had entry {entry[1]} since the check began")
                return
            is_named = (entry[0], bookie) in self._history.moved_to
            if is_named and is_there and entry in memory.entries and self._is_own(bookie, entry):
                self._wrong(violation, f"{bookie} was given entry {entry[1]} before it was named")
                return

    def _is_own(self, bookie: str, entry: tuple[int, int]) -> bool:
        metadata = self._history.latest(entry[0])
        return metadata is not None and bookie in write_set_of(metadata, entry[1])

    def _wrong(self, violation: Violation, why: str) -> None:
        self._history.violate(
            38, f"ledger {violation.ledger_id} is accused ({violation.kind.value}): {why}"
        )
