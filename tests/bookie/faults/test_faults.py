"""Disks that fail or wait: nothing is answered before it is durable, nothing is retried."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk
from tests.support.until import PATIENCE_S

MIB = 1 << 20


async def test_no_add_and_no_fencing_request_is_answered_before_the_sync(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0))
    faulty_disk.waits.add("sync .journal")
    loop = asyncio.get_running_loop()
    waiting = [
        loop.create_task(requests.add(bookie, requests.run(2, 0))),
        loop.create_task(bookie.read_lac(1, fence=True)),
        loop.create_task(bookie.read_lac(1, fence=True)),  # its fence is another request's
        loop.create_task(bookie.read_lac(77, fence=True)),
        loop.create_task(bookie.read(1, 5, max_entries=1, max_bytes=100, fence=True)),
        loop.create_task(bookie.read(78, 0, max_entries=1, max_bytes=100, fence=True)),
    ]
    done, _ = await asyncio.wait(waiting, timeout=0.05)
    assert done == set()
    faulty_disk.waits.clear()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert answers[:4] == [None, -1, -1, -1]
    assert [getattr(a, "code", None) for a in answers[4:]] == [ErrorCode.NO_SUCH_ENTRY] * 2


async def test_a_fence_holds_for_adds_from_the_request_on(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.waits.add("sync .journal")
    fenced = bookie.fence(5)
    assert fenced is not None
    error = await requests.add(bookie, requests.run(5, 0))
    assert error is not None
    assert error.code is ErrorCode.LEDGER_FENCED
    assert not fenced.done()
    faulty_disk.waits.clear()
    assert await fenced is None
    assert bookie.fence(5) is None


@pytest.mark.parametrize("fault", ["sync .journal", "write .journal"])
async def test_a_failed_journal_stops_the_bookie(
    fault: str, open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0))
    faulty_disk.fails.add(fault)
    error = await requests.add(bookie, requests.run(1, 1))
    assert error is not None
    assert error.code is ErrorCode.STORAGE_FAILED
    assert (await bookie.failure).code is ErrorCode.STORAGE_FAILED
    faulty_disk.fails.clear()  # too late: what is unsynced is unknown for good
    error = await requests.add(bookie, requests.run(1, 1))
    assert error is not None
    assert error.code is ErrorCode.STORAGE_FAILED
    for request in (requests.read(bookie, 1, 0), bookie.read_lac(1, fence=True)):
        with pytest.raises(FencelogError) as caught:
            await request
        assert caught.value.code is ErrorCode.STORAGE_FAILED
    await bookie.close()
    bookie = await open_bookie()
    assert await requests.read(bookie, 1, 0, 1) == requests.run(1, 0)


async def test_a_fence_that_cannot_be_synced_is_not_confirmed(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.fails.add("sync .journal")
    answers = await asyncio.gather(
        bookie.read_lac(1, fence=True), bookie.read_lac(1, fence=True), return_exceptions=True
    )
    assert [getattr(a, "code", None) for a in answers] == [ErrorCode.STORAGE_FAILED] * 2


@pytest.mark.parametrize("fault", ["write .entrylog", "sync .entrylog", "write index"])
async def test_a_failed_flush_stops_the_bookie_and_loses_nothing(
    fault: str, open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk, flush_interval_ms=20)
    faulty_disk.fails.add(fault)
    runs = [requests.run(1, first, 3) for first in range(0, 30, 3)]
    answers = [await requests.add(bookie, run) for run in runs]
    async with asyncio.timeout(PATIENCE_S):
        assert "flush failed" in (await bookie.failure).detail
    await bookie.close()
    bookie = await open_bookie()
    for run, answer in zip(runs, answers, strict=True):
        if answer is None:
            first = int.from_bytes(run[8:16], "little")
            assert await requests.read(bookie, 1, first, 3) == run


async def test_adds_wait_for_the_flush_then_are_refused_then_taken_again(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk, write_cache_bytes=4 * MIB)
    changes: list[bool] = []
    bookie.on_pressure[lambda: changes.append(bookie.is_under_pressure)] = None
    faulty_disk.waits.add("sync .entrylog")
    size = 256 * 1024
    answers: dict[int, FencelogError | None] = {}
    for i in range(40):  # 10 MiB into a cache of 4 with a queue of 2
        bookie.add(
            requests.run(1, i, size=size),
            recovery=False,
            on_reply=partial(answers.__setitem__, i),
        )
    await requests.until(lambda: len(answers) > 25)
    refused = [i for i, error in answers.items() if error is not None]
    assert {error.code for error in answers.values() if error} == {ErrorCode.OVERLOADED}
    assert refused == list(range(min(refused), 40))
    assert changes == [True]
    # A ledger that is being recovered is taken all the same, from its reserve.
    assert await requests.add(bookie, requests.run(2, 0), recovery=True) is None
    faulty_disk.waits.clear()
    await requests.until(lambda: len(answers) == 40 and changes == [True, False])
    assert [i for i, error in answers.items() if error is not None] == refused
    assert await requests.add(bookie, requests.run(1, 100)) is None
    for i in range(min(refused)):
        assert await requests.read(bookie, 1, i, 1) == requests.run(1, i, size=size)


async def test_adds_held_back_see_a_fence_that_came_after_them(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk, write_cache_bytes=MIB)
    faulty_disk.waits.add("sync .entrylog")
    answers: list[FencelogError | None] = []
    for i in range(6):
        bookie.add(requests.run(1, i, size=MIB // 5), recovery=False, on_reply=answers.append)
    assert bookie.is_under_pressure
    await bookie.read_lac(1, fence=True)
    faulty_disk.waits.clear()
    await requests.until(lambda: len(answers) == 6)
    codes = [error.code if error else None for error in answers]
    assert codes == [None] * codes.index(ErrorCode.LEDGER_FENCED) + [ErrorCode.LEDGER_FENCED] * (
        6 - codes.index(ErrorCode.LEDGER_FENCED)
    )


async def test_a_read_that_fails_is_an_error_and_no_negative(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0))
    await bookie.close()
    bookie = await open_bookie(disk=faulty_disk)
    for fault in ("read .entrylog", "read index"):
        faulty_disk.fails.add(fault)
        with pytest.raises(FencelogError) as caught:
            await requests.read(bookie, 1, 0)
        assert caught.value.code is ErrorCode.STORAGE_FAILED
        faulty_disk.fails.clear()
    assert await requests.read(bookie, 1, 0) == requests.run(1, 0)
