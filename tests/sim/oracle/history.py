"""The events of one simulated history, as seen from outside: the oracle's notes.

Nothing of the code under test writes here by itself: clients of the workload note what they were
told, bookies are observed at their edge (``oracle/observed_bookie.py``), metadata at the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.quorum import write_set

STEP_S = 0.25
"""Between two looks at what has to happen in the end."""

NOES = frozenset((ErrorCode.NO_SUCH_ENTRY, ErrorCode.NO_SUCH_LEDGER))
"""Explicit negatives. The list is the oracle's own: if the code takes another code for a negative,
its conclusion has to show, not the bookies' answer."""


ACKNOWLEDGED = "acknowledged"
"""What a writer says of an entry."""


@dataclass(slots=True)
class WrittenLedger:
    """One ledger from its writer's side. Entry ids count from 0 without a gap."""

    ledger_id: int
    replication: Replication
    payloads: list[bytes] = field(default_factory=list)
    acknowledged: int = -1
    """The highest entry whose acknowledgement the application got."""
    confirmed: int = -1
    """The highest that the writer ever took for acknowledged: its true LAC."""
    closed_by_writer: int | None = None
    """The last entry that a successful ``close`` reported."""
    is_closing: bool = False
    failure: str | None = None
    is_being_deleted: bool = False
    deleted_at: int | None = None
    """Entries that were appended when ``delete`` returned: no later one may be acknowledged."""


@dataclass(slots=True)
class BookieMemory:
    """The promises of one bookie. Entries are digests of their bytes, by (ledger, entry)."""

    entries: dict[tuple[int, int], int] = field(default_factory=dict)
    """Acknowledged by the present incarnation."""
    listed: set[tuple[int, int]] = field(default_factory=set)
    """Entries that the present incarnation has listed, which is as good as an acknowledgement: it
    may have stored one without having been able to acknowledge it."""
    from_writers: set[tuple[int, int]] = field(default_factory=set)
    """Entries that it took from a writer, not from a recoverer, in any incarnation."""
    previous_entries: set[tuple[int, int]] = field(default_factory=set)
    """Acknowledged by an incarnation whose disk was lost."""
    fenced: dict[int, str] = field(default_factory=dict)
    """Ledgers for which a fencing request was answered, and by which incarnation last."""
    removed: set[int] = field(default_factory=set)
    """Ledgers that its present incarnation removed, durably, since they were deleted."""
    lacs: dict[int, int] = field(default_factory=dict)
    """The highest LAC that an acknowledged add or LAC write carried."""
    incarnation: str = ""
    in_limbo: set[int] = field(default_factory=set)
    """Ledgers of which it has said last that it may lack entries."""
    limbo_told_s: dict[int, float] = field(default_factory=dict)
    """When it said that last, by ledger."""
    is_damaged: bool = False
    """Bits of what it stored were flipped, or its disk was replaced."""

    def forget(self, ledger_id: int) -> None:
        """Release the bookie from its promises for this ledger."""
        for entries in (self.entries, self.listed, self.previous_entries):
            for entry in [entry for entry in entries if entry[0] == ledger_id]:
                entries.pop(entry) if isinstance(entries, dict) else entries.discard(entry)
        self.lacs.pop(ledger_id, None)

    def ever_had(self, entry: tuple[int, int]) -> bool:
        """Tell whether it has acknowledged the entry."""
        return entry in self.entries or entry in self.previous_entries

    def has_shown(self, entry: tuple[int, int]) -> bool:
        """Tell whether it has acknowledged or listed the entry."""
        return self.ever_had(entry) or entry in self.listed


class History:
    """One run. ``violations`` is what the checks found wrong; empty means that all held."""

    def __init__(self) -> None:
        self.ledgers: dict[int, WrittenLedger] = {}
        self.metadata: dict[int, list[LedgerMetadata]] = {}
        self.deleted: set[int] = set()
        """Ledgers whose metadata was deleted."""
        self.may_come_back = False
        """True if metadata that was deleted may be restored while bookies have to keep entries:
        they are released from their promises by their own removal alone."""
        self.bookies: dict[str, BookieMemory] = {}
        self.ends: dict[int, tuple[int, int]] = {}
        """(last entry, length) of each ledger that anybody was told to be closed."""
        self._found_ends: dict[int, set[tuple[int, int]]] = {}
        self.causes: dict[tuple[int, str], set[str]] = {}
        """The reasons for which a bookie's copies of a ledger were ever marked as missing."""
        self.marked_since: dict[int, float] = {}
        """The ledgers that are marked now, and since when."""
        self.marked_at_random: set[tuple[int, str]] = set()
        """Marks for which there may be no reason."""
        self.moved_to: set[tuple[int, str]] = set()
        """The bookies that workers have named in the metadata of a ledger."""
        self.absent_since: dict[str, float] = {}
        """The bookies that are not registered now, and since when."""
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.on_event: Callable[[str], None] = lambda kind: None
        """Told of everything in ``plan.EVENTS``."""
        self.on_violation: Callable[[], object] = lambda: None

    async def within(self, budget_s: float, what: str, done: Callable[[], bool]) -> None:
        """Wait until something has happened; violates invariant 22 if it takes too long."""
        for _ in range(int(budget_s / STEP_S)):
            if done():
                return
            await asyncio.sleep(STEP_S)
        self.violate(22, f"not within {budget_s:g} s: {what}")

    def violate(self, invariant: int, text: str) -> None:
        """``invariant``: its number in the list of ``ledgers/runner.py``."""
        if len(self.violations) < 20:
            self.violations.append(f"invariant {invariant}: {text}")
            self.on_violation()

    def latest(self, ledger_id: int) -> LedgerMetadata | None:
        """The metadata as it stands in the store, None where it was deleted or never made."""
        versions = self.metadata.get(ledger_id)
        return versions[-1] if versions else None

    def bookie(self, bookie_id: str) -> BookieMemory:
        memory = self.bookies.get(bookie_id)
        if memory is None:
            memory = self.bookies[bookie_id] = BookieMemory()
        return memory

    # -- what clients were told ------------------------------------------------------------------

    def appended(self, ledger: WrittenLedger, entry_id: int, payload: bytes) -> None:
        if entry_id != len(ledger.payloads):
            self.violate(8, f"append {len(ledger.payloads)} got entry id {entry_id}")
        ledger.payloads.append(payload)

    def acknowledged(self, ledger: WrittenLedger, lac: int) -> None:
        """The writer's application was told that all entries up to ``lac`` are safe."""
        self.counts["acks"] += 1
        self.on_event("ack")
        if not ledger.acknowledged < lac < len(ledger.payloads):
            self.violate(2, f"ledger {ledger.ledger_id}: ack {lac} after {ledger.acknowledged}")
        latest = self.latest(ledger.ledger_id)
        if latest is not None:
            self.check_copies(latest, range(ledger.acknowledged + 1, lac + 1), ACKNOWLEDGED)
        if latest is not None and latest.is_closed and lac > latest.last_entry_id:
            self.violate(
                2,
                f"ledger {ledger.ledger_id}: {lac} acknowledged, "
                f"was closed at {latest.last_entry_id}",
            )
        if ledger.deleted_at is not None and lac >= ledger.deleted_at:
            self.violate(2, f"ledger {ledger.ledger_id}: {lac}, written after its delete, is acked")
        if ledger.failure is not None:
            self.violate(2, f"ledger {ledger.ledger_id}: {lac} acknowledged after the failure")
        ledger.acknowledged = ledger.confirmed = max(lac, ledger.acknowledged)

    def check_copies(self, metadata: LedgerMetadata, entries: Iterable[int], what: str) -> None:
        """Each entry was stored by Qa members of its write set, as metadata has it (1 and 11). One
        that stored an entry without having been able to acknowledge it counts where a worker may
        have named it, not for an acknowledgement of the writer."""
        had = BookieMemory.ever_had if what == ACKNOWLEDGED else BookieMemory.has_shown
        for entry_id in entries:
            members = write_set_of(metadata, entry_id)
            entry = (metadata.ledger_id, entry_id)
            holders = {b for b in members if had(self.bookie(b), entry)}
            if len(holders) < metadata.ack_quorum:
                self.violate(
                    1,
                    f"ledger {metadata.ledger_id}: entry {entry_id} was {what} and of "
                    f"{members} only {sorted(holders)} had it",
                )
                return

    def found_end(self, metadata: LedgerMetadata) -> None:
        """A broker has fenced the ledger and may close it like this, from OPEN too."""
        end = (metadata.last_entry_id, metadata.length)
        self._found_ends.setdefault(metadata.ledger_id, set()).add(end)

    def told_closed(self, who: str, metadata: LedgerMetadata) -> None:
        """``who`` was told that the ledger is closed, with this end."""
        self.counts["ends told"] += 1
        ledger_id, end = metadata.ledger_id, (metadata.last_entry_id, metadata.length)
        if not metadata.is_closed:
            self.violate(3, f"{who} was told that ledger {ledger_id} is {metadata.state.value}")
            return
        if self.ends.setdefault(ledger_id, end) != end:
            self.violate(3, f"ledger {ledger_id} ends at {self.ends[ledger_id]} and at {end}")
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            return
        states = {version.state for version in self.metadata.get(ledger_id, ())}
        is_recovered = LedgerState.IN_RECOVERY in states or end in self._found_ends.get(
            ledger_id, ()
        )
        if states and not is_recovered and not ledger.is_closing:
            self.violate(3, f"{who}: ledger {ledger_id} was closed without a recovery")
        if metadata.last_entry_id < ledger.acknowledged:
            self.violate(
                2,
                f"{who}: ledger {ledger_id} closed at {metadata.last_entry_id}, "
                f"entry {ledger.acknowledged} was acknowledged",
            )
        if metadata.last_entry_id >= len(ledger.payloads):
            self.violate(2, f"ledger {ledger_id} closed at {end[0]}, never written")
        elif metadata.length != sum(map(len, ledger.payloads[: end[0] + 1])):
            self.violate(2, f"ledger {ledger_id} closed at {end[0]} with length {end[1]}")


def write_set_of(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """The bookies that metadata names for an entry."""
    ensemble = metadata.fragment_of(entry_id).bookies
    indices = write_set(
        entry_id, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
    )
    return [ensemble[index] for index in indices]
