"""The requests to a bookie and its promises, in the order of both.

Marks stand between the effects on the disk. Those before a crash say what the next life of the
bookie has to keep: what was answered holds; what was only sent may have taken effect, or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from fencelog.ledgers.format.run import build_run, merge_runs, read_run_header, run_lac, slice_run

T = TypeVar("T")


@lru_cache(maxsize=10_000)
def entry(ledger_id: int, entry_id: int) -> bytes:
    """A run of just this entry. The same bytes whoever sends them, as with one writer; ledgers from
    100 on have entries of more than a sector."""
    size = 20 + (ledger_id * 37 + entry_id * 53) % 90 + (900 if ledger_id >= 100 else 0)
    payload = f"{ledger_id}/{entry_id}|".encode().ljust(size, b".")
    return build_run(
        ledger_id, entry_id, [payload], lac=max(entry_id - 2, -1), length_before=1000 * entry_id
    )


def run_of(ledger_id: int, first: int, count: int = 1) -> bytes:
    return merge_runs([entry(ledger_id, first + at) for at in range(count)])


def entries_of(run: bytes) -> list[tuple[int, bytes]]:
    """Each entry of a run, as a run of its own."""
    header = read_run_header(run)
    return [
        (at, slice_run(run, at, at))
        for at in range(header.first_entry_id, header.last_entry_id + 1)
    ]


@dataclass(frozen=True, slots=True)
class Add:
    ledger_id: int
    entry_ids: range
    lac: int

    @classmethod
    def of(cls, run: bytes) -> Add:
        header = read_run_header(run)
        ids = range(header.first_entry_id, header.last_entry_id + 1)
        return cls(header.ledger_id, ids, run_lac(run, header))


@dataclass(frozen=True, slots=True)
class Fence:
    ledger_id: int


@dataclass(frozen=True, slots=True)
class Lac:
    """A LAC that was sent to the bookie, or told by it."""

    ledger_id: int
    lac: int


@dataclass(frozen=True, slots=True)
class Limbo:
    ledger_id: int
    is_in: bool


@dataclass(frozen=True, slots=True)
class Removal:
    """Deleted, or dropped: then it is in limbo."""

    ledger_id: int
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """The bookie serves, under this incarnation. ``forgot``: it may have forgotten all that it was
    allowed to; all there was is fenced now, and in limbo."""

    incarnation: str
    forgot: bool


@dataclass(frozen=True, slots=True)
class Flush:
    """A flush: everything so far is in entry logs and index."""


Act = Add | Fence | Lac | Limbo | Removal | Ready | Flush


@dataclass(frozen=True, slots=True)
class Mark:
    """An act was sent to the bookie, or answered by it."""

    act: Act
    is_answer: bool


@dataclass(slots=True)
class Ledger:
    """The knowledge about one ledger. A set of possible values has one element when it is
    certain."""

    sent: set[int] = field(default_factory=set)
    required: set[int] = field(default_factory=set)
    """Acknowledged, and hence there."""
    answered: set[int] = field(default_factory=set)
    """Acknowledged by a bookie that may forget them, if it says so."""
    fenced: set[bool] = field(default_factory=lambda: {False})
    limbo: set[bool] = field(default_factory=lambda: {False})
    removal: set[str] = field(default_factory=lambda: {""})
    """``deleted``, ``dropped`` or neither."""
    lac: int = -1
    answered_lac: int = -1
    sent_lac: int = -1

    @property
    def is_gone(self) -> bool:
        return self.removal == {"deleted"}


class Knowledge:
    """The state of a bookie's promises at some point. ``is_synced``: its journal is, so it forgets
    nothing; ``has_journal``: adds are in it at all."""

    def __init__(self, *, is_synced: bool = True, has_journal: bool = True) -> None:
        self.is_synced = is_synced
        self._has_journal = has_journal
        self.ledgers: dict[int, Ledger] = {}
        self.incarnation: str | None = None
        """Under which it served last."""
        self._covered: dict[Act, list[tuple[Ledger, set[int], int]]] = {}

    def ledger(self, ledger_id: int) -> Ledger:
        return self.ledgers.setdefault(ledger_id, Ledger())

    def take_all(self, marks: Iterable[Mark]) -> Knowledge:
        for mark in marks:
            self.take(mark)
        return self

    def take(self, mark: Mark) -> None:
        """The next mark."""
        act = mark.act
        if not self.is_synced and not isinstance(act, Add | Ready):
            self._cover(act, is_answer=mark.is_answer)
        match act:
            case Add(ledger_id, entry_ids, lac):
                self._add(self.ledger(ledger_id), entry_ids, lac, is_answer=mark.is_answer)
            case Lac(ledger_id, lac):
                ledger = self.ledger(ledger_id)
                ledger.sent_lac = max(ledger.sent_lac, lac)
                if mark.is_answer:
                    ledger.lac = max(ledger.lac, lac)
            case Fence(ledger_id):
                _become(self.ledger(ledger_id).fenced, True, is_answer=mark.is_answer)
            case Limbo(ledger_id, is_in):
                ledger = self.ledger(ledger_id)
                _become(ledger.limbo, is_in, is_answer=mark.is_answer)
                if is_in:
                    _become(ledger.fenced, True, is_answer=mark.is_answer)
            case Removal(ledger_id, is_deleted):
                self._remove(self.ledger(ledger_id), is_deleted, is_answer=mark.is_answer)
            case Ready(incarnation, forgot):
                if mark.is_answer:
                    self.incarnation = incarnation
                for ledger in self.ledgers.values() if forgot else ():
                    ledger.answered.clear()
                    ledger.answered_lac = -1

    def _add(self, ledger: Ledger, entry_ids: range, lac: int, *, is_answer: bool) -> None:
        ledger.sent.update(entry_ids)
        ledger.sent_lac = max(ledger.sent_lac, lac)
        if is_answer and self.is_synced:
            ledger.required.update(entry_ids)
            ledger.lac = max(ledger.lac, lac)
        elif is_answer:
            ledger.answered.update(entry_ids)
            ledger.answered_lac = max(ledger.answered_lac, lac)

    def _remove(self, ledger: Ledger, is_deleted: bool, *, is_answer: bool) -> None:
        _become(ledger.removal, "deleted" if is_deleted else "dropped", is_answer=is_answer)
        _become(ledger.fenced, True, is_answer=is_answer)
        if not is_deleted:
            _become(ledger.limbo, True, is_answer=is_answer)
        if is_answer:
            ledger.required.clear()
            ledger.answered.clear()
            ledger.lac = ledger.answered_lac = -1

    def _cover(self, act: Fence | Lac | Limbo | Removal | Flush, *, is_answer: bool) -> None:
        """Make the adds before an act as durable as the act, if adds are not synced themselves."""
        if not self._has_journal and not isinstance(act, Flush):
            return
        if not is_answer:
            same = [
                ledger
                for ledger_id, ledger in self.ledgers.items()
                if isinstance(act, Flush) or ledger_id == act.ledger_id
            ]
            self._covered[act] = [(one, set(one.answered), one.answered_lac) for one in same]
            return
        for ledger, entry_ids, lac in self._covered.pop(act, []):
            ledger.required |= entry_ids & ledger.answered
            ledger.lac = max(ledger.lac, lac)


def _become(possible: set[T], value: T, *, is_answer: bool) -> None:
    """Record a value that is possible, or certain once it was answered."""
    if is_answer:
        possible.clear()
    possible.add(value)
