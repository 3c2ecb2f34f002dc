"""Many adds in one call end as each would by itself. A stored run that is damaged is replaced: by
just its entries, and only where it still is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - each test seeds its own
from typing import Any, Unpack

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run
from tests.support.bookie_stage import (
    BookieSettings,
    OpenBookie,
    Requests,
    is_removing,
    refusal_of,
)
from tests.support.faulty_disk import FaultyDisk


async def test_many_adds_are_one_group_of_the_journal_and_one_answer(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    runs = [read_run(requests.run(ledger, 0, lac=-1)) for ledger in range(1, 101)]
    tokens = [object() for _ in runs]
    answers: list[tuple[Sequence[object], FencelogError | None]] = []
    faulty_disk.calls.clear()
    bookie.add_many(runs, tokens, on_replies=lambda *answer: answers.append(answer))
    await requests.until(lambda: bool(answers))
    assert answers == [(tokens, None)]
    syncs = [call for call in faulty_disk.calls if call.endswith(".journal")]
    assert [call.split()[0] for call in syncs] == ["write", "sync"]
    for run in runs:
        assert await requests.read(bookie, run.header.ledger_id, 0) == run.data
    await bookie.close()
    bookie = await open_bookie()
    assert [ledger for ledger, _ in bookie.shards[0].states.items()] == list(range(1, 101))


async def test_each_lac_of_many_adds_waits_for_the_record_that_carries_it(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add_many(bookie, [requests.run(ledger, 0, lac=-1) for ledger in (1, 2, 3)])
    shard = bookie.shards[0]
    first = shard.journal.position.sequence
    runs = [read_run(requests.run(ledger, 1, lac=0)) for ledger in (1, 2, 3)]
    answers: list[FencelogError | None] = []
    bookie.add_many(runs, range(3), on_replies=lambda _, error: answers.append(error))
    states = [shard.states.get(ledger) for ledger in (1, 2, 3)]
    assert [state and state.lac_sequence for state in states] == [first, first + 1, first + 2]
    await requests.until(lambda: bool(answers))


async def test_many_adds_to_ledgers_of_an_earlier_flush_outlive_the_next_one(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    ledgers, entries = range(1, 4), range(3)
    for entry_id in entries:
        bookie = await open_bookie()
        runs = [requests.run(ledger_id, entry_id) for ledger_id in ledgers]
        assert await requests.add_many(bookie, runs) == [None] * len(runs)
        await bookie.close()
    bookie = await open_bookie()
    for ledger_id in ledgers:
        for entry_id in entries:
            found = await requests.read(bookie, ledger_id, entry_id, 1)
            assert found == requests.run(ledger_id, entry_id)


async def test_adds_that_are_refused_do_not_concern_the_others(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await bookie.read_lac(2, fence=True)
    await bookie.shard(3).remove(3, deleted=True)
    runs = [
        requests.run(1, 0, 2),
        requests.run(2, 0),
        requests.run(1, 2, lac=2),
        requests.run(1, 1, 2),
        requests.run(3, 0),
        requests.run(4, 0),
    ]
    answers = await requests.add_many(bookie, runs)
    assert list(map(refusal_of, answers)) == [
        None,
        ErrorCode.LEDGER_FENCED,
        ErrorCode.BAD_REQUEST,
        None,
        ErrorCode.LEDGER_FENCED,
        None,
    ]
    assert await requests.read(bookie, 1, 0) == requests.run(1, 0, 3)
    assert await requests.read(bookie, 4, 0) == requests.run(4, 0)
    bookie.is_read_only = True
    answers = await requests.add_many(bookie, [requests.run(2, 0), requests.run(5, 0)])
    # Fenced comes first: read-only would only make the writer change its ensemble.
    assert list(map(refusal_of, answers)) == [ErrorCode.LEDGER_FENCED, ErrorCode.READ_ONLY]


@pytest.mark.parametrize("seed", range(4))
async def test_many_adds_end_as_they_would_one_by_one(
    seed: int, open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    """The same requests to two bookies, one of which has shards: the same answers, entries and
    LACs. Retries, overlaps, gaps, wrong numbers and fences included."""
    chance = Random(seed)
    one = await open_bookie(data_dir=tmp_path / "one")
    directories = (tmp_path / "disk-1", tmp_path / "disk-2")
    many = await open_bookie(data_dir=tmp_path / "many", ledger_dirs=directories)
    ends = dict.fromkeys(range(1, 7), 0)
    for _ in range(25):
        runs = []
        for _ in range(chance.randint(1, 12)):
            ledger = chance.choice(list(ends))
            first = max(0, ends[ledger] + chance.choice([0, 0, 0, 0, 1, -1, -3]))
            count = chance.randint(1, 3)
            lac = chance.choice([-1, first - 1, first - 1, first + count])
            runs.append(requests.run(ledger, first, count, lac=lac))
            ends[ledger] = max(ends[ledger], first + count)
        answers = await requests.add_many(many, runs)
        singly = [await requests.add(one, run) for run in runs]
        assert list(map(refusal_of, answers)) == list(map(refusal_of, singly))
        if chance.random() < 0.1:
            ledger = chance.choice(list(ends))
            for bookie in (one, many):
                await bookie.read_lac(ledger, fence=True)
    for ledger in ends:
        assert await one.list_entries(ledger) == await many.list_entries(ledger)
        assert await one.read_lac(ledger) == await many.read_lac(ledger)


async def test_many_adds_wait_for_room_in_their_order_and_see_the_fence_behind_them(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk, write_cache_bytes=1 << 20)
    faulty_disk.waits.add("sync .entrylog")
    large = [read_run(requests.run(1, entry, size=200_000)) for entry in range(7)]
    small = [read_run(requests.run(ledger, 0)) for ledger in (2, 3)]
    answers: list[tuple[object, ErrorCode | None]] = []

    def on_replies(tokens: Sequence[object], error: FencelogError | None) -> None:
        answers.extend((token, refusal_of(error)) for token in tokens)

    bookie.add_many([*large, *small], range(9), on_replies=on_replies)
    assert bookie.is_under_pressure
    bookie.fence(3)
    await requests.until(lambda: len(answers) >= 6)
    assert answers == [(number, None) for number in range(6)]
    faulty_disk.waits.clear()
    await requests.until(lambda: len(answers) == 9)
    assert dict(answers[6:]) == {6: None, 7: None, 8: ErrorCode.LEDGER_FENCED}


async def test_many_adds_are_unknown_when_the_journal_fails(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.fails.add("sync .journal")
    for _ in range(2):  # those in flight, then those that come later
        runs = [requests.run(ledger, 0) for ledger in (1, 2)]
        answers = await requests.add_many(bookie, runs)
        assert list(map(refusal_of, answers)) == [ErrorCode.STORAGE_FAILED] * 2


async def with_stored(
    open_bookie: OpenBookie, requests: Requests, **settings: Unpack[BookieSettings]
) -> Bookie:
    """Ledger 1, fenced, with entries 0..4 and 10..14 in entry logs."""
    bookie = await open_bookie(**settings)
    for first in (0, 10):
        assert await requests.add(bookie, requests.run(1, first, 5)) is None
    await bookie.read_lac(1, fence=True)
    await bookie.close()
    return await open_bookie(**settings)


@pytest.mark.parametrize(("first", "count"), [(0, 4), (1, 4), (0, 6), (0, 15), (5, 5), (20, 5)])
async def test_only_whole_stored_runs_are_replaced(
    first: int, count: int, open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await with_stored(open_bookie, requests)
    assert await requests.add(bookie, requests.run(1, 5, 1), recovery=True) is None
    with pytest.raises(FencelogError) as caught:
        await bookie.shard(1).adds.replace(requests.run(1, first, count))
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_a_run_replaced_twice_or_merged_with_new_ones_is_there_once(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await with_stored(open_bookie, requests)
    assert await requests.add(bookie, requests.run(1, 5, 5), recovery=True) is None
    for first in (0, 0, 10):
        await bookie.shard(1).adds.replace(requests.run(1, first, 5))
    for _ in range(2):
        assert await requests.read(bookie, 1, 0) == requests.run(1, 0, 15)
        listed = await bookie.list_entries(1)
        assert listed.availability.count == 15
        await bookie.close()
        bookie = await open_bookie()
    stored = await bookie.shard(1).reads.stored_ranges(1, (0, 100))
    assert stored == [(0, 14)]


async def test_the_last_run_of_a_ledger_is_replaced_up_to_its_end(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    """The rest of it goes with the flush, also after a start that found it in the journal."""
    bookie = await with_stored(open_bookie, requests)
    for refused in (requests.run(1, 9, 3), requests.run(1, 11, 2)):
        with pytest.raises(FencelogError) as caught:
            await bookie.shard(1).adds.replace(refused, is_end=True)
        assert caught.value.code is ErrorCode.BAD_REQUEST
    await bookie.shard(1).adds.replace(requests.run(1, 10, 3), is_end=True)
    for _ in range(2):
        assert await requests.read(bookie, 1, 10) == requests.run(1, 10, 3)
        await bookie.close()
        bookie = await open_bookie()
    stored = await bookie.shard(1).reads.stored_ranges(1, (0, 100))
    assert stored == [(0, 4), (10, 12)]


async def test_nothing_is_taken_while_a_ledger_is_being_removed(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    """The flush that removes what was there would remove it as well."""
    bookie = await with_stored(open_bookie, requests)
    await bookie.shard(1).remove(1, deleted=False)
    assert is_removing(bookie, 1)
    refused = await requests.add(bookie, requests.run(1, 0, 5), recovery=True)
    assert refusal_of(refused) is ErrorCode.OVERLOADED


async def test_nothing_is_replaced_in_a_ledger_that_was_dropped_meanwhile(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    """Entries that were added again may be cut into other runs, which the replaced ones would
    overlap."""
    bookie = await with_stored(open_bookie, requests, flush_interval_ms=5)
    shard = bookie.shard(1)
    look = shard.adds._stored_ranges

    async def slow(*args: Any) -> Any:
        found = await look(*args)
        await shard.remove(1, deleted=False)
        await requests.until(lambda: not is_removing(bookie, 1))
        assert await requests.add(bookie, requests.run(1, 3, 5), recovery=True) is None
        done = shard.flusher.completed
        await requests.until(lambda: shard.flusher.completed > done + 1)
        return found

    shard.adds._stored_ranges = slow
    with pytest.raises(FencelogError) as caught:
        await shard.adds.replace(requests.run(1, 0, 5))
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert await look(1, (0, 100)) == [(3, 7)]
