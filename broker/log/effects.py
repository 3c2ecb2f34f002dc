"""The states of ``LogCore``, and what it asks its shells for.

*Steps* take time. One is under way at a time, and each is reported to the core by the method that
it names, or as failed. Whatever else is asked for is done at once, in the order given.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fencelog.ledgers.errors import FencelogError


class LogState(Enum):
    """What an open log is doing."""

    OPENING = "opening"
    SERVING = "serving"
    ROLLING = "rolling"
    REPAIRING = "repairing"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    CLOSING = "closing"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RestoreState:
    """Read the state log, and what the recovered ledgers say of producers. Report ``restored``."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Write the list as its next owner, with this new ledger; None: the log is terminated and gets
    none. Report ``taken_over``."""

    ledger_id: int | None


@dataclass(frozen=True, slots=True)
class CreateLedger:
    """Create the next ledger, which is on no list yet. Report ``created``."""


@dataclass(frozen=True, slots=True)
class ListLedger:
    """Append a new ledger to the list; in the same change mark ``seals`` sealed. Report
    ``listed``."""

    ledger_id: int
    seals: int | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until nothing is outstanding in the present ledger, or it has failed. Report
    ``drained``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class CloseLedger:
    """Close a drained ledger by its writer. Report ``closed``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class CheckOwnership:
    """Wait so long, then make sure that the list and the leadership are still ours. Report
    ``owned``."""

    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Recover:
    """Fence and close a ledger by recovery. Report ``recovered``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Acknowledge what recovery has found in the failed ledger, take the rest back. Report
    ``settled``."""

    ledger_id: int
    last_entry_id: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Mark a closed ledger sealed in the list. Report ``sealed``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class EndLog:
    """In one change of the list mark the last ledger sealed and the log terminated. Report
    ``ended``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell callers that everything up to this entry of the present ledger is durable."""

    last_entry_id: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Something may be due: call ``advance`` when no step is under way."""


@dataclass(frozen=True, slots=True)
class Write:
    """Go on in this ledger, with what waits first."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class RefuseAppends:
    """Fail all appends: ``waiting`` for those that reached no ledger, ``handed`` for the others."""

    waiting: FencelogError
    handed: FencelogError


@dataclass(frozen=True, slots=True)
class StartDeadline:
    """Callers wait from now on: call ``deadline_passed`` after the append timeout."""


@dataclass(frozen=True, slots=True)
class StopDeadline:
    """They wait no more."""


@dataclass(frozen=True, slots=True)
class SetRollTimer:
    """Call ``roll_timer_fired`` at the first of these times that is not past; no other timer."""

    at_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Terminated:
    """Answer those who asked for the log's end; None: it is durable."""

    error: FencelogError | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """End the instance: drop what is in flight, fail every read, notify the owner."""

    error: FencelogError


Step = (
    RestoreState
    | TakeOver
    | CreateLedger
    | ListLedger
    | Drain
    | CloseLedger
    | CheckOwnership
    | Recover
    | Settle
    | Seal
    | EndLog
)
Action = (
    Acknowledge
    | Wake
    | Write
    | RefuseAppends
    | StartDeadline
    | StopDeadline
    | SetRollTimer
    | Terminated
    | Lost
)
Effect = Step | Action
