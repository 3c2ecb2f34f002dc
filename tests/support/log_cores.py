"""Cores of open logs, each brought into one state."""

from __future__ import annotations

from fencelog.broker.log.core import LogCore
from fencelog.broker.log.effects import (
    CreateLedger,
    Drain,
    Effect,
    ListLedger,
    LogState,
    StartDeadline,
)
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError

GONE = FencelogError(ErrorCode.APPEND_UNKNOWN, "two bookies are gone")
FENCED = FencelogError(ErrorCode.LEDGER_FENCED, "fenced")
AWAY = FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "one is left")
TAKEN = FencelogError(ErrorCode.NO_OWNER, "taken over")
POLICY = Policy(roll_entries=10, roll_ms=60_000)
TIMES = (60.0, 0.0)
"""The time at which the first ledger may be rolled without news."""


def advance(core: LogCore, *, is_idle: bool = True, segments: int = 1) -> list[Effect]:
    return core.advance(now_s=1.0, segments=segments, is_idle=is_idle)


def ack(core: LogCore, last: int, *, ledger_id: int = 1, segments: int = 1) -> list[Effect]:
    return core.acknowledged(ledger_id, last, size=0, now_s=1.0, segments=segments)


def state_of(core: LogCore) -> LogState:
    """Return the state anew: a type checker believes that an attribute stays as it was."""
    return core.state


def refusal_of(core: LogCore) -> FencelogError | None:
    """Return the refusal anew, for the same reason."""
    return core.mode.refusal


def serving() -> LogCore:
    core = LogCore("a log", POLICY)
    core.open([], is_terminated=False)
    core.restored()
    core.created(1, opened_at_s=0.0)
    core.taken_over(tail_offset=0)
    return core


def terminated() -> LogCore:
    core = LogCore("a log", POLICY)
    core.open([], is_terminated=True)
    core.restored()
    core.taken_over(tail_offset=7)
    return core


def rolling() -> LogCore:
    """Ledger 2 is listed, ledger 1 is drained."""
    core = serving()
    ack(core, 9)
    assert advance(core) == [CreateLedger()]
    assert core.created(2, opened_at_s=1.0) == [ListLedger(2)]
    assert core.listed() == [Drain(1)]
    return core


def repairing(error: FencelogError = GONE) -> LogCore:
    """The ownership is being checked."""
    core = serving()
    core.ledger_failed(1, error)
    advance(core, is_idle=False)
    return core


def terminating() -> LogCore:
    core = serving()
    core.terminate()
    assert advance(core) == [StartDeadline(), Drain(1)]
    return core


def adopting() -> LogCore:
    """Ledger 2 is created, ledger 1 is being drained."""
    core = serving()
    core.adopt()
    assert advance(core) == [CreateLedger()]
    assert core.created(2, opened_at_s=1.0) == [StartDeadline(), Drain(1)]
    return core


def closing() -> LogCore:
    core = serving()
    core.close()
    return core
