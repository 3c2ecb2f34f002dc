"""The way out for the adds of a process: in each turn of the loop one call for each bookie.

With traffic over many ledgers each turn brings a few entries to many of them. Those who append, and
then the writers, are called together, and all runs for one bookie are handed over at once, in the
order in which the cores decided on them: so each bookie sees the runs of a ledger in that order. So
are explicit LACs, which follow the runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import Run
from fencelog.ledgers.rpc.bookie_port import AddToken, BookieDirectory, LedgerLac
from fencelog.ledgers.writer.core import Send
from fencelog.ledgers.writer.explicit_lac import LacTimer

OnReply = Callable[[Send, FencelogError | None], None]

OnLacReply = Callable[[str, FencelogError | None], None]
"""The callback for an explicit LAC: it gets the bookie and its answer."""


class Outbox:
    """The adds and explicit LACs of all writers of one process. It holds nothing beyond the current
    turn."""

    def __init__(self, bookies: BookieDirectory) -> None:
        self._bookies = bookies
        self._appends: list[Callable[[], None]] = []
        self._flushes: list[Callable[[], None]] = []
        self._waiting: dict[tuple[str, str], tuple[list[Run], list[AddToken]]] = {}
        self._lacs: dict[tuple[str, str], tuple[list[LedgerLac], list[AddToken]]] = {}
        self.lac_timer = LacTimer()
        self._scheduled = False

    def append_soon(self, append: Callable[[], None]) -> None:
        """Call ``append`` before the writers are flushed: what it appends leaves with the next
        hand-over."""
        self._appends.append(append)
        if not self._scheduled:
            self._schedule()

    def flush_soon(self, flush: Callable[[], None]) -> None:
        """Call a writer's ``flush`` before the next hand-over; it sends what it has queued."""
        self._flushes.append(flush)
        if not self._scheduled:
            self._schedule()

    def send(
        self, run: Run, sends: Iterable[Send], incarnations: Mapping[str, str], on_reply: OnReply
    ) -> None:
        """Send a run to bookies, to each as long as it has this incarnation. ``on_reply`` gets the
        answers, later."""
        for send in sends:
            member = send.bookie_id, incarnations[send.bookie_id]
            waiting = self._waiting.get(member)
            if waiting is None:
                waiting = self._waiting[member] = [], []
            waiting[0].append(run)
            waiting[1].append((on_reply, send))
        if not self._scheduled:
            self._schedule()

    def send_lac(
        self,
        lac: LedgerLac,
        ensemble: Iterable[str],
        incarnations: Mapping[str, str],
        on_reply: OnLacReply,
    ) -> None:
        """Send the LAC of a ledger to the members of its ensemble, as ``send`` does."""
        for bookie_id in ensemble:
            member = bookie_id, incarnations[bookie_id]
            waiting = self._lacs.get(member)
            if waiting is None:
                waiting = self._lacs[member] = [], []
            waiting[0].append(lac)
            waiting[1].append((on_reply, bookie_id))
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        appends, self._appends = self._appends, []
        _call_all(appends)
        flushes, self._flushes = self._flushes, []
        _call_all(flushes)
        self._scheduled = False
        self.hand_over()
        if (self._appends or self._flushes) and not self._scheduled:
            self._schedule()  # what these have brought about is for the next turn

    def hand_over(self) -> None:
        """Hand all runs and LACs to the bookies now: those of later turns follow them."""
        waiting, self._waiting = self._waiting, {}
        for (bookie_id, incarnation), (runs, tokens) in waiting.items():
            self._bookies.client(bookie_id).add_many(
                runs, tokens, incarnation=incarnation, on_replies=_answer
            )
        if self._lacs:
            waiting_lacs, self._lacs = self._lacs, {}
            for (bookie_id, incarnation), (lacs, tokens) in waiting_lacs.items():
                self._bookies.client(bookie_id).write_lacs(
                    lacs, tokens, incarnation=incarnation, on_replies=_answer
                )


def _call_all(callbacks: Iterable[Callable[[], None]]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception as error:  # a bug in one writer; the others' runs have to leave
            _report("a writer could not send its runs", error)


def _answer(tokens: Sequence[AddToken], error: FencelogError | None) -> None:
    for on_reply, what in tokens:
        try:
            on_reply(what, error)
        except Exception as bug:  # in one writer; the others have to get their answers
            _report("a writer could not take an answer", bug)


def _report(message: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
