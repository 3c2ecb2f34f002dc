"""The ledgers that could not be repaired: the reason, the attempts, and the time of the next one.
Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencelog.bookie.repair.copies import NoCopy, PutOff
from fencelog.bookie.repair.core import MissingReason, pause_s
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.limits import ARRIVAL_REST_MS
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_SHOWN = 20
_SHOWN_RANGES = 16
_SHOWN_CHARACTERS = 400
"""Limit for a detail, so that the answer to ``status`` stays below MAX_ADMIN_BYTES."""


@dataclass(frozen=True, slots=True)
class PostponedLedger:
    """The reason to postpone a repair. ``why``: a ``MissingReason``, that of a ``PutOff``, or the
    code of an error. ``entries``: those without a copy, ``are_more``: there may be others.
    ``bookies``: the bookies in limbo, where the limbo prevents a decision: waiting alone will not
    help."""

    why: str
    detail: str
    entry_id: int | None = None
    bookies: tuple[str, ...] = ()
    entries: tuple[Range, ...] = ()
    are_more: bool = False

    @classmethod
    def for_reason(cls, error: FencelogError, bookie_id: str | None = None) -> PostponedLedger:
        """Build the reason from an error. ``bookie_id``: the bookie in limbo in whose repair the
        error came up, if it was one."""
        if isinstance(error, PutOff):
            return cls(error.why, error.detail)
        if isinstance(error, NoCopy):
            in_limbo = {*error.in_limbo, *filter(None, [bookie_id])} if error.in_limbo else set()
            return cls(
                error.reason.value,
                error.detail,
                error.entries[0][0],
                tuple(sorted(in_limbo)),
                error.entries,
                error.are_more,
            )
        if error.code is ErrorCode.RECOVERY_INCOMPLETE:
            bookies = tuple(error.extra["bookies_in_limbo"])
            if bookies and list(bookies) == error.extra["missing_bookies"]:
                entry_id = error.extra.get("entry_id")
                return cls(MissingReason.IN_LIMBO.value, error.detail, entry_id, bookies)
        return cls(error.code.slug, error.detail)


Process = tuple[str, int]
"""A bookie, and the start of its process."""


def registered_processes(bookies: BookieDirectory) -> set[Process]:
    """Return the processes of bookies that are registered now."""
    ids = (*bookies.available(), *bookies.read_only())
    return {(bookie_id, bookies.describe(bookie_id).started_us) for bookie_id in ids}


@dataclass(slots=True)
class _PutOff:
    waiting: PostponedLedger
    attempts: int
    due: float


class _Counted(NamedTuple):
    """The number of attempts that were counted, and the time from which on the next one is."""

    attempts: int
    not_before: float


class WaitingLedgers:
    """The postponed repairs, by kind of repair ("limbo", "damage", "replication") and ledger."""

    def __init__(self) -> None:
        self._put_off: dict[tuple[str, int], _PutOff] = {}
        self._counted: dict[tuple[str, int], _Counted] = {}
        self._registered: Set[Process] = frozenset()
        self._has_arrived = False
        self._rests_until = 0.0

    def is_due(self, what: str, ledger_id: int, now: float) -> bool:
        put_off = self._put_off.get((what, ledger_id))
        return put_off is None or put_off.due <= now

    def count(self, what: str, ledger_id: int, now: float) -> None:
        """Count an attempt, unless the one that was counted last is not ``pause_s`` ago: those that
        come early, on request or as a bookie registers, do not count."""
        before = self._counted.get((what, ledger_id), _Counted(0, now))
        if now >= before.not_before:
            attempts = before.attempts + 1
            self._counted[what, ledger_id] = _Counted(attempts, now + pause_s(attempts))

    def counted(self, what: str, ledger_id: int) -> int:
        """Return how many attempts were counted."""
        counted = self._counted.get((what, ledger_id))
        return 0 if counted is None else counted.attempts

    def put_off(self, what: str, ledger_id: int, waiting: PostponedLedger, now: float) -> bool:
        """Postpone a repair, longer each time. Return whether the reason differs from the previous
        one."""
        before = self._put_off.get((what, ledger_id))
        attempts = 1 if before is None else before.attempts + 1
        due = now + pause_s(attempts)
        self._put_off[what, ledger_id] = _PutOff(waiting, attempts, due)
        return before is None or before.waiting.why != waiting.why

    def done(self, what: str, ledger_id: int) -> None:
        self._put_off.pop((what, ledger_id), None)
        self._counted.pop((what, ledger_id), None)

    def keep(self, what: str, ledger_ids: Set[int]) -> None:
        """Remove all other ledgers: they need no repair any more."""
        for kind, ledger_id in (*self._put_off, *self._counted):
            if kind == what and ledger_id not in ledger_ids:
                self.done(kind, ledger_id)

    def hurry(self) -> None:
        """Make all repairs due."""
        for put_off in self._put_off.values():
            put_off.due = 0.0

    def notice_arrivals(self, processes: Set[Process], now: float) -> bool:
        """Make all repairs due if a bookie has registered, or registered again, since the last
        call: any of them may have waited for it. Return whether they were made due. Those of the
        next ARRIVAL_REST_MS wait for its end."""
        arrived, self._registered = processes - self._registered, processes
        self._has_arrived = bool(self._put_off) and (self._has_arrived or bool(arrived))
        if not self._has_arrived or now < self._rests_until:
            return False
        self._has_arrived, self._rests_until = False, now + ARRIVAL_REST_MS / 1000
        self.hurry()
        return True

    def status(self) -> dict[str, Any]:
        """Return how many repairs wait, and the first of them. Repairs that do not wait for another
        bookie come first."""
        order = {MissingReason.LOST.value: 0, MissingReason.IN_LIMBO.value: 1}
        waiting = sorted(
            self._put_off.items(), key=lambda item: (order.get(item[1].waiting.why, 2), item[0])
        )
        reasons = [put_off.waiting.why for _, put_off in waiting]
        return {
            "ledgers_waiting": len(waiting),
            "ledgers_lost": reasons.count(MissingReason.LOST.value),
            "ledgers_wholly_in_limbo": reasons.count(MissingReason.IN_LIMBO.value),
            "waiting": [
                {
                    "ledger_id": ledger_id,
                    "for": what,
                    "why": put_off.waiting.why,
                    "detail": put_off.waiting.detail[:_SHOWN_CHARACTERS],
                    "entry_id": put_off.waiting.entry_id,
                    **_entries(put_off.waiting),
                    "bookies_in_limbo": list(put_off.waiting.bookies),
                    "attempts": put_off.attempts,
                }
                for (what, ledger_id), put_off in waiting[:_SHOWN]
            ],
        }


def _entries(waiting: PostponedLedger) -> dict[str, Any]:
    """Return the first ranges of entries without a copy, the number of all, and whether that is
    the number of all that there are."""
    return {
        "entries": [list(entries) for entries in waiting.entries[:_SHOWN_RANGES]],
        "entry_count": sum(last - first + 1 for first, last in waiting.entries),
        "are_more": waiting.are_more,
    }
