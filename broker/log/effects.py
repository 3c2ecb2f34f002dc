"""The states of ``LogCore``, and the effects that it asks its shells for.

*Steps* take time. One is in progress at a time, and each is reported to the core by the method that
it names, or as failed. All other effects are carried out at once, in the order given.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fencelog.ledgers.errors import FencelogError


class LogState(Enum):
    """The states of an open log."""

    OPENING = "opening"
    SERVING = "serving"
    ROLLING = "rolling"
    REPAIRING = "repairing"
    ADOPTING = "adopting"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    CLOSING = "closing"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RestoreState:
    """Read the state log, and the facts about producers in the recovered ledgers. Report
    ``restored``."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Write the list as its next owner, with this new ledger; None: the log is terminated and gets
    no ledger. Report ``taken_over``."""

    ledger_id: int | None


@dataclass(frozen=True, slots=True)
class CreateLedger:
    """Create the next ledger, which is on no list yet. Report ``created``."""


@dataclass(frozen=True, slots=True)
class ListLedger:
    """Append a new ledger to the list; in the same change mark the ledger ``seals`` sealed and,
    with ``adopts``, put the sealed segments of a commit between the two. Report ``listed``."""

    ledger_id: int
    seals: int | None = None
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until nothing is outstanding in the current ledger, or it has failed. Report
    ``drained``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class CloseLedger:
    """Close a drained ledger by its writer. Report ``closed``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class CheckOwnership:
    """Wait for ``after_s``, then make sure that this instance still has the list and the
    leadership. Report ``owned``."""

    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Recover:
    """Fence and close a ledger by recovery. Report ``recovered``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Acknowledge the entries that recovery has found in the failed ledger, and take the rest back.
    Report ``settled``."""

    ledger_id: int
    last_entry_id: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Mark a ledger sealed in the list. It is closed; with ``closes`` it is drained, and closed as
    by its writer in the same change. Report ``sealed``."""

    ledger_id: int
    closes: bool = False


@dataclass(frozen=True, slots=True)
class EndLog:
    """Mark the last ledger sealed and the log terminated, in one change of the list. Report
    ``ended``."""

    ledger_id: int


class Acknowledge(NamedTuple):
    """Notify callers that everything up to this entry of the current ledger is durable."""

    last_entry_id: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Call ``advance`` when no step is in progress: one may be due."""


@dataclass(frozen=True, slots=True)
class Write:
    """Continue in this ledger, beginning with the appends that wait."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class RefuseAppends:
    """Fail all appends: with ``waiting`` those that reached no ledger, with ``handed`` the
    others."""

    waiting: FencelogError
    handed: FencelogError


@dataclass(frozen=True, slots=True)
class StartDeadline:
    """Call ``deadline_passed`` after the append timeout: callers wait from now on."""


@dataclass(frozen=True, slots=True)
class StopDeadline:
    """Cancel the deadline: callers no longer wait."""


@dataclass(frozen=True, slots=True)
class SetRollTimer:
    """Call ``roll_timer_fired`` at the first of these times that is not past; there is no other
    timer."""

    at_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Terminated:
    """Answer the callers that asked for the log's end; None: it is durable."""

    error: FencelogError | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """Answer the caller that asked for segments to be adopted; None: they are in the log."""

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
    | Adopted
    | Lost
)
Effect = Step | Action
