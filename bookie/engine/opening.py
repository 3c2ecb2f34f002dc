"""The opening of a shard's directories, and the replay of journal records that the index lacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk, IoThread
from fencelog.bookie.format.ledger_state import LedgerStates
from fencelog.bookie.format.records import FILE_HEADER_BYTES, Record
from fencelog.bookie.journal.file import JournalPosition
from fencelog.bookie.journal.journal import Journal
from fencelog.bookie.journal.replay import JournalReplay
from fencelog.bookie.metrics import BookieCounts
from fencelog.bookie.storage.shard_directory import ShardDirectory
from fencelog.bookie.storage.storage import Storage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MIB

_REPLAY_CHUNK_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class OpenShard:
    """The parts of an open shard. ``states`` are those of the index; ``incarnation`` is the first
    incarnation of the bookie's directory, which all its files name."""

    directory: ShardDirectory
    incarnation: bytes
    storage: Storage
    states: LedgerStates
    journal: Journal
    write_io_thread: IoThread
    read_io_thread: IoThread


async def open_shard(
    directory: ShardDirectory,
    config: BookieConfig,
    *,
    incarnation: bytes,
    disk: Disk,
    host: Host,
    stack: AsyncExitStack,
    metrics: BookieCounts,
    on_failure: Callable[[FencelogError], None],
) -> OpenShard:
    """Open the directories of a shard. ``stack`` closes what is opened. Raises OSError, and
    FencelogError as ``Bookie.open``."""
    write_io_thread = disk.io_thread("bookie-write")
    stack.push_async_callback(write_io_thread.close)
    storage = await write_io_thread.run(
        lambda: Storage(disk, directory, config, host, incarnation=incarnation)
    )
    stack.push_async_callback(write_io_thread.run, storage.close)
    read_io_thread = disk.io_thread("bookie-read")  # closed before the files that it reads
    stack.push_async_callback(read_io_thread.close)
    journal_io_thread = disk.io_thread("bookie-journal")
    stack.push_async_callback(journal_io_thread.close)
    sync_io_thread = disk.io_thread("bookie-sync")
    stack.push_async_callback(sync_io_thread.close)
    states = LedgerStates()
    states.load(await write_io_thread.run(lambda: list(storage.index.states())))
    journal = Journal(
        disk=disk,
        io_thread=journal_io_thread,
        sync_io_thread=sync_io_thread,
        host=host,
        directory=directory.paths.journal,
        incarnation=incarnation,
        max_file_bytes=config.journal_file_bytes,
        sync_runs=config.journal_sync,
        metrics=metrics,
        on_failure=on_failure,
    )
    stack.push_async_callback(journal.close)
    return OpenShard(
        directory, incarnation, storage, states, journal, write_io_thread, read_io_thread
    )


async def replay_journal(
    opened: OpenShard,
    disk: Disk,
    *,
    take_back: Callable[[Record], None],
    must_flush: Callable[[], bool],
    flush: Callable[[JournalPosition], Awaitable[None]],
) -> JournalPosition:
    """Replay the records that the index does not have, in order; return where the journal goes on:
    the next sequence, in a new file. Raises OSError, FencelogError(CORRUPT)."""
    io_thread, mark = opened.write_io_thread, opened.storage.mark
    replay = await io_thread.run(
        lambda: JournalReplay(
            disk,
            opened.directory.paths.journal,
            start=opened.storage.checkpoint,
            incarnation=opened.incarnation,
        )
    )
    try:
        while records := await io_thread.run(lambda: replay.next_records(_REPLAY_CHUNK_BYTES)):
            for record, end in records:
                if record.sequence < mark:
                    continue
                take_back(record)
                if must_flush():
                    await flush(end)
    finally:
        await io_thread.run(replay.close)
    end = replay.position
    if end.sequence < mark:
        raise FencelogError(
            ErrorCode.CORRUPT,
            f"journal ends before record {end.sequence}; up to {mark} had been synced",
        )
    return JournalPosition(end.sequence, replay.last_file_id + 1, FILE_HEADER_BYTES)
