"""The answers of a bookie: the model of the stories, which is held against the real one
(``tests/scripts/test_playground_bookie.py``)."""

from __future__ import annotations

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.limits import MAX_READ_BYTES
from fencelog.ledgers.rpc.bookie_port import NO_LAC, ReadReply
from tests.explore.messages import LEDGER_ID, Add, Fence, Outcome, Read, ReadLac, Request, WriteLac
from tests.explore.metadata import drive
from tests.scripts.playground_bookie import ModelBookie

NAME = "bookie"
"""The name of all bookies: they are told apart by those that know them, not by their parts."""


def new_bookie() -> ModelBookie:
    return ModelBookie(NAME)


def carry_out(bookie: ModelBookie, request: Request) -> Outcome:
    """The request's effect on the bookie, and the answer."""
    try:
        match request:
            case Add(_, _, run, recovery, incarnation):
                bookie.add(run, recovery=recovery, incarnation=incarnation)
                return None
            case WriteLac(lac, incarnation):
                bookie.write_lac(LEDGER_ID, lac, incarnation=incarnation)
                return None
            case ReadLac(_, fence):
                asked = bookie.read_lac(LEDGER_ID, fence=fence, above=NO_LAC, wait_ms=0)
                return drive(asked)
            case Fence(_, above):
                return bookie.fence_and_read(LEDGER_ID, above)
            case Read(entry_id, max_entries, fence):
                return bookie.read(
                    LEDGER_ID,
                    entry_id,
                    max_entries=max_entries,
                    max_bytes=MAX_READ_BYTES,
                    fence=fence,
                )
    except FencelogError as error:
        return error.code


def as_heard(request: Request, outcome: Outcome) -> Outcome:
    """The answer without what whoever asked does not use: a recovery, whose reads fence, learns the
    LAC by its LAC reads alone. So states that differ in nothing else are one."""
    if isinstance(request, Read) and isinstance(outcome, ReadReply) and request.fence:
        return ReadReply(NO_LAC, outcome.run)
    return outcome


def is_settled(bookie: ModelBookie, request: Request, entries: int) -> bool:
    """Tell whether the request changes nothing and its answer will be the same whenever it is
    carried out, as long as the bookie lives: then it may as well be carried out now."""
    ledger = bookie.ledgers.get(LEDGER_ID)
    if ledger is None:
        return False
    match request:
        case Add(_, first, _, True, _):
            return all(entry_id in ledger.entries for entry_id in range(first, entries))
        case Add() | WriteLac():
            return ledger.fenced
        case Read(entry_id, max_entries, fence):
            wanted = range(entry_id, min(entry_id + max_entries, entries))
            has_all = bool(wanted) and all(one in ledger.entries for one in wanted)
            return has_all and fence and ledger.fenced
        case ReadLac() | Fence():
            return False


def still_matters(bookie: ModelBookie, request: Request) -> bool:
    """Tell whether a request whose answer nobody waits for may yet change something at the
    bookie."""
    ledger = bookie.ledgers.get(LEDGER_ID)
    match request:
        case Fence():
            return not (ledger is not None and ledger.fenced)
        case Read(_, _, fence) | ReadLac(_, fence):
            return fence and not (ledger is not None and ledger.fenced)
        case Add(_, first, _, True, _):
            return ledger is None or first not in ledger.entries
        case Add(_, _, _, _, incarnation) | WriteLac(_, incarnation):
            if incarnation != bookie.incarnation:
                return False
            return ledger is None or not ledger.fenced


def comes_back_empty(bookie: ModelBookie, *, is_named: bool) -> None:
    """All is lost, and the bookie knows: it has another incarnation, and before it serves it fences
    the ledger if metadata names it, in limbo."""
    bookie.run += 1
    named = [LEDGER_ID] if is_named else []
    bookie.forget(named, limbo=named)


def lets_go(bookie: ModelBookie) -> None:
    """The ledger was deleted: a tombstone is all that is left."""
    bookie.remove(LEDGER_ID)
