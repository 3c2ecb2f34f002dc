"""The LAC of ledgers: what adds and idle writers tell of it, and who waits for it to grow.

It never goes back on a bookie, over a restart neither: only what the journal has is told.
"""

from __future__ import annotations

import asyncio

from fencelog.bookie.format.control_records import lac_body
from fencelog.bookie.format.ledger_state import BookieLedgerState, LedgerStates
from fencelog.bookie.format.records import RecordType
from fencelog.bookie.journal.journal import Journal
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_LAC_WAITS
from fencelog.ledgers.rpc.bookie_port import AddCallback

_Waiting = dict[asyncio.Future[None], int]
"""What each waits for the LAC to be above."""


class Lacs:
    """LACs of all the ledgers of a bookie."""

    def __init__(self, states: LedgerStates, journal: Journal) -> None:
        self._states = states
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, _Waiting] = {}
        self._waits = 0

    # -- what is told to us ------------------------------------------------------------------

    def learn(self, ledger_id: int, state: BookieLedgerState, lac: int, *, journaled: bool) -> None:
        """A LAC that is higher than what is known; if ``journaled``, it comes with the record that
        is appended next, and is told once that is durable."""
        state.lac = lac
        state.lac_sequence = self._journal.position.sequence if journaled else 0
        if ledger_id in self._waiting:
            self.wake(ledger_id, lac)

    def write(self, ledger_id: int, lac: int, on_reply: AddCallback) -> None:
        """Take an explicit LAC. Raises FencelogError: BAD_REQUEST, NO_SUCH_LEDGER,
        LEDGER_FENCED; then ``on_reply`` is not called."""
        if lac < 0:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"ledger {ledger_id}: LAC {lac} says nothing"
            )
        state = self._states.get(ledger_id)
        if state is None:
            # Where none of a ledger's entries went, nobody comes to ask for them; and a ledger
            # becomes known by an entry or a fence, not by a number that proves nothing.
            raise FencelogError(
                ErrorCode.NO_SUCH_LEDGER, f"no entry of ledger {ledger_id} is here to be confirmed"
            )
        if state.fenced:
            raise FencelogError(ErrorCode.LEDGER_FENCED, f"ledger {ledger_id} is fenced here")
        if lac > state.lac:
            self.learn(ledger_id, self._states.change(ledger_id), lac, journaled=True)
            self._journal.append(RecordType.LAC, lac_body(ledger_id, lac), on_reply)
        else:
            self._journal.sync(on_reply)

    # -- what we tell ------------------------------------------------------------------------

    def durable(self, state: BookieLedgerState) -> int:
        """The highest LAC that can be told now."""
        if state.lac_sequence < self._journal.durable_before:
            state.reported_lac = state.lac
        return state.reported_lac

    async def latest(self, state: BookieLedgerState) -> int:
        """The highest LAC known now, when it can be told. Raises FencelogError."""
        lac = state.lac
        if self.durable(state) < lac:
            await self._journal.settle()
            state.reported_lac = max(state.reported_lac, lac)
        return state.reported_lac

    # -- waiting -----------------------------------------------------------------------------

    async def wait(self, ledger_id: int, above: int, wait_ms: int) -> None:
        """Return when the ledger's LAC grows above ``above``, at ``wake``, or after that time.

        Raises FencelogError(OVERLOADED) when too many wait.
        """
        if self._waits >= MAX_LAC_WAITS:
            raise FencelogError(ErrorCode.OVERLOADED, f"{self._waits} requests wait for a LAC")
        woken: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting.setdefault(ledger_id, {})
        waiting[woken] = above
        self._waits += 1
        timer = self._loop.call_later(wait_ms / 1000, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()
            self._waits -= 1
            del waiting[woken]
            if not waiting:
                del self._waiting[ledger_id]

    def wake(self, ledger_id: int, lac: int | None = None) -> None:
        """Wake those who wait for a LAC that is below ``lac`` (None: all of the ledger)."""
        for woken, above in self._waiting.get(ledger_id, {}).items():
            if lac is None or above < lac:
                _wake(woken)

    def wake_all(self) -> None:
        """The bookie stops."""
        for ledger_id in self._waiting:
            self.wake(ledger_id)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
