"""A journal in memory whose I/O threads do nothing until a test steps them, so that every
interleaving is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fencelog.bookie.format.records import (
    FILE_HEADER_BYTES,
    Record,
    RecordType,
    decode_file_header,
    read_record,
)
from fencelog.bookie.journal.file import JournalPosition, journal_name
from fencelog.bookie.journal.journal import Journal
from fencelog.bookie.journal.replay import JournalReplay
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.host import SystemHost
from tests.support.memory_disk import MemoryDisk, SteppedIoThread

INCARNATION = b"i" * 16
DIRECTORY = Path("/journal")
START = JournalPosition(sequence=1, file_id=1, offset=FILE_HEADER_BYTES)
Answers = list[tuple[int, FencelogError | None]]


@dataclass
class SteppedJournal:
    """A journal on ``disk``, whose I/O threads wait, and its answers: (number, error)."""

    max_file_bytes: int = 8192
    sync_runs: bool = True
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    answers: Answers = field(default_factory=list)
    failures: list[FencelogError] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write_io_thread, self.sync_io_thread = SteppedIoThread(), SteppedIoThread()
        self.journal = Journal(
            disk=self.disk,  # type: ignore[arg-type]  # has the methods a journal uses
            io_thread=self.write_io_thread,
            sync_io_thread=self.sync_io_thread,
            host=SystemHost(),
            directory=DIRECTORY,
            incarnation=INCARNATION,
            max_file_bytes=self.max_file_bytes,
            sync_runs=self.sync_runs,
            on_failure=self.failures.append,
        )

    async def start(self) -> None:
        starting = asyncio.get_running_loop().create_task(self.journal.start(file_id=1, sequence=1))
        await turn()
        self.sync_io_thread.step()
        await starting
        self.disk.calls.clear()

    async def append(self, count: int = 1, *, size: int = 100, control: bool = False) -> None:
        """Append records and let the event loop run."""
        for _ in range(count):
            number = len(self.bodies)
            kind, body = RecordType.FENCE, number.to_bytes(8, "little")
            if not control:
                kind = RecordType.RUN
                body = build_run(1, number, [b"x" * size], lac=-1, length_before=0)
            self.bodies.append(body)
            self.journal.append(kind, body, partial(self._answered, number))
        await turn()

    async def append_runs(self, sizes: Sequence[int]) -> None:
        """Append runs in one call, of payloads of these sizes, and let the event loop run."""
        numbers = range(len(self.bodies), len(self.bodies) + len(sizes))
        runs = [
            build_run(1, number, [b"x" * size], lac=-1, length_before=0)
            for number, size in zip(numbers, sizes, strict=True)
        ]
        self.bodies += runs
        self.journal.append_many(RecordType.RUN, runs, numbers, self._all_answered)
        await turn()

    def _all_answered(self, numbers: Sequence[int], error: FencelogError | None) -> None:
        self.answers += [(number, error) for number in numbers]

    def _answered(self, number: int, error: FencelogError | None) -> None:
        self.answers.append((number, error))

    async def step(self, io_thread: SteppedIoThread) -> None:
        io_thread.step()
        await turn()

    async def finish(self) -> None:
        self.write_io_thread.run_free()
        self.sync_io_thread.run_free()
        await self.journal.close()

    def records(self, file_id: int = 1) -> list[Record]:
        content = bytes(self.disk.files[journal_name(file_id)].content)
        header = decode_file_header(content)
        assert header is not None
        found, at = [], FILE_HEADER_BYTES
        while record := read_record(lambda o, n: content[o : o + n], at, seed=header.seed):
            found.append(record)
            at = record.end
        return found


async def turn() -> None:
    """Let the event loop run the callbacks that are ready, and those that they cause."""
    for _ in range(5):
        await asyncio.sleep(0)


def replay(disk: MemoryDisk) -> list[bytes]:
    found = JournalReplay(
        disk,  # type: ignore[arg-type]  # has the methods a replay uses
        DIRECTORY,
        start=START,
        incarnation=INCARNATION,
    )
    bodies: list[bytes] = []
    try:
        while records := found.next_records(1000):
            bodies += [record.body for record, _end in records]
    finally:
        found.close()
    return bodies
