"""Marks of ledgers that lack copies: merging, lost answers, and removal by version."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencelog.bookie.replication.store import (
    Cause,
    FragmentMove,
    UnderReplicatedLedger,
    UnderReplicatedLedgers,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version, Versioned

LOST = frozenset({Cause.LOST_BOOKIE})


@pytest.fixture
async def store() -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore()
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def marks(store: MemoryMetadataStore) -> UnderReplicatedLedgers:
    return UnderReplicatedLedgers(store)


async def lost(
    marks: UnderReplicatedLedgers, ledger_id: int = 7, bookie: str = "b1", now_us: int = 5
) -> UnderReplicatedLedger:
    await marks.mark(ledger_id, missing=[bookie], why=Cause.LOST_BOOKIE, now_us=now_us)
    mark = await marks.get(ledger_id)
    assert mark is not None
    return mark


async def test_a_mark_names_bookies_causes_and_the_time(marks: UnderReplicatedLedgers) -> None:
    assert await marks.get(7) is None
    mark = await lost(marks)
    assert mark == UnderReplicatedLedger(7, {"b1": LOST}, 5, mark.version)


async def test_marks_are_merged_and_the_first_time_stays(marks: UnderReplicatedLedgers) -> None:
    await lost(marks)
    await marks.mark(7, missing=["b1", "b2"], why=Cause.DECOMMISSION, now_us=9)
    mark = await marks.get(7)
    assert mark is not None
    assert (mark.since_us, mark.missing) == (
        5,
        {
            "b1": frozenset({Cause.LOST_BOOKIE, Cause.DECOMMISSION}),
            "b2": frozenset({Cause.DECOMMISSION}),
        },
    )


async def test_a_mark_that_says_nothing_new_keeps_a_worker_from_removing_it(
    marks: UnderReplicatedLedgers,
) -> None:
    seen = await lost(marks)
    assert (await lost(marks, now_us=9)).version != seen.version
    assert not await marks.unmark(7, seen.version)
    assert await marks.get(7) is not None


async def test_a_mark_is_removed_at_its_version_only(marks: UnderReplicatedLedgers) -> None:
    mark = await lost(marks)
    assert await marks.unmark(7, mark.version)
    assert await marks.get(7) is None
    assert await marks.unmark(7, mark.version)
    again = await lost(marks, now_us=20)
    assert again.since_us == 20
    assert not await marks.unmark(7, mark.version)


async def test_lost_answers_leave_one_mark_and_one_removal(
    marks: UnderReplicatedLedgers, store: MemoryMetadataStore
) -> None:
    store.lose_replies(1)
    mark = await lost(marks)
    assert (mark.missing, mark.since_us) == ({"b1": LOST}, 5)
    store.lose_replies(1)
    mark = await lost(marks, bookie="b2", now_us=6)
    assert (mark.missing, mark.since_us) == ({"b1": LOST, "b2": LOST}, 5)
    store.lose_replies(1)
    assert await marks.unmark(7, mark.version)
    assert await marks.get(7) is None


async def test_an_outcome_that_stays_unknown_is_told(
    marks: UnderReplicatedLedgers, store: MemoryMetadataStore
) -> None:
    store.lose_replies(99)
    with pytest.raises(FencelogError) as caught:
        await marks.mark(7, missing=["b1"], why=Cause.LOST_BOOKIE, now_us=5)
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN


async def test_a_mark_created_or_removed_by_another_process_meanwhile_is_merged_or_made_again(
    marks: UnderReplicatedLedgers, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = store.get

    async def stale(path: str) -> Versioned:
        """Answer as before another process has created the mark."""
        monkeypatch.setattr(store, "get", get)
        await lost(marks, bookie="b2")
        raise FencelogError(ErrorCode.METADATA_NOT_FOUND, path)

    monkeypatch.setattr(store, "get", stale)
    assert (await lost(marks)).missing == {"b1": LOST, "b2": LOST}
    set_ = store.set

    async def removed(path: str, value: bytes, version: Version) -> Version:
        monkeypatch.setattr(store, "set", set_)
        assert await marks.unmark(7, version)
        return await set_(path, value, version)

    monkeypatch.setattr(store, "set", removed)
    assert (await lost(marks, bookie="b3", now_us=30)).missing == {"b3": LOST}


async def test_all_marks_are_listed_in_order_none_older_than_the_call(
    marks: UnderReplicatedLedgers,
) -> None:
    assert [mark async for mark in marks.list()] == []
    for ledger_id in (70_000, 3, 65_535):
        await lost(marks, ledger_id)
    assert [mark.ledger_id async for mark in marks.list()] == [3, 65_535, 70_000]
    assert [i async for i in marks.list_ids()] == [3, 65_535, 70_000]


async def test_a_listing_does_not_end_early(
    marks: UnderReplicatedLedgers, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lost(marks)
    get = marks.get

    async def expires(ledger_id: int) -> UnderReplicatedLedger | None:
        mark = await get(ledger_id)
        store.expire()
        return mark

    monkeypatch.setattr(marks, "get", expires)
    with pytest.raises(FencelogError) as caught:
        [mark async for mark in marks.list()]
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"v":2,"missing":{},"since_us":1}',
        b'{"v":1,"missing":{"b":["age"]},"since_us":1}',
        b'{"v":1,"missing":[],"since_us":1}',
        b'{"v":1,"missing":{}}',
    ],
)
async def test_a_node_that_is_no_mark_is_named(
    marks: UnderReplicatedLedgers, store: MemoryMetadataStore, value: bytes
) -> None:
    await store.create(f"{MARKS_PATH}/0/0007", value)
    with pytest.raises(FencelogError, match="/underreplication/ledgers/0/0007") as caught:
        await marks.get(7)
    assert caught.value.code is ErrorCode.CORRUPT


async def test_an_unreachable_store_changes_nothing(
    marks: UnderReplicatedLedgers, store: MemoryMetadataStore
) -> None:
    mark = await lost(marks)
    store.disconnect()
    for request in (
        marks.get(7),
        marks.unmark(7, mark.version),
        marks.mark(7, missing=["b2"], why=Cause.DAMAGED, now_us=1),
    ):
        with pytest.raises(FencelogError) as caught:
            await request
        assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    store.reconnect()
    assert await marks.get(7) == mark


async def test_no_version_of_another_creation_removes_a_mark() -> None:
    cluster = MemoryCluster()
    stores = [MemoryMetadataStore(cluster) for _ in range(2)]
    for store in stores:
        await store.start()
    ours, theirs = map(UnderReplicatedLedgers, stores)
    mark = await lost(ours)
    assert await theirs.unmark(7, mark.version)
    await lost(theirs)
    assert not await ours.unmark(7, mark.version)
    for store in stores:
        await store.close()


MOVES = (FragmentMove(0, "b1", "b7"), FragmentMove(5, "b2", "b7"))
BALANCE = frozenset({Cause.BALANCE})


async def test_moves_are_marked_with_their_targets(marks: UnderReplicatedLedgers) -> None:
    assert await marks.mark_moves(7, MOVES, now_us=5)
    mark = await marks.get(7)
    assert mark is not None
    missing = {"b1": BALANCE, "b2": BALANCE}
    assert mark == UnderReplicatedLedger(7, missing, 5, mark.version, MOVES)
    assert mark.is_for_balance
    assert mark.lacking == {}


async def test_a_ledger_that_is_marked_is_not_marked_for_a_move(
    marks: UnderReplicatedLedgers,
) -> None:
    mark = await lost(marks)
    assert not await marks.mark_moves(7, MOVES, now_us=9)
    assert await marks.get(7) == mark


async def test_a_cause_that_joins_a_move_leaves_it_there(marks: UnderReplicatedLedgers) -> None:
    await marks.mark_moves(7, MOVES, now_us=9)
    mark = await lost(marks)
    assert (mark.moves, mark.is_for_balance) == (MOVES, False)
    assert mark.missing == {"b1": LOST | BALANCE, "b2": BALANCE}
    assert mark.lacking == {"b1": LOST}


async def test_one_cause_is_withdrawn_and_the_others_stay(marks: UnderReplicatedLedgers) -> None:
    for bookie, why in (("b1", Cause.DECOMMISSION), ("b1", Cause.DAMAGED), ("b2", Cause.PLACEMENT)):
        await marks.mark(7, missing=[bookie], why=why, now_us=5)
    before = await marks.get(7)
    await marks.withdraw(7, "b3", Cause.DECOMMISSION)
    assert await marks.get(7) == before
    await marks.withdraw(7, "b1", Cause.DECOMMISSION)
    found = await marks.get(7)
    assert found is not None
    assert before is not None
    assert found.version != before.version
    assert found.missing == {"b1": {Cause.DAMAGED}, "b2": {Cause.PLACEMENT}}
    await marks.withdraw(7, "b1", Cause.DAMAGED)
    await marks.withdraw(7, "b2", Cause.PLACEMENT)
    assert await marks.get(7) is None
    await marks.withdraw(7, "b1", Cause.DECOMMISSION)
    assert await marks.get(7) is None


@pytest.mark.parametrize("others", [(), ("b2",)])
async def test_what_is_marked_during_a_withdrawal_stays(
    store: MemoryMetadataStore, marks: UnderReplicatedLedgers, others: tuple[str, ...]
) -> None:
    """Of a mark that would go, and of one that would stay."""
    await marks.mark(7, missing=["b1", *others], why=Cause.DECOMMISSION, now_us=5)
    read = marks.get

    async def marked_meanwhile(ledger_id: int) -> UnderReplicatedLedger | None:
        found = await read(ledger_id)
        marks.get = read  # type: ignore[method-assign]  # once
        await lost(marks, bookie="b1", now_us=6)
        return found

    marks.get = marked_meanwhile  # type: ignore[method-assign]  # a race
    await marks.withdraw(7, "b1", Cause.DECOMMISSION)
    found = await marks.get(7)
    assert found is not None
    assert found.missing == {"b1": LOST, **{b: {Cause.DECOMMISSION} for b in others}}
