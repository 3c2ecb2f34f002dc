"""Every change of ledger metadata, checked as it happens (invariants 2, 3 and 4)."""

from __future__ import annotations

from dataclasses import replace

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState, decode_metadata
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from fencelog.ledgers.metastore.memory import MemoryCluster
from tests.sim.metadata.replacements import check_replacement, replaced_fragment
from tests.sim.oracle.history import History, write_set_of

_BELOW = f"{LEDGERS_PATH}/"

LEGAL = {
    (LedgerState.OPEN, LedgerState.OPEN),
    (LedgerState.OPEN, LedgerState.IN_RECOVERY),
    (LedgerState.OPEN, LedgerState.CLOSED),
    (LedgerState.IN_RECOVERY, LedgerState.CLOSED),
}
"""The legal transitions: clients other than the writer change metadata while OPEN only, or close
it."""


class MetadataWatch:
    """Sees each write to the tree at the moment it takes effect, in order."""

    def __init__(self, history: History, cluster: MemoryCluster) -> None:
        self._history = history
        self._cluster = cluster
        self._versions: dict[int, int] = {}
        cluster.subscribe(self._changed)

    def _changed(self, path: str) -> None:
        if not path.startswith(_BELOW):
            return
        parts = path.split("/")
        if len(parts) != 4:
            return
        ledger_id = int(parts[2], 16) << 16 | int(parts[3], 16)
        try:
            node = self._cluster.get(path)
        except FencelogError:
            self._versions.pop(ledger_id, None)
            self._history.metadata.pop(ledger_id, None)
            self._history.deleted.add(ledger_id)
            self._history.on_event("deleted")
            self._history.counts["metadata deletes"] += 1
            return
        metadata = decode_metadata(node.value)
        number = node.version.number
        self._check(ledger_id, metadata, number)
        self._versions[ledger_id] = number
        self._history.metadata.setdefault(ledger_id, []).append(metadata)
        self._history.counts[f"metadata {metadata.state.value}"] += 1
        versions = self._history.metadata[ledger_id][-2:]
        if len(versions) == 2 and replaced_fragment(*versions) is not None:
            self._history.on_event("moved")
            return
        self._history.on_event(_event(metadata, number))

    def _check(self, ledger_id: int, now: LedgerMetadata, version: int) -> None:
        violate = self._history.violate
        before = self._history.latest(ledger_id)
        self._check_fragments(now)
        if before is None:
            if version != 0:
                violate(3, f"ledger {ledger_id} begins at version {version}")
            return
        if before.token != now.token:
            violate(3, f"ledger {ledger_id} was given to two creators")
        if version <= self._versions[ledger_id]:
            violate(3, f"ledger {ledger_id}: version {version} follows {self._versions[ledger_id]}")
        if "committer" in before.properties and now == replace(before, properties=now.properties):
            return  # it was claimed, or withdrawn
        at = replaced_fragment(before, now)
        if at is not None:
            check_replacement(self._history, before, now, at)
            return
        if (before.state, now.state) not in LEGAL:
            violate(3, f"ledger {ledger_id} went {before.state.value} -> {now.state.value}")
        self._check_history_kept(before, now)
        if now.is_closed:
            self._check_end(now)

    def _check_fragments(self, now: LedgerMetadata) -> None:
        firsts = [fragment.first_entry_id for fragment in now.fragments]
        if firsts[0] != 0 or sorted(set(firsts)) != firsts:
            self._history.violate(4, f"ledger {now.ledger_id} has fragments at {firsts}")
        for fragment in now.fragments:
            if {len(set(fragment.bookies)), len(fragment.bookies)} != {now.ensemble_size}:
                self._history.violate(
                    4, f"ledger {now.ledger_id} has the ensemble {fragment.bookies}"
                )

    def _check_history_kept(self, before: LedgerMetadata, now: LedgerMetadata) -> None:
        """Check that only the last fragment was replaced, and new ones follow it."""
        kept = before.fragments[:-1]
        if now.fragments[: len(kept)] != kept:
            self._history.violate(4, f"ledger {now.ledger_id} had its older fragments changed")
        if now.fragments == before.fragments or now.state is not LedgerState.OPEN:
            return
        confirmed = self._confirmed(now.ledger_id)
        if now.last_fragment.first_entry_id != confirmed + 1:
            self._history.violate(
                4,
                f"ledger {now.ledger_id}: fragment at {now.last_fragment.first_entry_id}, "
                f"its writer's LAC is {confirmed}",
            )

    def _check_end(self, now: LedgerMetadata) -> None:
        self._history.check_copies(now, range(now.last_entry_id + 1), "closed in")
        before = self._history.latest(now.ledger_id)
        if before is not None and before.state is LedgerState.IN_RECOVERY:
            self._check_end_is_fenced(before, now.last_entry_id + 1)
        ledger = self._history.ledgers.get(now.ledger_id)
        if ledger is not None and now.last_entry_id < ledger.acknowledged:
            self._history.violate(
                2,
                f"ledger {now.ledger_id} closed at {now.last_entry_id}, "
                f"entry {ledger.acknowledged} was acknowledged",
            )

    def _check_end_is_fenced(self, before: LedgerMetadata, entry_id: int) -> None:
        """Check that so many members of the write set behind the end did not get that entry from
        its writer, and have answered a fencing request, that it can never get Qa acks (rule 4).
        Another recoverer may have found a copy and be about to rewrite it; then its close fails."""
        members = write_set_of(before, entry_id)
        without = [
            bookie
            for bookie in members
            if before.ledger_id in self._history.bookie(bookie).fenced
            and (before.ledger_id, entry_id) not in self._history.bookie(bookie).from_writers
        ]
        if len(without) <= before.write_quorum - before.ack_quorum:
            self._history.violate(
                9,
                f"ledger {before.ledger_id} was closed below entry {entry_id}, of whose {members} "
                f"only {without} are fenced without it",
            )

    def _confirmed(self, ledger_id: int) -> int:
        ledger = self._history.ledgers.get(ledger_id)
        return -1 if ledger is None else ledger.confirmed


def _event(now: LedgerMetadata, version: int) -> str:
    if now.state is LedgerState.OPEN:
        return "ensemble" if version else "created"
    return "closed" if now.is_closed else "recovering"
