"""The durable cursors and access in one partition's state log: read as it is written.

The oracle goes through the ledger that the list of ledgers names, up to what was acknowledged to
its writer or, once it is closed, to its end: no later owner can find less. So it knows at every
moment what a takeover would find, whatever an owner believes, and whatever it has told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fencelog.ledgers.format.entry_header import read_entry_header
from tests.sim.oracle.durable_access import DurableAccess
from tests.sim.oracle.history import History

Acked = Callable[[str, list[int]], None]
Opened = Callable[[str, int], None]


@dataclass(slots=True)
class DurableCursor:
    """Acknowledged is what lies below ``acked_to``, and what is in ``above``."""

    acked_to: int
    generation: int = 0
    above: set[int] = field(default_factory=set)

    def __contains__(self, offset: int) -> bool:
        return offset < self.acked_to or offset in self.above

    def add(self, first: int, end: int) -> list[int]:
        """Return what was not acknowledged before."""
        fresh = [offset for offset in range(first, end) if offset not in self]
        self.above.update(fresh)
        while self.acked_to in self.above:
            self.above.remove(self.acked_to)
            self.acked_to += 1
        return fresh

    def beyond(self, other: DurableCursor) -> list[int]:
        """Return what is acknowledged here and not there."""
        new = {offset for offset in self.above if offset not in other}
        return sorted(new.union(o for o in range(other.acked_to, self.acked_to) if o not in other))

    def cut(self, end: int) -> None:
        """Forget acknowledgements of messages that the log does not have."""
        self.acked_to = min(self.acked_to, end)
        self.above = {offset for offset in self.above if offset < end}

    def copy(self) -> DurableCursor:
        return DurableCursor(self.acked_to, self.generation, set(self.above))


class StateWatch:
    """The watch of one partition. ``on_acked`` is called with what has become durable, by
    subscription."""

    def __init__(self, history: History, violate: Callable[[int, str], None]) -> None:
        self._history = history
        self._violate = violate
        self._ledger_id: int | None = None
        self._next_entry = 0
        self._cursors: dict[str, DurableCursor] = {}
        self._access = DurableAccess()
        self.openings: dict[int, dict[str, DurableCursor]] = {}
        """By epoch: what its owner found."""
        self.may_be_dropped: set[str] = set()
        """Subscriptions that somebody has begun to delete."""
        self.on_acked: Acked = lambda subscription_id, offsets: None
        self.on_opened: Opened = lambda subscription_id, offset: None
        """Told of each cursor that has become durable, and where it begins."""
        self.rewinds_to: Callable[[], int] | None = None
        """Gives the end of the log that the next owner finds, where that may lie below what the
        ledger says: the metadata came from a backup."""

    def cursors(self) -> dict[str, DurableCursor]:
        """Return the current cursors, by subscription id."""
        self._read_on()
        return self._cursors

    def access(self) -> DurableAccess:
        """Return the current access."""
        self._read_on()
        return self._access

    def listed(self, ledger_id: int | None) -> None:
        """The list of ledgers names this one from now on. It holds what the previous one did."""
        if ledger_id == self._ledger_id:
            return
        before, access_before = self.cursors(), self._access
        self._rewind()
        self._ledger_id, self._next_entry, self._cursors = ledger_id, 0, {}
        self._access = DurableAccess()
        self._read_on(is_new=True)
        for what in self._access.forgotten(access_before):
            self._violate(25, f"state ledger {ledger_id} forgets that {what}")
        for subscription_id, previous in before.items():
            now = self._cursors.get(subscription_id)
            if now is None:
                if subscription_id not in self.may_be_dropped:
                    self._violate(19, f"state ledger {ledger_id} has no cursor {subscription_id}")
            elif now.generation < previous.generation:
                self._violate(19, f"state ledger {ledger_id} forgets a seek of {subscription_id}")
            elif now.generation == previous.generation:
                missing = previous.beyond(now)
                if missing:
                    self._violate(
                        19, f"state ledger {ledger_id} begins without the acks of {missing[:5]}"
                    )
                self.on_acked(subscription_id, now.beyond(previous))
        for subscription_id, now in self._cursors.items():
            if subscription_id not in before:
                self.on_opened(subscription_id, now.acked_to)
                self.on_acked(subscription_id, sorted(now.above))

    def taken_over(self, epoch: int) -> None:
        """A new owner, which has read the state log to its end."""
        if self._ledger_id is not None:
            metadata = self._history.latest(self._ledger_id)
            if metadata is None or not metadata.is_closed:
                self._violate(16, f"epoch {epoch} begins, state ledger {self._ledger_id} is open")
        self.cursors()
        self._rewind()
        self.rewinds_to = None
        self.openings[epoch] = {id_: cursor.copy() for id_, cursor in self._cursors.items()}

    def _rewind(self) -> None:
        if self.rewinds_to is not None:
            for cursor in self._cursors.values():
                cursor.cut(self.rewinds_to())

    # -- reading ---------------------------------------------------------------------------------

    def _read_on(self, *, is_new: bool = False) -> None:
        if self._ledger_id is None:
            return
        ledger = self._history.ledgers.get(self._ledger_id)
        if ledger is None:
            return
        metadata = self._history.latest(self._ledger_id)
        is_closed = metadata is not None and metadata.is_closed
        end = metadata.last_entry_id if metadata is not None and is_closed else ledger.confirmed
        while self._next_entry <= end:
            payload = ledger.payloads[self._next_entry]
            self._next_entry += 1
            for event in _events(payload):
                known = len(self._cursors)
                acked = self._apply(event)
                if is_new or self.rewinds_to is not None:
                    continue
                if acked:
                    self.on_acked(event[1], acked)
                if len(self._cursors) > known:
                    self.on_opened(event[1], event[2])

    def _apply(self, event: list[Any]) -> list[int]:
        """Return what it acknowledges."""
        match event:
            case ["cursor", str(name), int(acked_to), int(generation), *_]:
                self._cursors.setdefault(name, DurableCursor(acked_to, generation))
            case ["cursor_dropped", str(name)]:
                if name in self._cursors and name not in self.may_be_dropped:
                    self._violate(19, f"cursor {name} is dropped, its subscription is not deleted")
                self._cursors.pop(name, None)
            case ["ack", str(name), list(ranges)] if name in self._cursors:
                cursor = self._cursors[name]
                return [offset for first, end in ranges for offset in cursor.add(first, end)]
            case ["seek", str(name), int(offset), int(generation)] if name in self._cursors:
                if generation > self._cursors[name].generation:
                    self._cursors[name] = DurableCursor(offset, generation)
            case ["trimmed", str(name), int(offset)] if name in self._cursors:
                cursor = self._cursors[name]
                cursor.add(cursor.acked_to, offset)
            case _:
                self._access.apply(event)
        return []


def _events(payload: bytes) -> list[list[Any]]:
    body = payload[read_entry_header(payload).header_bytes :]
    return [json.loads(line) for line in bytes(body).split(b"\n")]
