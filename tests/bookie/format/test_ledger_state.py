"""The state of a ledger in the index: read as it was written, and refused when it cannot be one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.format.ledger_state import (
    TOMBSTONE,
    BookieLedgerState,
    LedgerStates,
    decode_state,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk

NUMBERS = st.integers(-1, 2**63 - 1)


@given(st.sampled_from([(False, False), (True, False), (True, True)]), NUMBERS, NUMBERS)
def test_a_state_is_read_as_it_was_written(
    flags: tuple[bool, bool], last_entry: int, lac: int
) -> None:
    fenced, limbo = flags
    state = BookieLedgerState(fenced=fenced, last_entry=last_entry, lac=lac, limbo=limbo)
    read = decode_state(7, state.encode())
    assert (read.fenced, read.limbo) == (fenced, limbo)
    assert (read.last_entry, read.lac) == (last_entry, lac)
    assert read.fence_durable == fenced, "what the index holds is synced"


def test_golden_bytes() -> None:
    """The format is for ever."""
    state = BookieLedgerState(fenced=True, last_entry=258, lac=-1, limbo=True)
    assert state.encode().hex() == "01030000000000000201000000000000ffffffffffffffff"


GOOD = BookieLedgerState(last_entry=3, lac=2).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        b"\2" + GOOD[1:],
        GOOD[:1] + b"\2" + GOOD[2:],
        GOOD[:1] + b"\4" + GOOD[2:],
        GOOD[:7] + b"\1" + GOOD[8:],
        GOOD[:8] + (-2).to_bytes(8, "little", signed=True) + GOOD[16:],
        GOOD[:16] + (-2).to_bytes(8, "little", signed=True),
    ],
    ids=["empty", "short", "long", "version", "limbo alone", "flag", "zeros", "last", "lac"],
)
def test_what_this_version_does_not_know_is_corrupt(data: bytes) -> None:
    with pytest.raises(FencelogError, match="state of ledger 7") as caught:
        decode_state(7, data)
    assert caught.value.code is ErrorCode.CORRUPT


def test_what_changed_is_taken_once_in_order() -> None:
    states = LedgerStates()
    states.load([(2, BookieLedgerState(last_entry=1))])
    assert states.get(9) is None
    assert states.take_changed() == []
    states.change(5).fenced = True
    states.change(2).last_entry = 4
    states.change(5).lac = 3
    assert states.take_changed() == [
        (2, BookieLedgerState(last_entry=4).encode()),
        (5, BookieLedgerState(fenced=True, lac=3).encode()),
    ]
    assert states.take_changed() == []
    assert states.get(5) is states.change(5)


def test_all_deleted_ledgers_share_one_state_once_the_index_says_so() -> None:
    states = LedgerStates()
    for ledger_id in (1, 2):
        states.change(ledger_id).last_entry = 5
    states.remove(1, deleted=True)
    states.remove(2, deleted=False)
    removing = states.get(1)
    assert removing is not None
    assert removing.removing
    changed = dict(states.take_changed())
    removed = states.take_removed()
    states.are_removed(removed)
    assert removed == [1, 2] == [ledger_id for ledger_id, _ in states.items()]
    assert list(states.ids()) == [1, 2]
    assert states.get(1) is TOMBSTONE
    dropped = states.get(2)
    assert dropped is not None
    assert (dropped.limbo, dropped.deleted, dropped.removing) == (True, False, False)

    loaded = LedgerStates()
    loaded.load((i, decode_state(i, data)) for i, data in changed.items())
    assert loaded.get(1) is TOMBSTONE
    assert loaded.get(2) == BookieLedgerState(fenced=True, fence_durable=True, limbo=True)

    loaded.change(1).lac = 3
    assert TOMBSTONE.lac == -1, "what is changed is a copy"
    assert loaded.take_changed() == [
        (1, BookieLedgerState(fenced=True, deleted=True, lac=3).encode())
    ]


CHANGES = st.tuples(st.sampled_from(["add", "limbo", "clear", "drop", "delete"]), st.integers(1, 4))


@given(st.lists(CHANGES))
def test_what_is_counted_is_what_is_there(changes: list[tuple[str, int]]) -> None:
    states = LedgerStates()
    for what, ledger_id in changes:
        state = states.get(ledger_id)
        if what == "add":
            states.change(ledger_id)
        elif what in ("drop", "delete"):
            states.remove(ledger_id, deleted=what == "delete")
            states.are_removed(states.take_removed())
        elif state is None or not state.deleted:
            states.set_limbo(ledger_id, what == "limbo")
    loaded = LedgerStates()
    loaded.load((i, decode_state(i, data)) for i, data in states.take_changed())
    for seen in (states, loaded):
        known = [(i, state) for i, state in seen.items() if not state.deleted]
        assert seen.count == len(known)
        assert seen.in_limbo == {i for i, state in known if state.limbo}
        assert all(state.fenced for _, state in known if state.limbo)


def test_a_ledger_that_is_removed_again_during_the_flush_is_not_done_with() -> None:
    states = LedgerStates()
    states.remove(1, deleted=False)
    removed = states.take_removed()
    states.remove(1, deleted=True)
    states.are_removed(removed)
    state = states.get(1)
    assert state is not None
    assert state.removing
    states.are_removed(states.take_removed())
    assert states.get(1) is TOMBSTONE


def test_a_deleted_ledger_stays_deleted() -> None:
    states = LedgerStates()
    states.remove(1, deleted=True)
    for _ in range(2):
        state = states.remove(1, deleted=False)
        assert (state.deleted, state.limbo) == (True, False)
        states.are_removed(states.take_removed())
        assert states.get(1) is TOMBSTONE


async def test_that_a_fence_became_durable_is_no_change_to_be_flushed(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.waits.add("sync .journal")
    reading = asyncio.get_running_loop().create_task(bookie.read_lac(1, fence=True))
    await asyncio.sleep(0)
    assert [ledger_id for ledger_id, _ in bookie.shards[0].states.take_changed()] == [1]
    faulty_disk.waits.clear()
    await reading
    assert bookie.shards[0].states.take_changed() == []


def test_a_ledger_that_only_others_are_to_have_is_in_limbo_and_lacks_nothing() -> None:
    states = LedgerStates()
    states.set_limbo(1, True)
    states.remove(2, deleted=False)
    assert (states.in_limbo, states.strangers, states.lacking) == ({1, 2}, {2}, 1)
    states.set_stranger(1, True)
    assert states.lacking == 0
    states.set_stranger(1, False)
    states.set_stranger(7, True)  # it is not in limbo
    states.set_limbo(2, True)  # its entries may be lost again
    assert states.lacking == 2
    states.set_limbo(1, False)
    states.remove(2, deleted=True)
    assert (states.in_limbo, states.strangers, states.lacking) == (set(), set(), 0)
