"""What marks say of copies, compared with what bookies have (invariants 38 and 39)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fencelog.bookie.replication.store import Cause
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from tests.sim.healing.versions import MetadataVersions
from tests.sim.ledgers.cluster import Cluster
from tests.sim.oracle.history import History, write_set_of

RENEWALS = 2
"""The number of times that a mark may be written again as it is: by a second auditor, and by one
that was not answered."""

Missing = Mapping[str, Collection[str]]
"""The causes for which the copies of each bookie are missing."""


@dataclass(slots=True)
class _Mark:
    missing: Missing
    at_s: float
    """The time at which it was written last."""
    renewals: int = 0


class MarkTruth:
    """Told of each change of a mark or of a ledger's metadata, as it takes effect. ``settle_s``:
    the time between two looks of the recent check, where nothing else finds missing copies; None:
    the ledger check does, at one look. ``late_s``: how late a mark may be."""

    def __init__(
        self,
        history: History,
        cluster: Cluster,
        versions: MetadataVersions,
        *,
        settle_s: float | None,
        late_s: float,
    ) -> None:
        self._history = history
        self._cluster = cluster
        self._versions = versions
        self._settle_s = settle_s
        self._late_s = late_s
        self._marks: dict[int, _Mark] = {}
        self._lacking_since: dict[tuple[int, str], float] = {}
        """When it was certain first that a writer has left a bookie without some entry."""

    # -- marks -----------------------------------------------------------------------------------

    def written(self, ledger_id: int, missing: Missing) -> None:
        now = asyncio.get_running_loop().time()
        before = self._marks.get(ledger_id)
        mark = self._marks[ledger_id] = _Mark(missing, now)
        if before is not None and before.missing == missing:
            mark.renewals = before.renewals + 1
            self._check_renewal(ledger_id, mark)
        for bookie, causes in missing.items():
            known = {} if before is None else before.missing
            is_new = Cause.MISSING_COPIES.value not in known.get(bookie, ())
            if is_new and Cause.MISSING_COPIES.value in causes and self._settle_s is not None:
                self._check_missing(ledger_id, bookie, now)

    def _check_renewal(self, ledger_id: int, mark: _Mark) -> None:
        """Check that whoever wants copies made does not keep workers from removing the mark."""
        patient = {Cause.DECOMMISSION.value}
        if self._settle_s is not None:
            patient.add(Cause.MISSING_COPIES.value)
        causes = {cause for some in mark.missing.values() for cause in some}
        if mark.renewals > RENEWALS and causes <= patient:
            self._history.violate(
                38, f"the mark of ledger {ledger_id} is renewed again and again: {mark.missing}"
            )

    def _check_missing(self, ledger_id: int, bookie: str, now: float) -> None:
        """Check that the bookie was left without an entry, and was looked at twice since then. One
        that a worker has named is looked at by the worker."""
        key = (ledger_id, bookie)
        if key in self._history.moved_to or key in self._history.marked_at_random:
            return
        since = self._lacking_since.get(key)
        recent = self._versions.since(ledger_id, now - self._late_s)
        known = [version for version in recent if version is not None]
        what = f"ledger {ledger_id} is marked: {bookie} lacks copies;"
        if since is None:
            self._history.violate(38, f"{what} it does not")
        elif self._settle_s is not None and now - since < self._settle_s:
            self._history.violate(38, f"{what} seen once")
        if known and all(version.state is LedgerState.IN_RECOVERY for version in known):
            self._history.violate(38, f"{what} it is being recovered")
        if known and not any(bookie in f.bookies for version in known for f in version.fragments):
            self._history.violate(38, f"{what} the metadata does not name it")

    def removed(self, ledger_id: int) -> None:
        """Check that a worker has found nothing of it missing, by any metadata since the mark was
        written (invariant 39)."""
        mark = self._marks.pop(ledger_id, None)
        if mark is None:
            return
        lacking: str | None = None
        for version in self._versions.since(ledger_id, mark.at_s):
            lacking = None if version is None else self._lacking(version, mark)
            if lacking is None:
                return
        self._history.violate(39, f"ledger {ledger_id} is not marked any more, and {lacking}")

    def _lacking(self, metadata: LedgerMetadata, mark: _Mark) -> str | None:
        """Return what is still missing of what the mark says; None: nothing."""
        for bookie, causes in mark.missing.items():
            memory = self._history.bookie(bookie)
            for entries in _closed_entries(metadata, bookie):
                if Cause.DECOMMISSION.value in causes:
                    return f"it names {bookie}, which is to leave"
                if Cause.LOST_BOOKIE.value in causes and self._is_away_since(bookie, mark.at_s):
                    return f"it names {bookie}, which is lost"
                if memory.is_damaged or Cause.MISSING_COPIES.value not in causes:
                    continue
                for entry_id in entries:
                    entry = (metadata.ledger_id, entry_id)
                    if entry not in memory.entries and entry not in memory.listed:
                        return f"{bookie} lacks entry {entry_id}"
        return None

    def _is_away_since(self, bookie: str, time_s: float) -> bool:
        machine = self._cluster.bookies.get(bookie)
        is_down = machine is None or (machine.is_held_down and machine.bookie is None)
        absent_since = self._history.absent_since.get(bookie)
        return is_down and absent_since is not None and absent_since < time_s

    # -- metadata --------------------------------------------------------------------------------

    def metadata_changed(self, ledger_id: int) -> None:
        """Note which bookies its writer leaves without entries."""
        metadata = self._history.latest(ledger_id)
        if metadata is None or self._settle_s is None:
            return
        now = asyncio.get_running_loop().time()
        for bookie in {bookie for fragment in metadata.fragments for bookie in fragment.bookies}:
            held = self._history.bookie(bookie).entries
            for entries in _closed_entries(metadata, bookie):
                if any((ledger_id, entry_id) not in held for entry_id in entries):
                    self._lacking_since.setdefault((ledger_id, bookie), now)


def _closed_entries(metadata: LedgerMetadata, bookie: str) -> Iterator[list[int]]:
    """Yield the entries that belong on the bookie, for each fragment that names it and gets no more
    entries."""
    firsts = [fragment.first_entry_id for fragment in metadata.fragments]
    ends = [first - 1 for first in firsts[1:]]
    if metadata.is_closed:
        ends.append(metadata.last_entry_id)
    for fragment, last in zip(metadata.fragments, ends, strict=False):
        if bookie in fragment.bookies:
            entries = range(fragment.first_entry_id, last + 1)
            yield [n for n in entries if bookie in write_set_of(metadata, n)]


def left_behind(history: History) -> int:
    """Return how many copies of entries of closed fragments no bookie has, of those that the
    metadata names."""
    return sum(
        (ledger_id, entry_id) not in history.bookie(bookie).entries
        for ledger_id, versions in history.metadata.items()
        for bookie in {b for fragment in versions[-1].fragments for b in fragment.bookies}
        for entries in _closed_entries(versions[-1], bookie)
        for entry_id in entries
    )
