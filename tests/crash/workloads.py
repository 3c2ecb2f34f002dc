"""The workloads of bookies that crash: a short script each, with files so small that they roll.

A script gets a stage with an open bookie. All that it does is recorded, from the first effect of
the opening to the last one of the clean close behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencelog.bookie.engine.bookie import BookieConfig
from fencelog.bookie.storage import entry_log_writer
from tests.crash.client import DATA, Client, small_config
from tests.crash.disk import CrashDisk
from tests.crash.effects import Effect, Image
from tests.crash.loop import run
from tests.crash.promises import Knowledge, Mark


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    play: Callable[[Client], Awaitable[None]]
    settings: dict[str, Any] = field(default_factory=dict)
    is_first_start: bool = False
    """True if it begins without a data directory, false if with an empty bookie."""
    listed: tuple[int, ...] = ()
    """Ledgers that name the bookie, says the metadata, before it has met them."""

    @property
    def config(self) -> BookieConfig:
        return small_config(**self.settings)

    def knowledge(self) -> Knowledge:
        config = self.config
        knowledge = Knowledge(is_synced=config.is_synced, has_journal=config.journal_write)
        for ledger_id in self.listed:
            knowledge.ledger(ledger_id)
        return knowledge


@dataclass(frozen=True, slots=True)
class Recording:
    """Effects on a disk that was ``base``; a mark stands behind so many of them."""

    base: Image
    effects: Sequence[Effect]
    marks: Sequence[tuple[int, Mark]]

    def marks_before(self, boundary: int) -> list[Mark]:
        """Return what was sent and answered before a crash there."""
        return [mark for at, mark in self.marks if at <= boundary]


@contextmanager
def small_writes() -> Iterator[None]:
    """A limit that no setting reaches: an entry log is written in the middle of a flush, with a few
    hundred bytes."""
    module = vars(entry_log_writer)
    before = module["_WRITE_BYTES"]
    module["_WRITE_BYTES"] = 700
    try:
        yield
    finally:
        module["_WRITE_BYTES"] = before


def record(workload: Workload) -> Recording:
    """Play it."""
    with small_writes():
        base, marks = Image(), list[tuple[int, Mark]]()
        if not workload.is_first_start:
            empty = _record(Workload("empty", _nothing, workload.settings), Image(), marks)
            base = empty.image
            marks = [(0, mark) for _, mark in marks]
        disk = _record(workload, base, marks)
        return Recording(base, disk.effects, marks)


def _record(workload: Workload, base: Image, marks: list[tuple[int, Mark]]) -> CrashDisk:
    disk = CrashDisk(base)

    async def play() -> None:
        client = await Client.open(
            disk,
            workload.config,
            life=workload.name,
            note=lambda mark: marks.append((len(disk.effects), mark)),
            ledgers=list(workload.listed),
        )
        await workload.play(client)
        await client.close()

    run(play())
    return disk


async def _nothing(client: Client) -> None:
    """Opened and closed."""


async def _append(client: Client) -> None:
    """Several ledgers, several groups on their way."""
    answers = []
    for round_ in range(4):
        for ledger_id in (1, 2, 100):
            answers.append(client.send(ledger_id, 2 * round_, 2))
            await asyncio.sleep(0)
    await asyncio.gather(*answers)
    await client.add(1, 8, 3)
    await client.add(2, 12, 1)


async def _append_ahead(client: Client) -> None:
    """Groups large enough to be written while the one before is being synced."""
    answers = []
    for entry_id in range(9):
        answers.append(client.send(100 + entry_id % 2, entry_id))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*answers)


async def _flush(client: Client) -> None:
    await client.add(1, 0, 3)
    await client.add(100, 0, 2)
    await client.write_lac(1, 1)
    await client.flush()
    await client.add(1, 3, 3)
    answer = client.send(101, 0, 2)
    await client.flush()
    await answer


async def _replay(client: Client) -> None:
    """More than the write cache takes: a replay flushes on its way. The LAC is asked for while what
    brings it is still being synced."""
    await client.add(1, 0, 3)
    await client.flush()
    answers = [client.send(1, 3, 3), client.send(2, 0, 3), client.send(100, 0, 2)]
    await client.read_lac(1)
    await asyncio.gather(*answers)
    await client.fence(2)
    answers = [client.send(1, 6, 4), client.send(100, 2, 2)]
    await client.read_lac(100)
    await asyncio.gather(*answers)


async def _roll(client: Client) -> None:
    """Journal files end, are let go of, and are written over as spares."""
    for entry_id in range(0, 24, 2):
        await client.add(100 + entry_id % 4 // 2, entry_id, 2)
        if entry_id % 6 == 4:
            await client.flush()
    answers = [client.send(102, entry_id) for entry_id in range(8)]
    await asyncio.gather(*answers)


async def _checkpoint(client: Client) -> None:
    """Several flushes of several states, adds beside them, entry logs sealed."""
    for round_ in range(4):
        answers = [client.send(ledger_id, round_ * 2, 2) for ledger_id in (3, 4, 100)]
        await client.flush()
        await asyncio.gather(*answers)
    await client.write_lac(3, 6)
    await client.flush()


async def _fence(client: Client) -> None:
    await client.add(1, 0, 3)
    await client.add(2, 0, 2)
    answer = client.send(2, 2)
    await client.fence(1)
    await client.fence(5)  # of which nothing is known
    await client.flush()
    await client.fence(2)
    await client.add(1, 2, 2, recovery=True)
    await answer


async def _delete(client: Client) -> None:
    for ledger_id in (1, 2, 3, 4):
        await client.add(ledger_id, 0, 3)
    await client.flush()
    await client.add(1, 3, 2)
    await client.add(2, 3, 2)
    await client.remove(1, deleted=True)
    await client.remove(2, deleted=False)
    await client.flush()
    await client.add(2, 1, 2, recovery=True)
    await client.remove(3, deleted=False)
    await client.remove(5, deleted=True)  # of which nothing is known
    await client.fence(4)
    await client.remove(4, deleted=True)
    await client.flush()
    await client.remove(3, deleted=True)


async def _recovery(client: Client) -> None:
    """Copies that overlap what is there, in cache and index."""
    await client.add(1, 0, 2)
    await client.add(1, 4, 2)
    await client.flush()
    await client.add(1, 8, 2)
    await client.fence(1)
    await asyncio.gather(
        client.send(1, 1, 4, recovery=True),
        client.send(1, 0, 10, recovery=True),
        client.send(100, 2, 2, recovery=True),
        client.send(100, 0, 5, recovery=True),
    )
    await client.flush()
    await client.add(1, 5, 6, recovery=True)


async def _limbo(client: Client) -> None:
    await client.add(1, 0, 3)
    await client.add(2, 0, 3)
    await client.put_in_limbo(1, 6)
    await client.flush()
    await client.put_in_limbo(2)
    await client.add(1, 2, 3, recovery=True)
    await client.clear_limbo(1)
    await client.add(6, 0, 2, recovery=True)
    await client.flush()
    await client.clear_limbo(6)


async def _replacement(client: Client) -> None:
    """Stored runs are written anew, as for damaged ones."""
    await client.add(1, 0, 3)
    await client.flush()
    await client.add(1, 3, 3)
    await client.fence(1)
    await client.flush()
    await client.replace(1, 0, 3)
    await client.flush()
    await client.replace(1, 0, 6)
    await client.add(100, 0, 2)
    await client.replace(1, 0, 6)
    await client.flush()


async def _first_start(client: Client) -> None:
    await client.add(1, 0, 2)
    await client.fence(1)


async def _boot(client: Client) -> None:
    """The directory is new, but ledgers name the bookie: it may have held entries of them."""
    await client.add(1, 0, 2, recovery=True)
    await client.clear_limbo(1)
    await client.add(3, 0, 2)
    await client.flush()


async def _unsynced(client: Client) -> None:
    """Adds are answered before they are synced; controls and flushes take them along."""
    await client.add(1, 0, 2)
    await client.add(2, 0, 2)
    await client.add(100, 0)
    await client.fence(1)
    await client.add(2, 2, 2)
    await client.add(3, 0, 2)
    await client.flush()
    await client.add(3, 2, 2)
    await client.write_lac(3, 2)  # no entry carries it yet
    await client.add(100, 1, 2)
    await client.add(3, 4, 2)
    await client.remove(2, deleted=True)
    await client.add(101, 0, 2)


async def _compaction(client: Client) -> None:
    """Entry logs of which little is live are copied together, dead ones are removed."""
    for round_ in range(3):
        for ledger_id in (1, 2, 100, 101):
            await client.add(ledger_id, 2 * round_, 2)
        await client.flush()
    await client.remove(100, deleted=True)
    await client.flush()
    answer = client.send(1, 6, 2)
    await client.collect(0.9)
    await answer
    await client.fence(2)
    await client.replace(2, 0, 2)
    await client.remove(101, deleted=False)
    await asyncio.gather(client.collect(1.0), client.flush())
    await client.add(101, 0, 2, recovery=True)
    await client.flush()
    await client.collect(1.0)


async def _two_shards(client: Client) -> None:
    for ledger_id in (1, 2, 3, 100, 101):
        await client.add(ledger_id, 0, 2)
    answers = [client.send(ledger_id, 2) for ledger_id in (2, 3, 101)]
    await client.fence(1)
    await client.flush()
    await asyncio.gather(*answers)
    await client.add(3, 3, 2)
    await client.remove(2, deleted=True)
    await client.add(101, 3, 3)
    await client.flush()


_TWO = {
    "journal_dirs": (Path("/journal-a"), Path("/journal-b")),
    "ledger_dirs": (DATA / "l",),
}

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("append", _append),
        Workload("append-ahead", _append_ahead, {"journal_file_bytes": 30_000}),
        Workload("flush", _flush),
        Workload("replay", _replay, {"write_cache_bytes": 3000}),
        Workload("roll", _roll, {"journal_file_bytes": 4000}),
        Workload("checkpoint", _checkpoint, {"entry_log_bytes": 2600}),
        Workload("fence", _fence),
        Workload("delete", _delete),
        Workload("recovery", _recovery),
        Workload("limbo", _limbo),
        Workload("replacement", _replacement),
        Workload("first-start", _first_start, is_first_start=True),
        Workload("boot", _boot, is_first_start=True, listed=(1, 2)),
        Workload("compaction", _compaction, {"entry_log_bytes": 2600}),
        Workload("unsynced", _unsynced, {"journal_sync": False}),
        Workload("unjournaled", _unsynced, {"journal_write": False}),
        Workload("two-shards", _two_shards, _TWO),
        Workload("two-shards-first-start", _first_start, _TWO, is_first_start=True),
    )
}
