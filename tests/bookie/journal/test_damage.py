"""Every byte of a small journal damaged, and every file of it cut off anywhere.

The journal is written with groups on their way in both I/O threads, and everything in it was
answered. Replay gives all of it or refuses. The one exception is known: of the records that no
later one calls durable, and no later file, a start cannot tell whether they were lost or never
answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random  # noqa: TID251 - each test seeds its own

import pytest

from fencelog.bookie.journal.file import journal_name
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.memory_disk import MemoryDisk
from tests.support.stepped_journal import SteppedJournal, replay

FIRST, LAST = journal_name(1), journal_name(2)


@pytest.fixture(params=[True, False], ids=["synced", "unsynced"])
async def journal(request: pytest.FixtureRequest) -> SteppedJournal:
    """Two files, the last of which ends with groups that were on their way at once."""
    random = Random(7)
    journal = SteppedJournal(max_file_bytes=4096, sync_runs=request.param)
    await journal.start()
    while LAST not in journal.disk.files or len(journal.records(2)) < 6:
        if random.random() < 0.5:
            await journal.append(random.randint(1, 2), size=random.randint(1, 300))
        elif random.random() < 0.2:
            await journal.append(control=True)
        for io_thread in (journal.write_io_thread, journal.sync_io_thread):
            if io_thread.has_work and random.random() < 0.4:
                await journal.step(io_thread)
    await journal.finish()
    return journal


def proven(journal: SteppedJournal) -> int:
    """Return how many records a later record, or a later file, shows to have been synced."""
    last = journal.records(2)
    return max(last[0].sequence - 1, *(record.durable for record in last))


def outcome(disk: MemoryDisk) -> list[bytes] | FencelogError:
    try:
        return replay(disk)
    except FencelogError as error:
        return error


def flipped(disk: MemoryDisk) -> Iterator[tuple[MemoryDisk, str, int]]:
    for name in (FIRST, LAST):
        for at in range(len(disk.files[name].content)):
            other = disk.copy()
            other.files[name].content[at] ^= 1 << at % 8
            yield other, name, at


async def test_no_damage_to_what_was_synced_is_taken_for_the_end(journal: SteppedJournal) -> None:
    assert sorted(journal.disk.files) == [FIRST, LAST]
    known, outcomes = proven(journal), {"whole": 0, "refused": 0, "shorter": 0}
    for disk, name, at in flipped(journal.disk):
        found = outcome(disk)
        if isinstance(found, FencelogError):
            outcomes["refused"] += 1
            assert found.code is ErrorCode.CORRUPT
            assert found.detail.startswith(f"/journal/{name} at offset "), (name, at)
            continue
        assert found == journal.bodies[: len(found)]
        if len(found) == len(journal.bodies):
            outcomes["whole"] += 1
        else:
            outcomes["shorter"] += 1
            assert name == LAST, at
            assert len(found) >= known, at
    assert min(outcomes.values()) > 100, outcomes


async def test_a_file_that_was_cut_off_anywhere_is_refused(journal: SteppedJournal) -> None:
    for name in (FIRST, LAST):
        for size in range(len(journal.disk.files[name].content)):
            disk = journal.disk.copy()
            del disk.files[name].content[size:]
            found = outcome(disk)
            assert isinstance(found, FencelogError), (name, size)
            assert found.code is ErrorCode.CORRUPT
            assert found.detail.startswith(f"/journal/{name} at offset "), (name, size)
