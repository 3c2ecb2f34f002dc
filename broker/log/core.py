"""An open log as a pure state machine: events and outcomes of steps are its inputs, effects its
outputs.

It has no clock, does no I/O and never awaits. The shells (``partition/takeover.py`` while the log
opens, then ``log/log_writer.py``) carry the effects out. These rules of SEMANTICS.md, "The list of
ledgers", are kept here:

* a ledger is written only after it was listed;
* a roll lists the new ledger while the old one is still written, then sends nothing until the old
  one is drained, switches, and closes it; the next roll begins only after that;
* a ledger that failed is recovered first; the entries that recovery found in it are acknowledged,
  the rest is sent to the next ledger;
* segments that were written elsewhere are adopted between two ledgers of the log's own, in the one
  change that seals the first and lists the second, while nothing is in flight;
* one step at a time; between two attempts of a step the core makes sure that the log still belongs
  to this instance, and a list that another instance has changed is never contested: the log is
  LOST, for good;
* a terminated log has no ledger and accepts no appends any more.

SEMANTICS.md, "The states of an open log", has the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencelog.broker.ledger_list.ledger_list import MAX_SEGMENTS
from fencelog.broker.log.effects import (
    Acknowledge,
    CreateLedger,
    Effect,
    LogState,
    RefuseAppends,
    Wake,
)
from fencelog.broker.log.steps_core import LogSteps, unknown
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import FencelogError, check, copy_of


class LogCore(LogSteps):
    """One instance of one log. Every method returns the effects to carry out, in their order."""

    @property
    def is_serving(self) -> bool:
        """Tell whether requests are accepted; once False it never becomes True again."""
        return self.state is not LogState.LOST and not self._is_closing

    def open(self, to_recover: Iterable[int], *, is_terminated: bool) -> list[Effect]:
        """Take the log over: recover these ledgers of the list, restore the state of the partition,
        create a ledger unless the log is terminated, and write the list."""
        self._to_recover.extend(to_recover)
        self.is_terminated = is_terminated
        return self._open_next()

    # -- events ----------------------------------------------------------------------------------

    def acknowledged(
        self, ledger_id: int, last_entry_id: int, *, size: int, now_s: float, segments: int
    ) -> list[Effect]:
        """Note that all entries up to this one are durable. ``size``: payload bytes up to there;
        ``segments``: ledgers on the list."""
        ledger = self.ledger  # the hot path: one call, however many messages there are
        if ledger is None or ledger.ledger_id != ledger_id or ledger.failure is not None:
            return []
        if self.error is not None:
            return []
        ledger.last_entry_id, ledger.size = last_entry_id, size
        is_roll_due = self._rolls.is_due(ledger, now_s) and segments < MAX_SEGMENTS
        if self.mode.is_held or self._is_closing or is_roll_due:
            return [Acknowledge(last_entry_id), Wake()]
        return [Acknowledge(last_entry_id)]

    def ledger_failed(self, ledger_id: int, error: FencelogError) -> list[Effect]:
        """Note that the writer of a ledger has failed: the outcome of the appends in flight is
        unknown."""
        ledger = self._written(ledger_id)
        if ledger is None:
            return []
        ledger.failure = error
        self.mode.hold(True)
        if self._step is None:
            self.state = LogState.REPAIRING
        return [*self._start_deadline(), Wake()]

    def deadline_passed(self) -> list[Effect]:
        """Note that the ledger is not replaced yet, or the log not terminated: the callers' appends
        fail, and new ones are refused meanwhile."""
        if not self._has_deadline:
            return []
        error = self._unwritable()
        if self.mode.refusal is None:
            self.mode.refusal = error
        return [RefuseAppends(error, unknown(error.detail))]

    def roll_timer_fired(self) -> list[Effect]:
        """Note that a roll may have become due."""
        return [] if self._live is None else [Wake(), self._roll_timer(self._live)]

    # -- requests --------------------------------------------------------------------------------

    def apply_policy(self, policy: Policy) -> list[Effect]:
        """Roll by this policy from now on, including the current ledger."""
        self._rolls.policy = policy
        return [] if self._live is None else [self._roll_timer(self._live), Wake()]

    def want_roll(self) -> list[Effect]:
        """Continue in a new ledger soon, so that the current one can be deleted."""
        return [Wake()] if self._live is not None and self._rolls.want(self._live) else []

    def terminate(self) -> list[Effect]:
        """Stop accepting appends, for good. Raises FencelogError: why the log has ended, if it
        has."""
        if self.is_terminated:
            return []
        self._check_serving()
        self._is_terminating = True
        return [Wake()]

    def adopt(self) -> list[Effect]:
        """Take sealed segments into the log soon, all of them or none; ``Adopted`` tells. Asked
        again only after that. Raises FencelogError: why nothing more gets into the log."""
        self._check_serving()
        if self.is_terminated and self.mode.refusal is not None:
            raise copy_of(self.mode.refusal)
        check(not self._is_adopting, f"{self.path}: segments are being adopted already")
        self._is_adopting = True
        return [Wake()]

    def close(self) -> list[Effect]:
        """Refuse new appends, let appends in flight finish, seal the last ledger, and end."""
        if self.state is LogState.LOST:
            return []
        self._is_closing = True
        if not self.is_terminated:
            self.mode.refusal = self._draining()
        if self.state is LogState.SERVING:
            self.state = LogState.CLOSING
        is_under_way = self.state is LogState.ADOPTING
        return [*([] if is_under_way else self._refuse_adoption(self._draining())), Wake()]

    def advance(self, *, now_s: float, segments: int, is_idle: bool) -> list[Effect]:
        """Begin the step that is due. ``is_idle``: no append waits or is in flight."""
        if self._step is not None or self.state in (LogState.OPENING, LogState.LOST):
            return []
        ledger = self.ledger
        if self._is_closing and is_idle and ledger is None:
            return self.lose(self._draining())
        if ledger is None:
            return []
        self._ending = ledger
        if self._is_closing and is_idle:
            self.state = LogState.CLOSING
            return self._drain()
        if self._is_terminating:
            self.state = LogState.TERMINATING
            return [*self._start_deadline(), *self._drain()]
        if ledger.failure is not None:
            self.state = LogState.REPAIRING
            return self._recover(ledger)
        if self._is_adopting:
            self.state = LogState.ADOPTING
            return self._do(CreateLedger())
        is_roll_due = self._rolls.is_due(ledger, now_s) and segments < MAX_SEGMENTS
        if is_roll_due and not self._is_closing:
            self.state = LogState.ROLLING
            return self._do(CreateLedger())
        return []

    def _check_serving(self) -> None:
        if not self.is_serving:
            raise copy_of(self.error or self._draining())
