"""Replay gives a bookie back what its journal has, and says how far it has got."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from fencelog.bookie.engine.opening import replay_journal
from fencelog.bookie.format.records import Record
from fencelog.bookie.journal.file import JournalPosition
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.stepped_journal import DIRECTORY, INCARNATION, START, SteppedJournal

T = TypeVar("T")


class AtOnce:
    """An I/O thread that does its work when it is told to."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()


async def test_a_flush_during_replay_covers_what_was_taken_back_and_no_more() -> None:
    """The checkpoint of such a flush lets go of the journal before it: records that were read, and
    not taken back, would be lost with the next crash."""
    journal = SteppedJournal()
    await journal.start()
    await journal.append(5)
    await journal.finish()
    opened: Any = SimpleNamespace(
        write_io_thread=AtOnce(),
        storage=SimpleNamespace(mark=START.sequence, checkpoint=START),
        directory=SimpleNamespace(paths=SimpleNamespace(journal=DIRECTORY)),
        incarnation=INCARNATION,
    )
    disk: Any = journal.disk
    taken: list[Record] = []
    covered: list[tuple[int, int]] = []

    async def flush(position: JournalPosition) -> None:
        covered.append((len(taken), position.sequence - START.sequence))

    await replay_journal(opened, disk, take_back=taken.append, must_flush=lambda: True, flush=flush)
    assert covered == [(n, n) for n in range(1, 6)]


async def test_replay_brings_no_run_of_a_removed_ledger_back(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    """The journal has the runs, and behind them the removal. Nothing else would remove them."""
    bookie = await open_bookie(flush_interval_ms=3_600_000)
    await requests.add(bookie, requests.run(1, 0, 3))
    await bookie.shard(1).remove(1, deleted=True)
    bookie._fail(FencelogError(ErrorCode.STORAGE_FAILED, "killed"))
    await bookie.close()
    bookie = await open_bookie(flush_interval_ms=20)
    shard = bookie.shard(1)
    await requests.add(bookie, requests.run(2, 0))
    index = shard.storage.index
    await requests.until(lambda: bool(list(index.runs_from(2, 0))))
    assert list(index.runs_from(1, 0)) == []
