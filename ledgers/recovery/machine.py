"""A recovery after its fencing, as a pure state machine: in come answers, out come effects.

No clock, no I/O, no awaiting; ``recovery/recovery.py`` carries the effects out. Reading runs ahead
of rewriting, but its results are used strictly in order: the first missing entry is the end,
whatever exists above it, and the first entry of unknown existence aborts (rule 4). The entries
found are written again through the same pipeline as a writer's adds; ensemble changes stay in it
until the end (rule 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fencelog.ledgers.errors import FencelogError, recovery_incomplete
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.ledger_metadata.model import NO_ENTRY, Fragment, LedgerMetadata
from fencelog.ledgers.limits import MAX_READ_BYTES, MAX_RUN_ENTRIES
from fencelog.ledgers.reader.core import expected_entry_bytes, side_by_side
from fencelog.ledgers.recovery.rules import (
    AcceptedLoss,
    Copy,
    EntryRound,
    Told,
    Verdict,
)
from fencelog.ledgers.writer.core import (
    Acknowledged,
    ChangeEnsemble,
    Effect,
    Failed,
    PendingRun,
    Send,
    WriterCore,
)


@dataclass(frozen=True, slots=True)
class ReadCopy:
    """Ask this bookie for an entry, and the entries after it, up to ``max_entries``; with ``fence``
    it fences the ledger first. Report with ``read_answer``."""

    entry_id: int
    bookie_id: str
    max_entries: int
    fence: bool


@dataclass(frozen=True, slots=True)
class Close:
    """Close the ledger with these values, in one compare-and-set: the end is found and durable."""

    fragments: tuple[Fragment, ...]
    last_entry_id: int
    length: int
    last: Entry | None
    """The entry at the end; None: the ledger is empty."""


@dataclass(frozen=True, slots=True)
class Abort:
    """End the recovery without closing the ledger."""

    error: FencelogError


RecoveryEffect = ReadCopy | Send | ChangeEnsemble | Close | Abort


class RecoveryCore:
    """One recovery of ``snapshot``, the metadata at its start, from the entry after ``start_lac``
    on. Every method returns the effects to carry out, in their order; the last one of all is Close
    or Abort, and later reports have no effects.

    The ledger's length before the first entry found stands in that entry. The entry at
    ``start_lac`` is needed only where none is found: it may lie in an older fragment, whose bookies
    are needed for nothing else. A bookie that has just answered is asked for it first, and the
    others only if it has no copy: one is enough, since the entry exists. With ``accepted``
    (``AcceptedLoss``), where that entry is lost as well, the one before it takes its place, and so
    on: all of them were acknowledged, so the whole write set of each has to report its absence.

    ``told``: what bookies have told with their fences; they are asked for the rest only.
    """

    def __init__(
        self,
        snapshot: LedgerMetadata,
        *,
        start_lac: int,
        accepted: AcceptedLoss | None = None,
        told: Mapping[str, Told] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._accepted = accepted
        self._told = told or {}
        self._first_lac = self._start_lac = start_lac
        self._length = 0 if start_lac == NO_ENTRY else None
        self.writer = WriterCore(snapshot, lac=start_lac, length=0)
        self.finished: Close | Abort | None = None
        self._rounds: dict[int, EntryRound] = {}
        self._copies: dict[int, Copy] = {}
        self._next_read = start_lac + 1
        self._at_end = False
        self._last: Entry | None = None
        self._not_asked: tuple[str, ...] = ()
        """The bookies that are asked for the entry at the start if the first one has no copy."""
        self._settled = start_lac
        self._entry_bytes = MAX_READ_BYTES // 4

    def start(self) -> list[RecoveryEffect]:
        return self._go_on()

    def is_reading(self, entry_id: int) -> bool:
        """Tell whether answers about this entry are still of use. The entry at the start certainly
        exists, so negatives decide nothing there."""
        round_ = self._rounds.get(entry_id)
        if round_ is None or self.finished is not None:
            return False
        if entry_id == self._start_lac:
            return not round_.found
        return round_.verdict is Verdict.WAITING

    def read_answer(
        self, entry_id: int, bookie_id: str, answer: Copy | FencelogError
    ) -> list[RecoveryEffect]:
        """Report a verified copy that begins with the entry, or the reason why there is none."""
        round_ = self._rounds.get(entry_id)
        if self.finished is not None or round_ is None or round_.found:
            return []
        if isinstance(answer, Copy):
            round_.answer(bookie_id, None)
            self._copies[entry_id] = answer
        else:
            round_.answer(bookie_id, answer)
        if entry_id == self._start_lac:
            return self._length_answer(round_)
        return self._go_on(bookie_id if bookie_id in round_.negative else None)

    def write_reply(
        self, run: PendingRun, index: int, bookie_id: str, error: FencelogError | None
    ) -> list[RecoveryEffect]:
        """Report a bookie's answer to a recovery add."""
        if self.finished is not None:
            return []
        return self._written(self.writer.reply(run, index, bookie_id, error))

    def ensemble_chosen(
        self, change: ChangeEnsemble, ensemble: tuple[str, ...] | None, since_us: int = 0
    ) -> list[RecoveryEffect]:
        """Report the ensemble that ``change`` asked for, and the time, 0: not known; None: there is
        no replacement."""
        if self.finished is not None:
            return []
        if ensemble is None:
            return self._written(self.writer.ensemble_unchanged())
        try:
            changed = self.writer.metadata.with_ensemble(change.first_entry_id, ensemble, since_us)
        except FencelogError:  # no space for another fragment
            return self._written(self.writer.ensemble_unchanged())
        return self._written(self.writer.ensemble_changed(changed))

    # -- reading ---------------------------------------------------------------------------------

    def _go_on(self, at_hand: str | None = None) -> list[RecoveryEffect]:
        """Use the decided answers, in order, then read on or finish. ``at_hand``: the bookie that
        has just answered."""
        effects: list[RecoveryEffect] = []
        while not self._at_end:
            effects += self._read_on()
            head = self.writer.last_add_pushed + 1
            round_ = self._rounds.get(head)
            verdict = Verdict.WAITING if round_ is None else round_.verdict
            if round_ is None or verdict is Verdict.WAITING:
                break
            if verdict is Verdict.UNKNOWN:
                return self._abort(round_.incomplete())
            if verdict is Verdict.POSITIVE:
                del self._rounds[head]
                effects += self._rewrite(self._copies.pop(head))
                if self.finished is not None:
                    return effects
            else:
                round_.give_up()
                self._at_end = True
                self._rounds.clear()
                self._copies.clear()
        return [*effects, *self._finish(at_hand)]

    def _read_on(self) -> list[RecoveryEffect]:
        effects: list[RecoveryEffect] = []
        while not self._at_end and self._may_read():
            entry_id, self._next_read = self._next_read, self._next_read + 1
            count = 1 if self._is_striped else MAX_RUN_ENTRIES
            effects += self._ask(entry_id, count)
        return effects

    def _may_read(self) -> bool:
        writer = self.writer
        if self._is_striped:
            width = side_by_side(entry_bytes=self._entry_bytes, budget_bytes=MAX_READ_BYTES)
            return self._next_read <= writer.lac + width
        # One batch is read while the one before it is rewritten.
        return not self._rounds and writer.lac >= self._settled

    @property
    def _is_striped(self) -> bool:
        return self._snapshot.ensemble_size > self._snapshot.write_quorum

    def _ask(self, entry_id: int, count: int) -> list[RecoveryEffect]:
        self._rounds[entry_id] = round_ = EntryRound(self._snapshot, entry_id, self._accepted)
        asked = self._use_told(round_)
        if round_.verdict is not Verdict.WAITING:
            return []
        return [ReadCopy(entry_id, bookie, count, fence=True) for bookie in asked]

    def _use_told(self, round_: EntryRound) -> list[str]:
        """Take what bookies have told of an entry as their answers; return the bookies of its write
        set that are still to be asked."""
        still_to_ask: list[str] = []
        for bookie in round_.bookies:
            told = self._told.get(bookie)
            answer = None if told is None else told.about(round_.entry_id, bookie)
            if isinstance(answer, Copy):
                round_.answer(bookie, None)
                before = self._copies.get(round_.entry_id)
                if before is None or len(before.entries) < len(answer.entries):
                    self._copies[round_.entry_id] = answer
            elif answer is not None:
                round_.answer(bookie, answer)
            else:
                still_to_ask.append(bookie)
        return still_to_ask

    # -- rewriting -------------------------------------------------------------------------------

    def _rewrite(self, copy: Copy) -> list[RecoveryEffect]:
        """Begin the recovery adds of entries, unchanged."""
        for entry in copy.entries:
            if self._length not in (None, entry.length - len(entry.payload)):
                what = f"entry {entry.entry_id} does not continue its length {self._length}"
                return self._abort(recovery_incomplete(self._snapshot.ledger_id, what, {}))
            self._length = entry.length
        last = self._last = copy.entries[-1]
        self._entry_bytes = expected_entry_bytes(self._entry_bytes, len(last.payload))
        self._settled = self.writer.last_add_pushed
        effects = self.writer.push(copy.run, count=len(copy.entries), length=last.length)
        self._next_read = max(self._next_read, last.entry_id + 1)
        return self._passed_on(effects)

    def _written(self, effects: list[Effect]) -> list[RecoveryEffect]:
        passed_on = self._passed_on(effects)
        if self.finished is not None:
            return passed_on
        return [*passed_on, *self._go_on()]

    def _passed_on(self, effects: Sequence[Effect]) -> list[RecoveryEffect]:
        passed_on: list[RecoveryEffect] = []
        for effect in effects:
            if isinstance(effect, Failed):
                return self._abort(self._not_rewritten(effect.error))
            if not isinstance(effect, Acknowledged):
                passed_on.append(effect)
        return passed_on

    def _not_rewritten(self, error: FencelogError) -> FencelogError:
        missing = dict.fromkeys(self.writer.failed_members.values(), error)
        return recovery_incomplete(self._snapshot.ledger_id, "cannot be rewritten", missing)

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self, at_hand: str | None = None) -> list[RecoveryEffect]:
        if not self._at_end or self.writer.has_pending:
            return []
        if self._length is None:
            return self._ask_for_length(at_hand)
        # Where entries were recovered the end is the last of them, otherwise the entry that the
        # length is of.
        has_recovered = self.writer.lac > self._first_lac
        end = self.writer.lac if has_recovered else self._start_lac
        self.finished = Close(self.writer.metadata.fragments, end, self._length, self._last)
        return [self.finished]

    def _ask_for_length(self, at_hand: str | None) -> list[RecoveryEffect]:
        round_ = EntryRound(self._snapshot, self._start_lac, self._accepted)
        self._rounds[self._start_lac] = round_
        still_to_ask = self._use_told(round_)
        if round_.found or not still_to_ask:
            self._not_asked = ()
            return self._length_answer(round_)
        at_hand = at_hand or next(iter(self._told), None)
        asked = [bookie for bookie in still_to_ask if bookie == at_hand] or still_to_ask
        self._not_asked = tuple(bookie for bookie in still_to_ask if bookie not in asked)
        return self._read_at_start(asked)

    def _read_at_start(self, bookies: Iterable[str]) -> list[RecoveryEffect]:
        """Ask for the entry at the start. Where its loss is accepted, the ledger is fenced: of one
        that a bookie has never known it then says "no such entry", of a deleted one still "no such
        ledger"."""
        fence = self._accepted is not None
        return [ReadCopy(self._start_lac, bookie, 1, fence=fence) for bookie in bookies]

    def _length_answer(self, round_: EntryRound) -> list[RecoveryEffect]:
        if round_.found:
            self._last = self._copies[self._start_lac].entries[0]
            self._length = self._last.length
            return self._finish()
        if self._not_asked:
            others, self._not_asked = self._not_asked, ()
            return self._read_at_start(others)
        if not round_.is_over:
            return []
        if not round_.is_given_up:
            return self._abort(round_.length_unknown())
        round_.give_up()
        self._start_lac -= 1
        if self._start_lac == NO_ENTRY:
            self._length = 0
        return self._finish()

    def _abort(self, error: FencelogError) -> list[RecoveryEffect]:
        self.finished = Abort(error)
        return [self.finished]
