"""Opening a data directory: its parts, and what its journal holds that the index does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.data_directory import DataDirectory, Identity
from fencelog.bookie.disk import Disk, Lane
from fencelog.bookie.journal import Journal
from fencelog.bookie.journal_file import JournalPosition
from fencelog.bookie.journal_replay import Replay
from fencelog.bookie.ledger_state import LedgerStates
from fencelog.bookie.records import FILE_HEADER_BYTES, Record
from fencelog.bookie.storage import Storage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MIB

_REPLAY_CHUNK_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class OpenDirectory:
    """The parts of an open data directory. ``states`` are those of the index."""

    config: BookieConfig
    disk: Disk
    directory: DataDirectory
    identity: Identity
    storage: Storage
    states: LedgerStates
    journal: Journal
    write_lane: Lane
    read_lane: Lane


async def open_directory(
    config: BookieConfig,
    *,
    disk: Disk,
    host: Host,
    stack: AsyncExitStack,
    on_failure: Callable[[FencelogError], None],
) -> OpenDirectory:
    """``stack`` closes what is opened. Raises OSError, and FencelogError as ``Bookie.open``."""
    write_lane = disk.lane("bookie-write")
    stack.push_async_callback(write_lane.close)
    directory = DataDirectory(disk, config.data_dir)
    await write_lane.run(directory.lock)
    stack.callback(directory.unlock)
    identity = await write_lane.run(lambda: directory.load_or_create(config.bookie_id, host))
    storage = await write_lane.run(lambda: Storage(disk, directory, identity, config, host))
    stack.push_async_callback(write_lane.run, storage.close)
    read_lane = disk.lane("bookie-read")  # closed before the files that it reads
    stack.push_async_callback(read_lane.close)
    journal_lane = disk.lane("bookie-journal")
    stack.push_async_callback(journal_lane.close)
    states = LedgerStates()
    states.load(await write_lane.run(lambda: list(storage.index.states())))
    journal = Journal(
        disk=disk,
        lane=journal_lane,
        host=host,
        directory=directory.journal,
        incarnation=identity.directory_bytes,
        max_file_bytes=config.journal_file_bytes,
        sync_runs=config.journal_sync,
        on_failure=on_failure,
    )
    return OpenDirectory(
        config, disk, directory, identity, storage, states, journal, write_lane, read_lane
    )


async def replay_journal(
    opened: OpenDirectory,
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
            opened.disk,
            opened.directory.journal,
            start=opened.storage.checkpoint,
            incarnation=opened.identity.directory_bytes,
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
