"""The state that a bookie keeps of each ledger besides its entries.

All of it is in memory (some 200 bytes per ledger; below 100 for a deleted one), so that fencing and
new entries are decided without disk access; changes are in the journal first and in the index with
the next flush.

    value in the index   0  u8 version 1
                         1  u8 flags: 1 fenced, 2 in limbo or 4 deleted (each only with 1)
                         2  6 zero bytes
                         8  i64 last entry id   (-1: none)
                        16  i64 LAC             (-1: none)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from fencelog.ledgers.errors import ErrorCode, FencelogError

_STATE = struct.Struct("<BB6sqq")
_VERSION = 1
_FENCED = 1
_LIMBO = 2
_DELETED = 4
_FLAGS = (0, _FENCED, _FENCED | _LIMBO, _FENCED | _DELETED)
_ZEROS = bytes(6)


@dataclass(slots=True)
class BookieLedgerState:
    """The state of one ledger. A ledger is known to the bookie if and only if it has a state."""

    fenced: bool = False
    """No regular add is taken any more. This is set before the fence is durable, and never
    unset."""
    fence_durable: bool = False
    """The fence is synced: only now may a fencing request be answered (PROTOCOL.md rule 6)."""
    last_entry: int = -1
    lac: int = -1
    limbo: bool = False
    """Entries may have been lost: a missing entry is unknown, never "not there" (BP-46). A ledger
    in limbo is fenced."""
    deleted: bool = False
    """A tombstone: no entry of the ledger is here and none is taken any more, so that a writer that
    was suspended before the deletion cannot bring the ledger back. It is fenced."""
    removing: bool = False
    """The entries are removed with the next flush; an entry added now would be removed too."""
    removals: int = 0
    """Number of removals since the start. After a removal, a check that found every entry is
    repeated."""
    lac_sequence: int = 0
    """The sequence of the journal record that carried ``lac``; 0: the LAC was there at the
    start."""
    reported_lac: int = -1
    """The highest LAC that was found to be durable, hence may be reported."""

    def encode(self) -> bytes:
        flags = (_FENCED if self.fenced else 0) | (_LIMBO if self.limbo else 0)
        flags |= _DELETED if self.deleted else 0
        return _STATE.pack(_VERSION, flags, _ZEROS, self.last_entry, self.lac)


def decode_state(ledger_id: int, data: bytes) -> BookieLedgerState:
    """Decode what ``encode`` makes, and nothing else: a flag that this version does not know could
    mean that a request must not be answered. Raises FencelogError(CORRUPT)."""
    if len(data) == _STATE.size:
        version, flags, zeros, last_entry, lac = _STATE.unpack(data)
        known = version == _VERSION and flags in _FLAGS and zeros == _ZEROS
        if known and last_entry >= -1 and lac >= -1:
            fenced = bool(flags & _FENCED)
            limbo, deleted = bool(flags & _LIMBO), bool(flags & _DELETED)
            return BookieLedgerState(fenced, fenced, last_entry, lac, limbo, deleted)
    raise FencelogError(
        ErrorCode.CORRUPT, f"index: state of ledger {ledger_id} is not valid: {data.hex()}"
    )


TOMBSTONE = BookieLedgerState(fenced=True, fence_durable=True, deleted=True, removals=-1)
"""The shared state of all ledgers whose deletion is in the index: their state never changes
again."""


class LedgerStates:
    """The states of all ledgers of a bookie, and which of them changed since the last flush."""

    def __init__(self) -> None:
        self._states: dict[int, BookieLedgerState] = {}
        self.get: Callable[[int], BookieLedgerState | None] = self._states.get
        """The look-up of a ledger; None if it is not known."""
        self._deleted = 0
        self.in_limbo: set[int] = set()
        """The ledgers in limbo, kept separately because there may be a million others."""
        self.strangers: set[int] = set()
        """The ones of these that belong to other bookies only, as far as is known, or were deleted:
        nothing is missing here."""
        self._dirty: set[int] = set()
        self.changed: Callable[[int], None] = self._dirty.add
        """The note that the state of a known ledger changes now; a deleted one's never does."""
        self._removed: set[int] = set()

    def load(self, states: Iterable[tuple[int, BookieLedgerState]]) -> None:
        for ledger_id, state in states:
            self._states[ledger_id] = TOMBSTONE if state.deleted else state
            self._deleted += state.deleted
            if state.limbo:
                self.in_limbo.add(ledger_id)

    @property
    def count(self) -> int:
        """Return the number of ledgers that are not deleted."""
        return len(self._states) - self._deleted

    @property
    def lacking(self) -> int:
        """Return the number of ledgers of which copies may be missing here."""
        return len(self.in_limbo) - len(self.strangers)

    def change(self, ledger_id: int) -> BookieLedgerState:
        """Return the state of a ledger, created if it is new, to be changed by the caller now."""
        self._dirty.add(ledger_id)
        state = self._states.get(ledger_id)
        if state is None:
            state = self._states[ledger_id] = BookieLedgerState()
        elif state is TOMBSTONE:
            state = self._states[ledger_id] = replace(TOMBSTONE)
        return state

    def set_limbo(self, ledger_id: int, on: bool) -> BookieLedgerState:
        """Put a ledger in limbo, which fences it, or take it out; return its state."""
        state = self.change(ledger_id)
        state.limbo = on
        state.fenced = state.fenced or on
        (self.in_limbo.add if on else self.in_limbo.discard)(ledger_id)
        self.strangers.discard(ledger_id)
        return state

    def set_stranger(self, ledger_id: int, on: bool) -> None:
        """Note whether a ledger belongs to other bookies only, if it is in limbo. Nothing else
        changes: what is asked of it stays unknown."""
        is_stranger = on and ledger_id in self.in_limbo
        (self.strangers.add if is_stranger else self.strangers.discard)(ledger_id)

    def remove(self, ledger_id: int, *, deleted: bool) -> BookieLedgerState:
        """Mark the ledger's entries for removal with the next flush. ``deleted``: a tombstone
        stays, for ever; else other bookies have the ledger, and it is in limbo here, for a client
        with old metadata may still ask for it."""
        state = self.change(ledger_id)
        state.fenced = state.removing = True
        state.removals += 1
        self._deleted += deleted and not state.deleted
        state.deleted = state.deleted or deleted
        self.set_limbo(ledger_id, not state.deleted)
        self.set_stranger(ledger_id, not state.deleted)
        state.last_entry = state.lac = state.reported_lac = -1
        self._removed.add(ledger_id)
        return state

    def take_removed(self) -> list[int]:
        """Return the ledgers that were removed since the last call."""
        removed = sorted(self._removed)
        self._removed.clear()
        return removed

    def are_removed(self, ledger_ids: Iterable[int]) -> None:
        """Record that a flush has taken their entries out of the index and has stored their current
        states."""
        for ledger_id in ledger_ids:
            if ledger_id in self._removed:
                continue  # once more, since that flush began
            state = self._states[ledger_id]
            state.removing = False
            if state.deleted:
                self._states[ledger_id] = TOMBSTONE

    def ids(self) -> Iterable[int]:
        """Return the ids of all known ledgers, deleted ones too; not to be kept."""
        return self._states.keys()

    def items(self) -> list[tuple[int, BookieLedgerState]]:
        """Return the states of all known ledgers, as of now."""
        return list(self._states.items())

    def take_changed(self) -> list[tuple[int, bytes]]:
        """Return the encoded states that changed since the last call."""
        changed = [(i, self._states[i].encode()) for i in sorted(self._dirty)]
        self._dirty.clear()
        return changed
