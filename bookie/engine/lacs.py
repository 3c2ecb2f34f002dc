"""The LACs of ledgers: adds and idle writers report them, and readers wait for them to grow.

A LAC never goes back on a bookie, even over a restart: only a LAC that is in the journal is
reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from fencelog.bookie.format.control_records import lac_body
from fencelog.bookie.format.ledger_state import BookieLedgerState, LedgerStates
from fencelog.bookie.format.records import RecordType
from fencelog.bookie.journal.journal import Journal
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_LAC_WAITS
from fencelog.ledgers.rpc.bookie_port import AddsCallback, AddToken, LedgerLac

_Waiting = dict[asyncio.Future[None], int]
"""The LAC that each waiter's ledger has to exceed."""


class Lacs:
    """The LACs of all the ledgers of a bookie."""

    def __init__(self, states: LedgerStates, journal: Journal) -> None:
        self._states = states
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, _Waiting] = {}
        self._waits = 0

    # -- LACs from adds and writers ----------------------------------------------------------

    def learn(self, ledger_id: int, state: BookieLedgerState, lac: int, sequence: int) -> None:
        """Take a LAC that is higher than the known one. It is reported once the record ``sequence``
        of the journal, which carries it, is durable; 0: at once."""
        state.lac = lac
        state.lac_sequence = sequence
        if ledger_id in self._waiting:
            self.wake(ledger_id, lac)

    def write(
        self, lacs: Sequence[LedgerLac], tokens: Sequence[AddToken], on_replies: AddsCallback
    ) -> None:
        """Take explicit LACs, by one append to the journal. Each is refused by itself: BAD_REQUEST,
        NO_SUCH_LEDGER, LEDGER_FENCED."""
        bodies: list[bytes] = []
        written: list[AddToken] = []
        known: list[AddToken] = []
        sequence = self._journal.position.sequence
        for (ledger_id, lac), token in zip(lacs, tokens, strict=True):
            state = self._states.get(ledger_id)
            if state is None or state.fenced or lac < 0:
                refusal = _refusal(ledger_id, lac, state)
                self._loop.call_soon(on_replies, (token,), refusal)
            elif lac > state.lac:
                self._states.changed(ledger_id)
                self.learn(ledger_id, state, lac, sequence + len(bodies))
                bodies.append(lac_body(ledger_id, lac))
                written.append(token)
            else:
                known.append(token)
        if bodies:
            self._journal.append_many(RecordType.LAC, bodies, written, on_replies)
        if known:  # by a record that is perhaps not durable yet, or by one of these
            self._journal.sync(partial(on_replies, known))

    # -- LACs in replies ---------------------------------------------------------------------

    def durable(self, state: BookieLedgerState) -> int:
        """Return the highest LAC that can be reported now."""
        if state.lac_sequence < self._journal.durable_before:
            state.reported_lac = state.lac
        return state.reported_lac

    async def latest(self, state: BookieLedgerState) -> int:
        """Return the highest LAC known now, once it can be reported. Raises FencelogError."""
        lac = state.lac
        if self.durable(state) < lac:
            await self._journal.settle()
            state.reported_lac = max(state.reported_lac, lac)
        return state.reported_lac

    # -- waiting -----------------------------------------------------------------------------

    async def wait(self, ledger_id: int, above: int, wait_ms: int) -> None:
        """Return when the ledger's LAC grows above ``above``, at ``wake``, or after that time.

        Raises FencelogError(OVERLOADED) when too many requests wait.
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
        """Wake the requests that wait for a LAC that is below ``lac`` (None: all of the ledger)."""
        for woken, above in self._waiting.get(ledger_id, {}).items():
            if lac is None or above < lac:
                _wake(woken)

    def wake_all(self) -> None:
        """Wake all waiting requests: the bookie stops."""
        for ledger_id in self._waiting:
            self.wake(ledger_id)


def _refusal(ledger_id: int, lac: int, state: BookieLedgerState | None) -> FencelogError:
    """Return the reason why an explicit LAC is not taken."""
    if lac < 0:
        return FencelogError(ErrorCode.BAD_REQUEST, f"ledger {ledger_id}: LAC {lac} says nothing")
    if state is None:
        # No reader asks a bookie that got no entry of the ledger; and a ledger becomes known by an
        # entry or a fence, not by a number that proves nothing.
        return FencelogError(
            ErrorCode.NO_SUCH_LEDGER, f"no entry of ledger {ledger_id} is here to be confirmed"
        )
    return FencelogError(ErrorCode.LEDGER_FENCED, f"ledger {ledger_id} is fenced here")


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
