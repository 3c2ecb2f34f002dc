"""The path of an add. Its numbers are checked, it is held back if necessary, and it is checked for
fencing and for overlap with stored entries; then it goes to write cache and journal at once, and is
answered when the journal has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from fencelog.bookie.engine.lacs import Lacs
from fencelog.bookie.engine.recovery_add_dedup import RecoveryAddDedup
from fencelog.bookie.engine.throttle import Throttle
from fencelog.bookie.format.ledger_state import BookieLedgerState, LedgerStates
from fencelog.bookie.format.records import RecordType
from fencelog.bookie.format.runs import Range, missing_ranges
from fencelog.bookie.journal.journal import Journal
from fencelog.bookie.storage.flush import Flusher
from fencelog.bookie.storage.write_cache import WriteCache
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Run, RunHeader, read_run_header, run_lac
from fencelog.ledgers.rpc.bookie_port import AddCallback, AddsCallback, AddToken

_MAX_ENTRY_ID = (1 << 63) - 1


class Adds:
    """The adds of one shard, which are taken until ``refuse``. No call here waits: the caller's
    loop is never blocked."""

    def __init__(
        self,
        *,
        cache: WriteCache,
        states: LedgerStates,
        lacs: Lacs,
        journal: Journal,
        flusher: Flusher,
        max_held_bytes: int,
        stored_ranges: Callable[[int, Range], Awaitable[list[Range]]],
        on_pressure: Callable[[], None],
        journal_runs: bool = True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._cache = cache
        self._states = states
        self._lacs = lacs
        self._journal = journal
        self._flusher = flusher
        self._journal_runs = journal_runs
        self._stored_ranges = stored_ranges
        self.refusal: FencelogError | None = None
        """The error with which all adds are refused; None while adds are taken."""
        self.is_read_only = False
        self._is_out_of_space = False
        self._throttle = Throttle(
            max_bytes=max_held_bytes,
            has_space=lambda: cache.has_space(recovery=False),
            take=self._take_held,
            on_change=on_pressure,
        )
        self._recovery_add_dedup = RecoveryAddDedup(
            stored_ranges=stored_ranges,
            cached_ranges=cache.ranges,
            generation=lambda: flusher.completed,
            admit=self._admit,
            store=self._store,
            barrier=journal.barrier,
        )

    def start(self) -> None:
        self._recovery_add_dedup.start()

    @property
    def are_waiting(self) -> bool:
        """Tell whether adds are held back until the flush has caught up."""
        return self._throttle.is_holding

    def add(self, run: bytes, *, recovery: bool, on_reply: AddCallback) -> None:
        """Add a run that was verified; the contract of ``BookieClient.add``."""
        try:
            header = read_run_header(run)
            _check_numbers(header, run)
            if not recovery and self._must_wait():
                self._throttle.hold(header, run, on_reply)
                return
            state = self._admit(header.ledger_id, recovery=recovery)
        except FencelogError as error:
            self._loop.call_soon(on_reply, error)
            return
        self._take(state, header, run, recovery=recovery, on_reply=on_reply)

    def add_many(
        self, runs: Sequence[Run], tokens: Sequence[AddToken], on_replies: AddsCallback
    ) -> None:
        """Add runs of any ledgers; the contract of ``BookieClient.add_many``.

        All of them are one look at their ledgers, one append to the journal and one answer. A run
        that needs more than that is added by itself.
        """
        stored: list[bytes] = []
        answered: list[AddToken] = []
        states, cache, learn = self._states, self._cache, self._lacs.learn
        sequence = self._journal.position.sequence
        space = cache.space if self._takes_all else 0
        for run, token in zip(runs, tokens, strict=True):
            (ledger_id, first, count, size), lac, data, _ = run
            last = first + count - 1
            state = states.get(ledger_id)
            is_next = state is None or not (state.fenced or first <= state.last_entry)
            if not is_next or space <= 0 or not -1 <= lac < last <= _MAX_ENTRY_ID:
                self.add(data, recovery=False, on_reply=partial(on_replies, (token,)))
                continue
            space -= size
            if state is None:
                state = states.change(ledger_id)
            states.changed(ledger_id)
            state.last_entry = last
            if lac > state.lac:
                learn(ledger_id, state, lac, sequence + len(stored) if self._journal_runs else 0)
            cache.put(ledger_id, first, last, data)
            stored.append(data)
            answered.append(token)
        if stored:
            # In the common case all are answered at once, with the very tokens of the caller.
            self._journal_many(stored, tokens if len(stored) == len(runs) else answered, on_replies)

    def set_out_of_space(self, on: bool) -> None:
        """Set whether the disk has no space even for recovery. Then no add waits for the flush,
        which may wait for space itself: while any add waits, transports read nothing, fences
        included."""
        self._is_out_of_space = on
        if on:
            self._throttle.refuse(_out_of_space())

    def check_writable(self) -> None:
        """Check that adds are taken. Raises FencelogError: READ_ONLY, or the refusal."""
        if self.refusal is not None:
            raise self.refusal
        if self.is_read_only:
            raise FencelogError(ErrorCode.READ_ONLY, "the bookie is read-only")

    def remember(self, header: RunHeader, run: bytes, *, replaces: bool = False) -> None:
        """Cache a run that is in the journal or about to be. Either none of its entries is stored,
        or exactly its entries are stored, and the run ``replaces`` them."""
        ledger_id, last = header.ledger_id, header.last_entry_id
        put = self._cache.replace if replaces else self._cache.put
        put(ledger_id, header.first_entry_id, last, run)
        state = self._states.change(ledger_id)
        state.last_entry = max(state.last_entry, last)
        if (lac := run_lac(run, header)) > state.lac:
            sequence = self._journal.position.sequence if self._journal_runs else 0
            self._lacs.learn(ledger_id, state, lac, sequence)

    async def replace(self, run: bytes, *, is_end: bool = False) -> None:
        """Store a verified run in place of stored ones that are damaged; durable on return.
        ``is_end``: its last entry is that of the closed ledger, so what the last stored run has
        behind it goes.

        Raises FencelogError: BAD_REQUEST unless its entries are exactly those of stored runs of a
        fenced ledger, OVERLOADED, NO_SUCH_LEDGER, STORAGE_FAILED, or the refusal.
        """
        header = read_run_header(run)
        wanted = (header.first_entry_id, header.last_entry_id)
        state = self._admit(header.ledger_id, recovery=True)
        removals = state.removals if state else 0
        stored = await self._stored_ranges(header.ledger_id, wanted)
        self._admit(header.ledger_id, recovery=True)
        are_just_these = not missing_ranges(wanted, stored) and all(
            wanted[0] <= first and (last <= wanted[1] or is_end) for first, last in stored
        )
        is_fenced = state is not None and state.fenced and state.removals == removals
        if not is_fenced or not are_just_these:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"entries {wanted[0]}..{wanted[1]} of ledger {header.ledger_id} are not just those "
                "of stored runs of a fenced ledger",
            )
        if not self._cache.ranges(header.ledger_id, wanted):  # else it was replaced just now
            self.remember(header, run, replaces=True)
            self._journal.append(RecordType.REPLACEMENT, run, _ignore)
        await self._journal.settle()

    def release(self) -> None:
        """Take the adds that are held back: the cache has space again."""
        self._throttle.release()

    def refuse(self, error: FencelogError) -> None:
        """Take no more adds. Held adds, which are not stored, are answered with ``error``."""
        self.refusal = error
        self._throttle.refuse(error)

    async def close(self) -> None:
        """End the look-ups. Call ``refuse`` first."""
        await self._recovery_add_dedup.close()

    @property
    def _takes_all(self) -> bool:
        """Tell whether no reason speaks against adds but those of their own ledgers."""
        is_closed = self.refusal is not None or self.is_read_only or self._is_out_of_space
        return not is_closed and not self._throttle.is_holding

    def _journal_many(
        self, runs: Sequence[bytes], tokens: Sequence[AddToken], on_replies: AddsCallback
    ) -> None:
        """Journal runs that are cached."""
        if self._journal_runs:
            self._journal.append_many(RecordType.RUN, runs, tokens, on_replies)
        else:
            self._loop.call_soon(on_replies, tokens, None)
        if self._cache.wants_flush:
            self._flusher.request()

    # -- one add -----------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        if self.refusal is not None or self._is_out_of_space:
            return False
        return self._throttle.is_holding or not self._cache.has_space(recovery=False)

    def _admit(self, ledger_id: int, *, recovery: bool) -> BookieLedgerState | None:
        """Return the state of the ledger (None: a new one) if an add may be taken now.

        Raises FencelogError: LEDGER_FENCED, NO_SUCH_LEDGER (it was deleted), READ_ONLY,
        OUT_OF_SPACE, OVERLOADED (the cache is full, to recovery and to look-ups that ended; or the
        ledger is being removed), or the refusal.
        """
        if self.refusal is not None:
            raise self.refusal
        state = self._states.get(ledger_id)
        if state is not None and state.fenced and not recovery:
            raise FencelogError(ErrorCode.LEDGER_FENCED, f"ledger {ledger_id} is fenced here")
        if state is not None and state.deleted:
            raise FencelogError(ErrorCode.NO_SUCH_LEDGER, f"ledger {ledger_id} was deleted")
        if state is not None and state.removing:
            raise FencelogError(ErrorCode.OVERLOADED, f"ledger {ledger_id} is being removed here")
        if self.is_read_only and not recovery:
            self.check_writable()
        if self._is_out_of_space:
            raise _out_of_space()
        if not self._cache.has_space(recovery=recovery):
            raise FencelogError(ErrorCode.OVERLOADED, "write cache is full, being flushed")
        return state

    def _take_held(self, header: RunHeader, run: bytes, on_reply: AddCallback) -> None:
        """Take an add that waited for space; its ledger may have been fenced meanwhile."""
        try:
            state = self._admit(header.ledger_id, recovery=False)
        except FencelogError as error:
            on_reply(error)
            return
        self._take(state, header, run, recovery=False, on_reply=on_reply)

    def _take(
        self,
        state: BookieLedgerState | None,
        header: RunHeader,
        run: bytes,
        *,
        recovery: bool,
        on_reply: AddCallback,
    ) -> None:
        if state is None or header.first_entry_id > state.last_entry:
            self._store(header, run, on_reply)
        else:
            self._recovery_add_dedup.add(header, run, recovery=recovery, on_reply=on_reply)

    def _store(self, header: RunHeader, run: bytes, on_reply: AddCallback) -> None:
        """Cache and journal a run of which no entry is stored here."""
        self.remember(header, run)
        if self._journal_runs:
            self._journal.append(RecordType.RUN, run, on_reply)
        else:
            self._loop.call_soon(on_reply, None)
        if self._cache.wants_flush:
            self._flusher.request()


def _ignore(error: FencelogError | None) -> None:
    """Ignore a failure; it is reported through the journal's barrier."""


def _out_of_space() -> FencelogError:
    return FencelogError(ErrorCode.OUT_OF_SPACE, "the bookie's disk is full")


def _check_numbers(header: RunHeader, run: bytes) -> None:
    """Refuse numbers that no writer sends: ids that do not fit the formats, and a LAC that is not
    below the entry that carries it, which recovery would trust.

    Raises FencelogError(BAD_REQUEST).
    """
    lac = run_lac(run, header)
    if header.last_entry_id > _MAX_ENTRY_ID or not -1 <= lac < header.last_entry_id:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"run {header.first_entry_id}..{header.last_entry_id} of ledger {header.ledger_id} "
            f"carries LAC {lac}",
        )
