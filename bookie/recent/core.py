"""The ledgers that have not been found whole yet, and when each is looked at. Pure.

A ledger is *verified* once it is closed and every entry was found on all bookies that the metadata
names for it. It is not looked at again: what happens to copies after that is for other checks. An
open ledger is looked at after each change, as far as it gets no more entries.

What is missing at one look may be in flight. A bookie is accused if the next look, after a pause,
finds it lacking again. A ledger that is marked is looked at until it is whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from fencelog.ledgers.metastore.port import Version

DIRECTORY_BITS = 16
"""A directory has the ledgers whose ids have the same remaining bits (``ledger_nodes``)."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """The times between looks, in seconds. ``interval_s``: of an open ledger that is not watched,
    and the first pause where a bookie could not tell; ``settle_s``: before what was changed, or
    lacks something, is looked at (again)."""

    interval_s: float
    settle_s: float
    last_s: float

    def after(self, attempts: int) -> float:
        """Return the pause after so many looks, at least one, that came to no end."""
        return min(self.interval_s * float(1 << min(attempts - 1, 30)), self.last_s)


@dataclass(frozen=True, slots=True)
class Look:
    """The findings of one look. ``settled``: the number of entries that get no more copies, and
    were compared; ``missing``: bookies that certainly lack some of them; ``unknown``: bookies that
    could not tell."""

    version: Version
    is_closed: bool
    settled: int
    missing: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        return not (self.missing or self.unknown)


@dataclass(frozen=True, slots=True)
class TrackedLedger:
    """A ledger that is not verified. ``due``: its next look, None: when it changes. ``missing``:
    the bookies that lacked entries at the last look; ``unknown``: those that could not tell then;
    ``whole_below``: the entries that were found
    whole while it is open; ``attempts``: the looks since then; ``is_stale``: it has changed since
    the last look began."""

    due: float | None
    version: Version | None = None
    missing: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    whole_below: int = 0
    attempts: int = 0
    is_open: bool = False
    is_stale: bool = False


def after_look(
    before: TrackedLedger, look: Look, *, pauses: Pauses, is_watched: bool, now: float
) -> tuple[TrackedLedger | None, frozenset[str]]:
    """Return the ledger after a look, None if it is verified; and the bookies that are accused."""
    if look.is_whole and look.is_closed:
        return None, frozenset()
    if look.is_whole:
        due = None if is_watched else now + pauses.interval_s
        if before.is_stale:
            due = now + pauses.settle_s
        return TrackedLedger(due, look.version, whole_below=look.settled, is_open=True), frozenset()
    attempts = before.attempts + 1
    accused = look.missing & before.missing
    is_fresh = before.is_stale or bool(look.missing - before.missing)
    # The look before the accusation is no attempt of its own.
    pause_s = pauses.after(max(1, attempts - bool(look.missing)))
    tracked = replace(
        before,
        due=now + (pauses.settle_s if is_fresh else pause_s),
        version=look.version,
        missing=look.missing,
        unknown=look.unknown,
        attempts=attempts,
        is_open=not look.is_closed,
        is_stale=False,
    )
    return tracked, accused


class VerifiedLedgers:
    """The ids of verified ledgers, one bit each. ``changed``: the directories with bits that are
    not saved."""

    SIZE = 1 << DIRECTORY_BITS >> 3

    def __init__(self) -> None:
        self._bits: dict[int, bytearray] = {}
        self.changed: set[int] = set()

    def __contains__(self, ledger_id: int) -> bool:
        bits = self._bits.get(ledger_id >> DIRECTORY_BITS)
        low = ledger_id & ((1 << DIRECTORY_BITS) - 1)
        return bits is not None and bool(bits[low >> 3] >> (low & 7) & 1)

    def add(self, ledger_id: int) -> None:
        high, low = ledger_id >> DIRECTORY_BITS, ledger_id & ((1 << DIRECTORY_BITS) - 1)
        self._directory(high)[low >> 3] |= 1 << (low & 7)
        self.changed.add(high)

    def merge(self, directory: int, bits: bytes) -> None:
        """Add what was verified before, by this or another process."""
        ours = self._directory(directory)
        ours[:] = bytes(a | b for a, b in zip(ours, bits, strict=True))

    def directory(self, directory: int) -> bytes:
        """Return the bits of a directory."""
        return bytes(self._directory(directory))

    def _directory(self, directory: int) -> bytearray:
        return self._bits.setdefault(directory, bytearray(self.SIZE))


class RecentLedgers:
    """All ledgers that are not verified, in the order in which they are looked at."""

    def __init__(self, pauses: Pauses, *, most: int) -> None:
        self._pauses = pauses
        self._most = most
        self._tracked: dict[int, TrackedLedger] = {}
        self._timed: list[tuple[float, int]] = []
        """A heap of (due, ledger id), with entries that are out of date."""
        self._backlog: dict[int, None] = {}
        self.verified = VerifiedLedgers()

    # -- what there is -------------------------------------------------------------------------

    def listed(self, ledger_ids: Iterable[int], *, are_new: bool, now: float) -> None:
        """Add the ledgers of a listing, ascending, that are not known yet. New ones are looked at
        at once; others, which were there before this process, when nothing else is due, the newest
        first."""
        for ledger_id in ledger_ids:
            is_known = ledger_id in self._tracked or ledger_id in self._backlog
            if is_known or ledger_id in self.verified:
                continue
            if len(self._tracked) + len(self._backlog) >= self._most:
                return
            if are_new:
                self._put(ledger_id, TrackedLedger(now))
            else:
                self._backlog[ledger_id] = None

    def changed(self, ledger_id: int, version: Version | None, now: float) -> bool:
        """Note the version of a ledger's metadata by its watch, None: it was deleted; tell whether
        it has changed since the last look."""
        tracked = self._tracked.get(ledger_id)
        if tracked is None or version == tracked.version:
            return False
        self._put(ledger_id, replace(self._sooner(tracked, now), is_stale=True))
        return True

    def returned(self, bookies: Collection[str], now: float) -> bool:
        """Look soon at the ledgers of which these bookies could not tell, since they are back; tell
        whether there are any."""
        back = frozenset(bookies)
        waiting = [i for i, tracked in self._tracked.items() if tracked.unknown & back]
        for ledger_id in waiting:
            self._put(ledger_id, self._sooner(self._tracked[ledger_id], now))
        return bool(waiting)

    def forget(self, ledger_id: int) -> None:
        """Remove a ledger that was deleted."""
        self._tracked.pop(ledger_id, None)

    # -- looks ---------------------------------------------------------------------------------

    def take(self, most: int, now: float) -> list[int]:
        """Return the ledgers that are to be looked at now, ``most`` of them. One that is not
        ``looked`` at after all, because of an error, is due again after a pause."""
        taken: list[int] = []
        while self._timed and len(taken) < most and self._timed[0][0] <= now:
            due, ledger_id = heapq.heappop(self._timed)
            tracked = self._tracked.get(ledger_id)
            if tracked is not None and tracked.due == due:
                self._take(ledger_id, tracked, now)
                taken.append(ledger_id)
        while self._backlog and len(taken) < most:
            ledger_id, _ = self._backlog.popitem()
            self._take(ledger_id, TrackedLedger(now), now)
            taken.append(ledger_id)
        return taken

    def whole_below(self, ledger_id: int) -> int:
        """Return the number of entries that need no comparison while the ledger is open."""
        tracked = self._tracked.get(ledger_id)
        return 0 if tracked is None else tracked.whole_below

    def looked(self, ledger_id: int, look: Look, *, is_watched: bool, now: float) -> frozenset[str]:
        """Note a look, and return the bookies that are accused by it."""
        before = self._tracked.get(ledger_id, TrackedLedger(now))
        after, accused = after_look(
            before, look, pauses=self._pauses, is_watched=is_watched, now=now
        )
        if after is None:
            self.forget(ledger_id)
            self.verified.add(ledger_id)
        else:
            self._put(ledger_id, after)
        return accused

    def put_off(self, ledger_id: int, now: float) -> None:
        """Note a look that came to no end."""
        before = self._tracked.get(ledger_id, TrackedLedger(now))
        attempts = before.attempts + 1
        due = now + self._pauses.after(attempts)
        self._put(ledger_id, replace(before, due=due, attempts=attempts))

    def next_due(self, now: float) -> float | None:
        """Return the time of the next look; None: none is planned."""
        if self._backlog:
            return now
        while self._timed:
            due, ledger_id = self._timed[0]
            tracked = self._tracked.get(ledger_id)
            if tracked is not None and tracked.due == due:
                return due
            heapq.heappop(self._timed)
        return None

    # -- for people ----------------------------------------------------------------------------

    @property
    def has_backlog(self) -> bool:
        return bool(self._backlog)

    def counts(self, now: float) -> dict[str, float]:
        """Return how many ledgers are open, lack copies, or wait for a look, and for how long the
        first of those has been due."""
        due = self.next_due(now)
        behind_s = 0.0 if due is None or self._backlog else max(0.0, now - due)
        return {
            "open_ledgers": sum(tracked.is_open for tracked in self._tracked.values()),
            "missing_copies": sum(bool(tracked.missing) for tracked in self._tracked.values()),
            "ledgers_to_look_at": len(self._backlog)
            + sum(tracked.version is None for tracked in self._tracked.values()),
            "behind_s": round(behind_s, 1),
        }

    def lacking(self, most: int) -> Collection[int]:
        """Return the first ledgers that lacked copies at the last look."""
        return sorted(i for i, tracked in self._tracked.items() if tracked.missing)[:most]

    def _take(self, ledger_id: int, tracked: TrackedLedger, now: float) -> None:
        due = now + self._pauses.interval_s
        self._put(ledger_id, replace(tracked, due=due, is_stale=False))

    def _sooner(self, tracked: TrackedLedger, now: float) -> TrackedLedger:
        due = now + self._pauses.settle_s
        return replace(tracked, due=due if tracked.due is None else min(due, tracked.due))

    def _put(self, ledger_id: int, tracked: TrackedLedger) -> None:
        self._tracked[ledger_id] = tracked
        if tracked.due is not None:
            heapq.heappush(self._timed, (tracked.due, ledger_id))
