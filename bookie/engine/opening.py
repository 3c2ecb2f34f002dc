"""Opening the directories of a shard, and what its journal holds that the index does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk, Lane
from fencelog.bookie.format.ledger_state import LedgerStates
from fencelog.bookie.format.records import FILE_HEADER_BYTES, Record
from fencelog.bookie.journal.file import JournalPosition
from fencelog.bookie.journal.journal import Journal
from fencelog.bookie.journal.replay import Replay
from fencelog.bookie.storage.shard_directory import ShardDirectory
from fencelog.bookie.storage.storage import Storage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MIB

_REPLAY_CHUNK_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class OpenShard:
    """The parts of an open shard. ``states`` are those of the index; ``incarnation`` is the first
    of the bookie's directory, which all its files name."""

    directory: ShardDirectory
    incarnation: bytes
    storage: Storage
    states: LedgerStates
    journal: Journal
    write_lane: Lane
    read_lane: Lane


async def open_shard(
    directory: ShardDirectory,
    config: BookieConfig,
    *,
    incarnation: bytes,
    disk: Disk,
    host: Host,
    stack: AsyncExitStack,
    on_failure: Callable[[FencelogError], None],
) -> OpenShard:
    """``stack`` closes what is opened. Raises OSError, and FencelogError as ``Bookie.open``."""
    write_lane = disk.lane("bookie-write")
    stack.push_async_callback(write_lane.close)
    storage = await write_lane.run(
        lambda: Storage(disk, directory, config, host, incarnation=incarnation)
    )
    stack.push_async_callback(write_lane.run, storage.close)
    read_lane = disk.lane("bookie-read")  # closed before the files that it reads
    stack.push_async_callback(read_lane.close)
    journal_lane = disk.lane("bookie-journal")
    stack.push_async_callback(journal_lane.close)
    sync_lane = disk.lane("bookie-sync")
    stack.push_async_callback(sync_lane.close)
    states = LedgerStates()
    states.load(await write_lane.run(lambda: list(storage.index.states())))
    journal = Journal(
        disk=disk,
        lane=journal_lane,
        sync_lane=sync_lane,
        host=host,
        directory=directory.paths.journal,
        incarnation=incarnation,
        max_file_bytes=config.journal_file_bytes,
        sync_runs=config.journal_sync,
        on_failure=on_failure,
    )
    stack.push_async_callback(journal.close)
    return OpenShard(directory, incarnation, storage, states, journal, write_lane, read_lane)


async def replay_journal(
    opened: OpenShard,
    disk: Disk,
    *,
    take_back: Callable[[Record], None],
    must_flush: Callable[[], bool],
    flush: Callable[[JournalPosition], Awaitable[None]],
) -> JournalPosition:
    """Take back the records that the index does not have, in order; returns where the journal goes
    on: the next sequence, in a new file. Raises OSError, FencelogError(CORRUPT)."""
    lane, mark = opened.write_lane, opened.storage.mark
    replay = await lane.run(
        lambda: Replay(
            disk,
            opened.directory.paths.journal,
            start=opened.storage.checkpoint,
            incarnation=opened.incarnation,
        )
    )
    try:
        while records := await lane.run(lambda: replay.next_records(_REPLAY_CHUNK_BYTES)):
            for record, end in records:
                if record.sequence < mark:
                    continue
                take_back(record)
                if must_flush():
                    await flush(end)
    finally:
        await lane.run(replay.close)
    end = replay.position
    if end.sequence < mark:
        raise FencelogError(
            ErrorCode.CORRUPT,
            f"journal ends before record {end.sequence}; up to {mark} had been synced",
        )
    return JournalPosition(end.sequence, replay.last_file_id + 1, FILE_HEADER_BYTES)
