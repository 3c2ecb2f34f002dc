"""The LAC that a writer sends by itself: when it is due, and the answers of bookies.

The LAC travels with the next add. Where no add follows, the last entries would stay invisible to
readers of the bookies; so it is sent once by itself. Safety does not depend on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import EXPLICIT_LAC_TICK_MS
from fencelog.ledgers.writer.core import WriterCore

_TICK_S = EXPLICIT_LAC_TICK_MS / 1000


class LacTimer:
    """The timer for the ledgers of one process whose LAC may have to be sent.

    There is one timer however many ledgers wait: the loop would be woken for each of thousands a
    second. Those that become due within EXPLICIT_LAC_TICK_MS are looked at together, at its end, so
    that what they send leaves together.
    """

    def __init__(self) -> None:
        self._due: dict[int, list[Callable[[], None]]] = {}
        """The callbacks by the tick at whose end they are called."""
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick = 0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, after the delay and less than a tick more."""
        tick = ceil((asyncio.get_running_loop().time() + delay_s) / _TICK_S)
        due = self._due.get(tick)
        if due is not None:
            due.append(callback)
            return
        self._due[tick] = [callback]
        if self._timer is None or tick < self._next_tick:
            self._set(tick)

    def _set(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick = tick
        self._timer = asyncio.get_running_loop().call_at(tick * _TICK_S, self._end_tick)

    def _end_tick(self) -> None:
        for callback in self._due.pop(self._next_tick):
            try:
                callback()
            except Exception as error:  # a bug in one writer; the others' LACs have to leave
                report = {"message": "a writer could not send its LAC", "exception": error}
                asyncio.get_running_loop().call_exception_handler(report)
        self._timer = None
        if self._due:
            self._set(min(self._due))


class ExplicitLac:
    """The LAC of one writer: it is looked at after an acknowledgement, at most once an interval,
    however many adds there are. ``interval_ms`` 0: never."""

    __slots__ = ("_core", "_interval_s", "_is_waiting", "_last_add_pushed", "_tell", "_timer")

    def __init__(
        self, core: WriterCore, timer: LacTimer, *, interval_ms: int, tell: Callable[[int], None]
    ) -> None:
        self._core = core
        self._timer = timer
        self._interval_s = interval_ms / 1000
        self._tell = tell
        self._last_add_pushed = core.last_add_pushed
        self._is_waiting = interval_ms == 0

    def acknowledged(self) -> None:
        """Have the LAC, which has grown, sent unless an add carries it."""
        if not self._is_waiting:
            self._wait()

    def stop(self) -> None:
        """Send no more: the writer is closing or finished."""
        self._is_waiting = True
        self._interval_s = 0.0

    def _wait(self) -> None:
        self._is_waiting = True
        self._last_add_pushed = self._core.last_add_pushed
        self._timer.call_later(self._interval_s, self._time_is_over)

    def _time_is_over(self) -> None:
        if self._interval_s == 0:
            return
        self._is_waiting = False
        core = self._core
        if core.has_pending:
            return  # its acknowledgement begins anew
        if core.last_add_pushed != self._last_add_pushed:
            self._wait()
        else:
            self._tell(core.lac)


class LacReplies:
    """The answers of an ensemble to one LAC. ``enough``: Qa members of every write set know it, so
    that a recovery hears it from one of those that it fences; or all have answered."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self._waiting = metadata.ensemble_size
        self._needed = metadata.ensemble_size - metadata.write_quorum + metadata.ack_quorum
        self.enough = asyncio.Event()

    def take(self, error: FencelogError | None) -> None:
        """Count the answer of one bookie."""
        self._waiting -= 1
        self._needed -= error is None
        if self._needed <= 0 or self._waiting == 0:
            self.enough.set()
