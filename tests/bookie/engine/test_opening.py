"""Replay gives a bookie back what its journal has, and says how far it has got."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from fencelog.bookie.engine.opening import replay_journal
from fencelog.bookie.format.records import Record
from fencelog.bookie.journal.file import JournalPosition
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
