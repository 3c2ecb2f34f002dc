"""A journal that is not synced: faster, and whoever stops uncleanly counts as one that forgot."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.journal.file import journal_name
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk

MIB = 1 << 20


def syncs(disk: FaultyDisk) -> int:
    return sum(call.startswith("sync") and ".journal" in call for call in disk.calls)


async def ready(bookie: Bookie) -> Bookie:
    """Make a bookie ready, as ``fence_before_serving`` does without ledgers."""
    await bookie.forgotten_are_fenced()
    return bookie


async def abandon(bookie: Bookie) -> None:
    """Abandon a bookie as ``kill -9`` does: what was written stays, and nothing more is written."""
    bookie._fail(FencelogError(ErrorCode.STORAGE_FAILED, "killed"))
    await bookie.close()


async def test_adds_are_not_synced_but_all_else_is(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await ready(await open_bookie(disk=faulty_disk, journal_sync=False))
    before = syncs(faulty_disk)
    for entry_id in range(20):
        assert await requests.add(bookie, requests.run(1, entry_id)) is None
    assert await bookie.read_lac(1) == -1
    assert syncs(faulty_disk) == before
    assert await requests.write_lac(bookie, 1, 7) is None
    await bookie.read_lac(1, fence=True)
    await bookie.read_lac(2, fence=True)
    bookie.fence_forgotten(3)
    await bookie.forgotten_are_fenced()
    assert syncs(faulty_disk) == before + 4


async def test_a_flush_syncs_the_journal_first(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await ready(
        await open_bookie(disk=faulty_disk, journal_sync=False, flush_interval_ms=20)
    )
    await requests.add(bookie, requests.run(1, 0))
    await requests.until(
        lambda: any("write 0000000000000001.entrylog" in c for c in faulty_disk.calls)
    )
    calls = faulty_disk.calls
    written = max(
        i for i, call in enumerate(calls) if call.startswith("write") and ".journal" in call
    )
    logged = next(
        i for i, call in enumerate(calls) if call.startswith("write") and ".entrylog" in call
    )
    assert any(call.startswith("sync") and ".journal" in call for call in calls[written:logged])


async def test_a_clean_stop_forgets_nothing(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    bookie = await ready(await open_bookie(journal_sync=False))
    assert (tmp_path / "data/unsynced").exists()
    await requests.add(bookie, requests.run(1, 0, 5))
    incarnation = bookie.incarnation
    await bookie.close()
    assert not (tmp_path / "data/unsynced").exists()
    bookie = await open_bookie()
    assert (bookie.incarnation, bookie.may_have_forgotten) == (incarnation, False)
    assert await requests.read(bookie, 1, 0) == requests.run(1, 0, 5)


@pytest.mark.parametrize("journal_sync", [True, False])
async def test_an_unclean_stop_takes_a_new_incarnation_that_has_to_fence(
    journal_sync: bool, open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await ready(await open_bookie(journal_sync=False))
    await requests.add(bookie, requests.run(1, 0, 5))
    incarnations = [bookie.incarnation]
    await abandon(bookie)
    bookie = await open_bookie(journal_sync=journal_sync)
    incarnations.append(bookie.incarnation)
    assert bookie.may_have_forgotten
    assert await requests.read(bookie, 1, 0) == requests.run(1, 0, 5)  # it was not lost
    await bookie.close()
    bookie = await open_bookie(journal_sync=journal_sync)
    assert bookie.may_have_forgotten  # nobody fenced yet
    assert bookie.incarnation == incarnations[1] != incarnations[0]
    await ready(bookie)
    await abandon(bookie)
    bookie = await open_bookie()
    assert bookie.may_have_forgotten is not journal_sync
    assert (bookie.incarnation == incarnations[1]) is journal_sync


async def test_a_stop_whose_last_sync_fails_is_unclean(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    """Until that sync, what was answered may be lost."""
    bookie = await ready(await open_bookie(disk=faulty_disk, journal_sync=False))
    await requests.add(bookie, requests.run(1, 0))
    faulty_disk.fails.add("sync .journal")
    await bookie.close()
    assert bookie.failure.done()
    faulty_disk.fails.clear()
    assert (await open_bookie()).may_have_forgotten


async def test_the_mark_of_an_unclean_stop_stays_until_the_identity_says_it(
    open_bookie: OpenBookie, faulty_disk: FaultyDisk, tmp_path: Path
) -> None:
    bookie = await ready(await open_bookie(journal_sync=False))
    incarnation = bookie.incarnation
    await abandon(bookie)
    faulty_disk.fails.add("replace identity")
    with pytest.raises(FencelogError, match="made to fail"):
        await open_bookie(disk=faulty_disk)
    assert (tmp_path / "data/unsynced").exists()
    bookie = await open_bookie()
    assert bookie.incarnation != incarnation
    assert bookie.may_have_forgotten


async def test_a_synced_journal_leaves_no_mark_and_a_crash_forgets_nothing(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    bookie = await ready(await open_bookie())
    await requests.add(bookie, requests.run(1, 0))
    await abandon(bookie)
    assert not (tmp_path / "data/unsynced").exists()
    again = await open_bookie()
    assert (again.incarnation, again.may_have_forgotten) == (bookie.incarnation, False)


async def test_what_a_power_loss_took_is_a_torn_tail_whatever_follows_it(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    """A hole in the middle of what was not synced: with a synced journal that would be damage."""
    bookie = await ready(await open_bookie(journal_sync=False))
    for entry_id in range(30):
        await requests.add(bookie, requests.run(1, entry_id))
    await abandon(bookie)
    (path,) = [
        p for p in (tmp_path / "data/journal").glob("*.journal") if b"1/0|" in p.read_bytes()
    ]
    data = bytearray(path.read_bytes())
    hole = data.index(b"1/10|")
    data[hole : hole + 8] = bytes(8)
    path.write_bytes(data)
    bookie = await open_bookie(journal_sync=False)
    for round_number in range(3):
        assert await requests.read(bookie, 1, 9, 1) == requests.run(1, 9)
        assert await code_of_read(bookie, requests, 10 + round_number) is ErrorCode.NO_SUCH_ENTRY
        await requests.add(bookie, requests.run(1, 10 + round_number))
        await abandon(bookie)
        bookie = await open_bookie(journal_sync=round_number == 1)
        assert bookie.may_have_forgotten


async def code_of_read(bookie: Bookie, requests: Requests, entry_id: int) -> ErrorCode | None:
    try:
        await requests.read(bookie, 1, entry_id)
    except FencelogError as error:
        return error.code
    return None


async def test_a_journal_file_is_synced_before_the_next_is_begun(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await ready(
        await open_bookie(disk=faulty_disk, journal_sync=False, journal_file_bytes=24 * MIB)
    )
    faulty_disk.waits.add("sync .entrylog")  # no flush syncs the journal meanwhile
    faulty_disk.calls.clear()
    for entry_id in range(4):
        await requests.add(bookie, requests.run(1, entry_id, size=7 * MIB))
    faulty_disk.waits.clear()
    calls = [call for call in faulty_disk.calls if "entrylog" not in call]
    # The next file is written over a spare, or is new: it is called a spare until it is synced.
    begun = next(
        at for at, call in enumerate(calls) if call.startswith("write") and "spare" in call
    )
    assert calls[begun - 1] == f"sync {journal_name(2)}"
    await bookie.close()
    bookie = await open_bookie()
    for entry_id in range(4):
        assert len(await requests.read(bookie, 1, entry_id, 1)) > 7 * MIB


async def test_a_mark_that_cannot_be_made_or_taken_away_is_respected(
    open_bookie: OpenBookie, faulty_disk: FaultyDisk
) -> None:
    faulty_disk.fails.add("replace unsynced")
    with pytest.raises(FencelogError) as caught:
        await open_bookie(disk=faulty_disk, journal_sync=False)
    assert caught.value.code is ErrorCode.STORAGE_FAILED
    faulty_disk.fails = {"remove unsynced"}
    bookie = await ready(await open_bookie(disk=faulty_disk, journal_sync=False))
    await bookie.close()
    assert "unsynced" in (await bookie.failure).detail
    faulty_disk.fails.clear()
    bookie = await open_bookie()
    assert bookie.may_have_forgotten
