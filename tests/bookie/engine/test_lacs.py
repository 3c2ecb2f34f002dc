"""The LAC: taken from adds and idle writers, never told before it is durable, waited for."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.lacs import Lacs
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_LAC_WAIT_MS
from tests.support.bookie_stage import OpenBookie, Requests, refusal_of
from tests.support.faulty_disk import FaultyDisk

LONG_MS = MAX_LAC_WAIT_MS


async def soon(*waiting: asyncio.Task[Any]) -> None:
    """Whatever can happen without the disk and the clock has happened."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)


def poll(bookie: Bookie, ledger_id: int, above: int, wait_ms: int = LONG_MS) -> asyncio.Task[int]:
    return asyncio.get_running_loop().create_task(
        bookie.read_lac(ledger_id, above=above, wait_ms=wait_ms)
    )


async def test_an_explicit_lac_is_kept_over_flush_and_restart(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5))
    assert await requests.write_lac(bookie, 1, 4) is None
    assert await bookie.read_lac(1) == 4
    for _ in range(2):
        await bookie.close()
        bookie = await open_bookie()
        assert await bookie.read_lac(1) == 4


async def test_the_highest_lac_wins_whoever_tells_it(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5))
    await requests.write_lac(bookie, 1, 4)
    assert await requests.write_lac(bookie, 1, 2) is None
    await requests.add(bookie, requests.run(1, 5, 5, lac=3))
    assert await bookie.read_lac(1) == 4
    await requests.add(bookie, requests.run(1, 10, 5, lac=9))
    assert await bookie.read_lac(1) == 9


async def test_what_is_no_lac_of_a_ledger_written_here_is_refused(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0))
    await bookie.read_lac(2, fence=True)
    for ledger_id, lac, code in (
        (1, -1, ErrorCode.BAD_REQUEST),
        (9, 0, ErrorCode.NO_SUCH_LEDGER),
        (2, 0, ErrorCode.LEDGER_FENCED),
    ):
        assert refusal_of(await requests.write_lac(bookie, ledger_id, lac)) is code
    with pytest.raises(FencelogError) as caught:
        await bookie.read_lac(9)  # it has not become known by that
    assert caught.value.code is ErrorCode.NO_SUCH_LEDGER
    await bookie.close()
    assert refusal_of(await requests.write_lac(bookie, 1, 0)) is ErrorCode.BOOKIE_UNAVAILABLE


async def test_a_lac_is_neither_acknowledged_nor_told_before_it_is_durable(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0, 5))
    await requests.write_lac(bookie, 1, 1)
    assert await bookie.read_lac(1) == 1
    faulty_disk.waits.add("sync .journal")
    loop = asyncio.get_running_loop()
    written = loop.create_task(requests.write_lac(bookie, 1, 3))
    await soon(written)
    again = loop.create_task(requests.write_lac(bookie, 1, 3))
    asked = loop.create_task(bookie.read_lac(1))
    await soon(written, again, asked)
    reply = await bookie.read(1, 0, max_entries=1, max_bytes=1000)
    assert reply.lac == 1  # a crash now would take 3 back
    faulty_disk.waits.clear()
    assert [await written, await again, await asked] == [None, None, 3]
    assert (await bookie.read(1, 0, max_entries=1, max_bytes=1000)).lac == 3


@pytest.mark.parametrize("recovery", [False, True])
async def test_the_lac_of_an_add_is_not_told_before_it_is_durable(
    recovery: bool, open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0, 5, lac=1))
    assert await bookie.read_lac(1) == 1
    faulty_disk.waits.add("sync .journal")
    loop = asyncio.get_running_loop()
    added = loop.create_task(requests.add(bookie, requests.run(1, 5, lac=3), recovery=recovery))
    await soon(added)
    reply = await bookie.read(1, 0, max_entries=1, max_bytes=1000)
    assert reply.lac == 1  # a crash now would take 3 back
    faulty_disk.waits.clear()
    assert await added is None
    assert (await bookie.read(1, 0, max_entries=1, max_bytes=1000)).lac == 3


async def test_a_lac_that_cannot_be_synced_is_not_confirmed(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0, 5))
    faulty_disk.fails.add("sync .journal")
    assert refusal_of(await requests.write_lac(bookie, 1, 3)) is ErrorCode.STORAGE_FAILED


async def test_each_of_many_lacs_ends_by_itself(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    """Also over shards, each of which has a journal of its own."""
    dirs = (tmp_path / "j1", tmp_path / "j2")
    bookie = await open_bookie(journal_dirs=dirs, ledger_dirs=(tmp_path / "l1", tmp_path / "l2"))
    for ledger_id in range(1, 8):
        await requests.add(bookie, requests.run(ledger_id, 0, 5))
    await bookie.read_lac(3, fence=True)
    lacs = [(1, 4), (2, 3), (3, 4), (9, 0), (4, -1), (5, 2), (5, 1), (6, 4), (6, 4)]
    answers = await requests.write_lacs(bookie, lacs)
    assert [error and error.code for error in answers] == [
        None,
        None,
        ErrorCode.LEDGER_FENCED,
        ErrorCode.NO_SUCH_LEDGER,
        ErrorCode.BAD_REQUEST,
        None,
        None,
        None,
        None,
    ]
    for _ in range(2):
        told = [await bookie.read_lac(ledger_id) for ledger_id in range(1, 8)]
        assert told == [4, 3, -1, -1, 2, 4, -1]
        await bookie.close()
        bookie = await open_bookie(
            journal_dirs=dirs, ledger_dirs=(tmp_path / "l1", tmp_path / "l2")
        )


async def test_many_lacs_are_one_group_of_the_journal(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    for ledger_id in range(100):
        await requests.add(bookie, requests.run(ledger_id, 0))
    journal = bookie.shards[0].journal
    before, syncs = journal.position.sequence, bookie.metrics.sync_time.count
    assert await requests.write_lacs(bookie, [(n, 0) for n in range(100)]) == [None] * 100
    assert journal.position.sequence - before == 100
    assert bookie.metrics.sync_time.count - syncs == 1
    assert await requests.write_lacs(bookie, [(n, 0) for n in range(100)]) == [None] * 100
    assert journal.position.sequence - before == 100  # all were known


async def test_a_read_only_bookie_takes_none_of_many_lacs(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0))
    bookie.is_read_only = True
    answers = await requests.write_lacs(bookie, [(1, 0), (2, 0)])
    assert [error and error.code for error in answers] == [ErrorCode.READ_ONLY] * 2
    assert await bookie.read_lac(1) == -1


@pytest.mark.parametrize("is_synced", [True, False])
async def test_none_of_many_lacs_is_told_before_it_is_durable(
    is_synced: bool, open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk, journal_sync=is_synced)
    for ledger_id in (1, 2):
        await requests.add(bookie, requests.run(ledger_id, 0, 5))
    await requests.write_lac(bookie, 1, 1)
    assert await bookie.read_lac(1) == 1
    faulty_disk.waits.add("sync .journal")
    loop = asyncio.get_running_loop()
    lacs = [(1, 3), (2, 3), (1, 1)]
    written = loop.create_task(requests.write_lacs(bookie, lacs))
    asked = [loop.create_task(bookie.read_lac(ledger_id)) for ledger_id in (1, 2)]
    await soon(written, *asked)
    for ledger_id, lac in ((1, 1), (2, -1)):
        reply = await bookie.read(ledger_id, 0, max_entries=1, max_bytes=1000)
        assert reply.lac == lac
    faulty_disk.waits.clear()
    assert await written == [None] * 3
    assert await asyncio.gather(*asked) == [3, 3]


async def test_each_of_many_lacs_waits_for_its_own_record(
    open_bookie: OpenBookie,
    requests: Requests,
    faulty_disk: FaultyDisk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the journal cuts them into two groups, the second is not durable with the first."""
    bookie = await open_bookie(disk=faulty_disk)
    for ledger_id in (1, 2):
        await requests.add(bookie, requests.run(ledger_id, 0, 5))
    monkeypatch.setattr("fencelog.bookie.journal.journal._GROUP_BYTES", 1)
    lacs, answers = bookie.shards[0].lacs, list[object]()
    faulty_disk.waits.add("sync .journal")
    bookie.write_lacs([(1, 3), (2, 3)], [1, 2], on_replies=lambda *told: answers.append(told))
    first, second = (bookie.shards[0].states.change(ledger_id) for ledger_id in (1, 2))
    assert second.lac_sequence - first.lac_sequence == 1
    assert [lacs.durable(state) for state in (first, second)] == [-1, -1]
    faulty_disk.waits.clear()
    await requests.until(lambda: len(answers) == 2)
    assert answers == [([1], None), ([2], None)]
    assert [lacs.durable(state) for state in (first, second)] == [3, 3]


# -- long poll -----------------------------------------------------------------------------------


async def test_a_long_poll_ends_when_the_lac_grows_above(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5))
    low, high = poll(bookie, 1, -1), poll(bookie, 1, 2)
    await soon(low, high)
    await requests.write_lac(bookie, 1, 2)
    assert await low == 2
    await soon(high)
    await requests.add(bookie, requests.run(1, 5, lac=4))
    assert await high == 4
    assert await poll(bookie, 1, 3) == 4  # it is already


async def test_a_long_poll_for_a_ledger_to_come(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    waiting = poll(bookie, 1, -1)
    await soon(waiting)
    await requests.add(bookie, requests.run(1, 0))
    await soon(waiting)
    await requests.write_lac(bookie, 1, 0)
    assert await waiting == 0


async def test_a_long_poll_tells_no_lac_before_it_is_durable(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0, 5))
    waiting = poll(bookie, 1, -1)
    await soon(waiting)
    faulty_disk.waits.add("sync .journal")
    written = asyncio.get_running_loop().create_task(requests.write_lac(bookie, 1, 3))
    await soon(written, waiting)
    faulty_disk.waits.clear()
    assert (await written, await waiting) == (None, 3)


async def test_a_long_poll_ends_with_a_fence_and_does_not_begin_behind_one(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5, lac=-1))
    waiting = poll(bookie, 1, 7)
    await soon(waiting)
    assert await bookie.read_lac(1, fence=True, above=7, wait_ms=LONG_MS) == -1
    assert await waiting == -1
    assert await poll(bookie, 1, 7) == -1


async def test_a_long_poll_ends_with_its_time(open_bookie: OpenBookie, requests: Requests) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5))
    started = time.monotonic()
    assert await poll(bookie, 1, 0, wait_ms=50) == -1
    assert time.monotonic() - started >= 0.05
    with pytest.raises(FencelogError) as caught:
        await poll(bookie, 2, 0, wait_ms=1)
    assert caught.value.code is ErrorCode.NO_SUCH_LEDGER
    with pytest.raises(FencelogError) as caught:
        await poll(bookie, 1, 0, wait_ms=MAX_LAC_WAIT_MS + 1)
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_long_polls_end_with_the_bookie(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0))
    waiting = poll(bookie, 1, 0)
    await soon(waiting)
    await bookie.close()
    with pytest.raises(FencelogError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.BOOKIE_UNAVAILABLE
    bookie = await open_bookie(disk=faulty_disk)
    waiting = poll(bookie, 1, 0)
    await soon(waiting)
    faulty_disk.fails |= {"sync .journal", "sync .spare"}  # one journal file was let go of
    await requests.add(bookie, requests.run(1, 1))
    with pytest.raises(FencelogError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.STORAGE_FAILED


async def test_too_many_long_polls_are_refused_and_leave_nothing_behind(
    open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.bookie.engine.lacs.MAX_LAC_WAITS", 3)
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0))
    waiting = [poll(bookie, ledger_id, 5) for ledger_id in (1, 1, 2)]
    await soon(*waiting)
    with pytest.raises(FencelogError) as caught:
        await poll(bookie, 1, 5)
    assert caught.value.code is ErrorCode.OVERLOADED
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    lacs: Lacs = bookie.shards[0].lacs
    assert (lacs._waits, lacs._waiting) == (0, {})
    last = poll(bookie, 1, 5)
    await soon(last)
    await requests.write_lac(bookie, 1, 6)
    assert await last == 6
