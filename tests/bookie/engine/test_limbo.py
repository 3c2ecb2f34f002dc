"""A ledger in limbo: what is there is answered, what is missing is unknown, whatever was asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.format.ledger_state import BookieLedgerState, decode_state
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import OpenBookie, Requests, is_removing
from tests.support.faulty_disk import FaultyDisk


async def code_of(request: Any) -> ErrorCode | None:
    try:
        result = await request
    except FencelogError as error:
        return error.code
    return result.code if isinstance(result, FencelogError) else None


async def put_in_limbo(bookie: Bookie, *ledger_ids: int) -> None:
    for ledger_id in ledger_ids:
        bookie.fence_forgotten(ledger_id)
    await bookie.forgotten_are_fenced()


async def expect_limbo(bookie: Bookie, requests: Requests) -> None:
    """Ledger 1 has entries 0..4 and LAC 3, of ledger 2 nothing is known."""
    assert await requests.read(bookie, 1, 0) == requests.run(1, 0, 5, lac=-1)
    assert await bookie.read_lac(1) == await bookie.read_lac(1, fence=True) == 3
    assert await bookie.read_lac(1, above=9, wait_ms=60_000) == 3
    for negative in (
        requests.read(bookie, 1, 5),
        bookie.read(1, 5, max_entries=1, max_bytes=100, fence=True),
        requests.read(bookie, 2, 0),
        bookie.read(2, 0, max_entries=1, max_bytes=100, fence=True),
        bookie.read_lac(2),
        bookie.read_lac(2, fence=True),
        bookie.read_lac(2, above=-1, wait_ms=60_000),
    ):
        assert await code_of(negative) is ErrorCode.LEDGER_IN_LIMBO
    for ledger_id in (1, 2):
        refused = requests.add(bookie, requests.run(ledger_id, 9))
        assert await code_of(refused) is ErrorCode.LEDGER_FENCED
        assert await code_of(requests.write_lac(bookie, ledger_id, 9)) is ErrorCode.LEDGER_FENCED


async def test_limbo_says_what_it_has_and_never_no(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5, lac=-1))
    await requests.write_lac(bookie, 1, 3)
    await put_in_limbo(bookie, 1, 2)
    await expect_limbo(bookie, requests)
    for _ in range(2):  # once from the journal or its flush, once from the index
        await bookie.close()
        bookie = await open_bookie()
        await expect_limbo(bookie, requests)
    assert await requests.add(bookie, requests.run(2, 0), recovery=True) is None
    assert await requests.read(bookie, 2, 0) == requests.run(2, 0)


async def test_a_ledger_that_was_fenced_before_enters_limbo_too(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    """What was lost may have come from a recovery."""
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5))
    await bookie.read_lac(1, fence=True)
    await put_in_limbo(bookie, 1)
    assert await code_of(requests.read(bookie, 1, 5)) is ErrorCode.LEDGER_IN_LIMBO


async def test_a_cleared_ledger_says_no_again_and_stays_fenced(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await put_in_limbo(bookie, 1)
    await bookie.clear_limbo(1)
    await bookie.clear_limbo(1)
    await bookie.clear_limbo(77)  # not known, not in limbo
    for _ in range(2):
        assert await code_of(requests.read(bookie, 1, 0)) is ErrorCode.NO_SUCH_ENTRY
        assert await bookie.read_lac(1) == -1
        assert await code_of(requests.add(bookie, requests.run(1, 0))) is ErrorCode.LEDGER_FENCED
        assert await code_of(requests.read(bookie, 77, 0)) is ErrorCode.NO_SUCH_LEDGER
        await bookie.close()
        bookie = await open_bookie()
    await bookie.close()
    assert await code_of(bookie.clear_limbo(1)) is ErrorCode.BOOKIE_UNAVAILABLE


async def test_limbo_and_its_end_are_durable_before_they_are_confirmed(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.waits.add("sync .journal")
    bookie.fence_forgotten(1)
    confirmed = asyncio.get_running_loop().create_task(bookie.forgotten_are_fenced())
    done, _ = await asyncio.wait([confirmed], timeout=0.05)
    assert not done
    before = bookie.may_have_forgotten
    faulty_disk.waits.clear()
    await confirmed
    assert (before, bookie.may_have_forgotten) == (True, False)
    faulty_disk.fails.add("sync .journal")
    assert await code_of(bookie.clear_limbo(1)) is ErrorCode.STORAGE_FAILED
    await bookie.close()
    bookie = await open_bookie()
    assert await code_of(requests.add(bookie, requests.run(1, 0))) is ErrorCode.LEDGER_FENCED


async def test_a_ledger_that_is_repaired_during_a_read_is_still_unknown_to_it(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    """The read has looked where the entry was not yet."""
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 7))
    await bookie.close()
    bookie = await open_bookie(disk=faulty_disk)
    await put_in_limbo(bookie, 1)
    faulty_disk.waits.add("read index")
    faulty_disk.calls.clear()
    reading = asyncio.get_running_loop().create_task(requests.read(bookie, 1, 3))
    try:
        # Not the last of the calls: a flush goes on beside it.
        await requests.until(lambda: "read index" in faulty_disk.calls)
        await bookie.clear_limbo(1)
    finally:
        faulty_disk.waits.clear()  # or the bookie could not be closed
    assert await code_of(reading) is ErrorCode.LEDGER_IN_LIMBO


async def test_a_ledger_that_is_dropped_and_repaired_during_a_read_is_unknown_to_it(
    open_bookie: OpenBookie,
    requests: Requests,
    faulty_disk: FaultyDisk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The read looks where the entry is no more, and is not yet again."""
    bookie = await open_bookie(disk=faulty_disk, flush_interval_ms=5)
    await requests.add(bookie, requests.run(1, 3))
    await bookie.close()
    bookie = await open_bookie(disk=faulty_disk, flush_interval_ms=5)
    shard = bookie.shard(1)
    looked, given = asyncio.Event(), asyncio.Event()
    read = shard.reads._stored.read

    async def slow(*args: Any, **kwargs: Any) -> bytes | None:
        await shard.remove(1, deleted=False)
        await requests.until(lambda: not is_removing(bookie, 1))
        found: bytes | None = await read(*args, **kwargs)
        looked.set()
        await given.wait()
        return found

    monkeypatch.setattr(shard.reads._stored, "read", slow)
    reading = asyncio.get_running_loop().create_task(requests.read(bookie, 1, 3))
    await looked.wait()
    assert await requests.add(bookie, requests.run(1, 3), recovery=True) is None
    await bookie.clear_limbo(1)
    given.set()
    assert await code_of(reading) is ErrorCode.LEDGER_IN_LIMBO
    assert await requests.read(bookie, 1, 3) == requests.run(1, 3)


def test_states_are_decoded_as_they_were_encoded() -> None:
    for fenced, limbo in ((False, False), (True, False), (True, True)):
        state = BookieLedgerState(fenced, fenced, 7, 5, limbo)
        assert decode_state(1, state.encode()) == state
    assert BookieLedgerState(True, True, 7, -1, True).encode().hex() == (
        "0103000000000000" + "0700000000000000" + "ffffffffffffffff"
    )


@pytest.mark.parametrize(
    "damaged",
    [
        "0203000000000000" + "0700000000000000" + "0500000000000000",  # another version
        "0107000000000000" + "0700000000000000" + "0500000000000000",  # a flag of tomorrow
        "0102000000000000" + "0700000000000000" + "0500000000000000",  # limbo without a fence
        "0103000000000100" + "0700000000000000" + "0500000000000000",
        "0103000000000000" + "feffffffffffffff" + "0500000000000000",
        "0103000000000000" + "0700000000000000" + "feffffffffffffff",
        "0103000000000000" + "0700000000000000",
    ],
)
def test_a_state_that_this_version_does_not_write_is_corrupt(damaged: str) -> None:
    with pytest.raises(FencelogError, match="ledger 1 ") as caught:
        decode_state(1, bytes.fromhex(damaged))
    assert caught.value.code is ErrorCode.CORRUPT
