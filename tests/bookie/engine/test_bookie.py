"""The answers of a bookie, which are the same after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header, verify_entries, verify_run
from tests.support.bookie_stage import OpenBookie, Requests


async def test_an_added_run_is_read_back_with_identical_bytes(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    run = requests.run(7, 0, 10)
    assert await requests.add(bookie, run) is None
    assert await requests.read(bookie, 7, 0) == run


async def test_flushed_runs_survive_a_restart_and_adjacent_ones_are_joined(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    for first in range(0, 50, 5):
        assert await requests.add(bookie, requests.run(7, first, 5)) is None
    await bookie.close()
    bookie = await open_bookie()
    run = await requests.read(bookie, 7, 12)
    header = verify_run(run)
    assert (header.first_entry_id, header.last_entry_id) == (12, 49)
    assert [e.payload[:5].tobytes() for e in verify_entries(run)][:2] == [b"7/12|", b"7/13|"]


async def test_identity_is_kept_and_another_bookie_id_is_refused(open_bookie: OpenBookie) -> None:
    bookie = await open_bookie()
    bookie_id, incarnation = bookie.bookie_id, bookie.incarnation
    await bookie.close()
    bookie = await open_bookie(bookie_id=bookie_id)
    assert (bookie.bookie_id, bookie.incarnation) == (bookie_id, incarnation)
    await bookie.close()
    with pytest.raises(FencelogError, match="belongs to bookie") as caught:
        await open_bookie(bookie_id="somebody-else")
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_a_second_bookie_on_the_directory_is_refused(open_bookie: OpenBookie) -> None:
    await open_bookie()
    with pytest.raises(FencelogError) as caught:
        await open_bookie()
    assert caught.value.code is ErrorCode.DATA_DIRECTORY_IN_USE


async def test_negative_answers_name_what_is_missing(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    with pytest.raises(FencelogError) as caught:
        await requests.read(bookie, 9, 0)
    assert caught.value.code is ErrorCode.NO_SUCH_LEDGER
    await requests.add(bookie, requests.run(9, 4, 2))
    for entry_id in (0, 3, 6):
        with pytest.raises(FencelogError) as caught:
            await requests.read(bookie, 9, entry_id)
        assert caught.value.code is ErrorCode.NO_SUCH_ENTRY


async def test_limits_of_a_read_hold_but_one_entry_always_comes(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(3, 0, 20, size=1000))
    for max_entries, max_bytes, expected in ((5, 1 << 20, 5), (20, 3500, 3), (20, 1, 1)):
        reply = await bookie.read(3, 2, max_entries=max_entries, max_bytes=max_bytes)
        header = read_run_header(reply.run)
        assert (header.first_entry_id, header.entries) == (2, expected)


async def test_lac_is_the_highest_seen_and_survives(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(3, 0, 5, lac=-1))
    await requests.add(bookie, requests.run(3, 5, 5, lac=4))
    assert await bookie.read_lac(3) == 4
    await bookie.close()
    bookie = await open_bookie()
    assert await bookie.read_lac(3) == 4


async def test_numbers_that_no_writer_sends_are_refused(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    for run in (requests.run(3, 0, 2, lac=1), requests.run(3, 0, 1, lac=-2)):
        error = await requests.add(bookie, run)
        assert error is not None
        assert error.code is ErrorCode.BAD_REQUEST
    error = await requests.add(bookie, requests.run(3, (1 << 63) - 1, 2, size=1))
    assert error is not None
    assert error.code is ErrorCode.BAD_REQUEST


async def test_a_fenced_ledger_takes_recovery_adds_only_and_stays_so(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(3, 0))
    assert await bookie.read_lac(3, fence=True) == -1
    assert await bookie.read_lac(99, fence=True) == -1  # unknown: created and fenced
    await bookie.close()
    bookie = await open_bookie()
    for ledger_id in (3, 99):
        error = await requests.add(bookie, requests.run(ledger_id, 1))
        assert error is not None
        assert error.code is ErrorCode.LEDGER_FENCED
        assert await requests.add(bookie, requests.run(ledger_id, 1), recovery=True) is None


async def test_a_volume_that_was_just_formatted_is_a_new_directory(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    (tmp_path / "data/lost+found").mkdir(parents=True)
    bookie = await open_bookie()
    assert await requests.add(bookie, requests.run(1, 0)) is None
