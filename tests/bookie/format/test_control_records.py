"""Records that are no entries: what replay makes of them, in the order of the journal."""

from __future__ import annotations

import pytest

from fencelog.bookie.format.control_records import lac_body, ledger_body, take_back
from fencelog.bookie.format.ledger_state import BookieLedgerState, LedgerStates
from fencelog.bookie.format.records import Record, RecordType


def replayed(*records: tuple[RecordType, bytes]) -> BookieLedgerState:
    """The state of ledger 7 after these records."""
    states = LedgerStates()
    for sequence, (kind, body) in enumerate(records, 1):
        take_back(Record(kind, sequence, sequence - 1, body, end=0), states)
    state = states.get(7)
    assert state is not None
    return state


FENCE = (RecordType.FENCE, ledger_body(7))
LIMBO = (RecordType.LIMBO, ledger_body(7))
CLEARED = (RecordType.LIMBO_CLEARED, ledger_body(7))


def test_golden_bodies() -> None:
    """The formats are for ever."""
    assert ledger_body(258).hex() == "0201000000000000"
    assert lac_body(258, -1).hex() == "0201000000000000ffffffffffffffff"


@pytest.mark.parametrize(
    ("records", "fenced", "limbo"),
    [
        ([FENCE], True, False),
        ([LIMBO], True, True),
        ([FENCE, LIMBO], True, True),
        ([LIMBO, FENCE], True, True),
        ([LIMBO, CLEARED], True, False),
        ([LIMBO, CLEARED, LIMBO], True, True),
        ([CLEARED], False, False),
    ],
)
def test_fences_stay_and_limbo_is_what_was_said_last(
    records: list[tuple[RecordType, bytes]], fenced: bool, limbo: bool
) -> None:
    state = replayed(*records)
    assert (state.fenced, state.fence_durable, state.limbo) == (fenced, fenced, limbo)


@pytest.mark.parametrize(
    "record",
    [
        FENCE,
        LIMBO,
        CLEARED,
        (RecordType.LAC, lac_body(7, 3)),
        (RecordType.DELETED, ledger_body(7)),
        (RecordType.DROPPED, ledger_body(7)),
    ],
)
def test_what_replay_finds_is_in_the_next_flush(record: tuple[RecordType, bytes]) -> None:
    """The checkpoint behind that flush lets go of the record: nothing else would bring it back."""
    states = LedgerStates()
    states.load([(7, BookieLedgerState(last_entry=5))])
    take_back(Record(record[0], 1, 0, record[1], end=0), states)
    state = states.get(7)
    assert state is not None
    assert states.take_changed() == [(7, state.encode())]
    assert states.take_changed() == []


@pytest.mark.parametrize(
    ("kind", "deleted", "limbo"),
    [(RecordType.DELETED, True, False), (RecordType.DROPPED, False, True)],
)
def test_what_was_removed_is_fenced_and_holds_nothing(
    kind: RecordType, deleted: bool, limbo: bool
) -> None:
    state = replayed((RecordType.LAC, lac_body(7, 3)), (kind, ledger_body(7)))
    assert (state.fenced, state.fence_durable, state.removing) == (True, True, True)
    assert (state.deleted, state.limbo) == (deleted, limbo)
    assert (state.last_entry, state.lac) == (-1, -1)


def test_the_lac_never_goes_back() -> None:
    told = [(RecordType.LAC, lac_body(7, lac)) for lac in (3, 9, 4)]
    state = replayed(*told)
    assert (state.lac, state.fenced) == (9, False)
