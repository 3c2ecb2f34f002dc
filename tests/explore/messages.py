"""Messages between a client and a bookie, in flight or waiting to be sent."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.format.run import read_run_header, run_lac
from fencelog.ledgers.rpc.bookie_port import FenceAnswer, ReadReply

LEDGER_ID = 1


@dataclass(frozen=True, slots=True)
class Add:
    """A run for the bookie at this index of the sender's ensemble."""

    index: int
    first: int
    run: bytes
    recovery: bool
    incarnation: str | None

    def __str__(self) -> str:
        header = read_run_header(self.run)
        ids = " and ".join(map(str, range(self.first, header.last_entry_id + 1)))
        kind = "recovery add" if self.recovery else "add"
        return f"{kind} of entry {ids} (LAC {run_lac(self.run, header)})"


@dataclass(frozen=True, slots=True)
class ReadLac:
    index: int
    fence: bool

    def __str__(self) -> str:
        return "fencing LAC read" if self.fence else "LAC read"


@dataclass(frozen=True, slots=True)
class Fence:
    index: int
    above: int

    def __str__(self) -> str:
        return "fence"


@dataclass(frozen=True, slots=True)
class Read:
    entry_id: int
    max_entries: int
    fence: bool

    def __str__(self) -> str:
        return f"{'fencing ' if self.fence else ''}read of entry {self.entry_id}"


@dataclass(frozen=True, slots=True)
class WriteLac:
    lac: int
    incarnation: str

    def __str__(self) -> str:
        return f"word that entry {self.lac} is acknowledged"


Request = Add | ReadLac | Fence | Read | WriteLac

Outcome = None | int | FenceAnswer | ReadReply | ErrorCode
"""Done; a LAC; the end of a ledger; entries; why not."""


@dataclass(frozen=True, slots=True)
class Answer:
    request: Request
    outcome: Outcome

    def __str__(self) -> str:
        match self.outcome:
            case None:
                said = "done"
            case ErrorCode() as code:
                said = code.slug
            case ReadReply(_, run):
                header = read_run_header(run)
                said = f"entries {header.first_entry_id} to {header.last_entry_id}"
            case FenceAnswer(lac, run, absent):
                said = f"LAC {lac}, {read_run_header(run).entries if run else 0} entries"
                said += "" if absent is None else f", none at {absent}"
            case lac:
                said = f"LAC {lac}"
        return f"{said}, to its {self.request}"


@dataclass(frozen=True, slots=True)
class Link:
    """A client's connection to a bookie: requests in their order, and answers, which may overtake
    one another. What is left of connections that were given up is no part of it."""

    requests: tuple[Request, ...] = ()
    answers: tuple[Answer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requests or self.answers)


EMPTY = Link()
