"""The rebuild of an index that was lost or is damaged, from entry logs and journal.

The stored entries are found again. Facts that only the index held are not: fences, limbo, explicit
LACs, tombstones; nor can it be found out which of its entries cannot be read any more. So the
bookie becomes one that may have lost entries, under a new incarnation (PROTOCOL.md rule 10): its
next start fences every ledger that names it and puts it in limbo, so that no entry of it is denied
until its entries were compared with those of other bookies.

A crash during the rebuild is safe. The new index is made beside the old one, then the identity is
set to "forgot", then the new one replaces the old one. Before that the old state remains; during
the replacement there is no index, with which no start continues; the tool is run again.

Entry logs are read from the newest to the oldest, and of each run the entries that no newer one has
are taken: the lost index pointed to those, where they were readable. The journal comes last, so
that its removals apply to all before them, and completely, so that the mark is its end and a start
replays no record twice. Entries in the journal alone, and the rest of a run that others overlap,
are copied to a new entry log.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.format.control_records import take_back
from fencelog.bookie.format.ledger_state import LedgerStates
from fencelog.bookie.format.records import RECORD_HEADER_BYTES, Record
from fencelog.bookie.format.runs import missing_ranges
from fencelog.bookie.identity.cookies import Identity, State
from fencelog.bookie.journal.replay import JournalReplay
from fencelog.bookie.offline.inspect_disk import ReadOnlyDisk
from fencelog.bookie.offline.inspect_entry_log import read_entry_log_header
from fencelog.bookie.offline.inspect_records import Item, places
from fencelog.bookie.offline.offline import Offline
from fencelog.bookie.offline.verify import VerifyProblem, index_problems
from fencelog.bookie.storage.entry_log import (
    StoredRun,
    decode_footer,
    entry_log_ids,
    entry_log_name,
    records_end,
)
from fencelog.bookie.storage.entry_log_writer import EntryLogPlace, EntryLogWriter
from fencelog.bookie.storage.index import Index
from fencelog.bookie.storage.shard_directory import ShardDirectory
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header, run_lac, slice_run
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MIB

_BATCH_RUNS = 50_000
_BATCH_BYTES = 8 * MIB
"""Limit for the runs that are copied at once."""


def damaged_indexes(data: Offline) -> list[tuple[ShardDirectory, VerifyProblem]]:
    """Return the shards whose indexes are to be rebuilt, with the first reason for each."""
    disk = ReadOnlyDisk(data.disk)
    count = len(data.shards)
    return [
        (shard, problem)
        for number, shard in enumerate(data.shards)
        for problem in islice(index_problems(disk, shard, number, count), 1)
    ]


def rebuild_indexes(data: Offline, host: Host) -> Iterator[Item]:
    """Replace each damaged index with a new one, and yield its totals.

    Raises FencelogError: BAD_REQUEST if no index is damaged, or the directory was never served
    from; CORRUPT where the identity, a checkpoint or a journal is damaged; and OSError.
    """
    identity = data.identity()
    if identity.state is State.NEW:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"{data.directory.path} was never served from: nothing is lost"
        )
    shards = [shard for shard, _problem in damaged_indexes(data)]
    if not shards:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"every index of {data.directory.path} is whole")
    for shard in shards:
        new = _NewIndex(data.disk, shard, identity, host, data.config.entry_log_bytes)
        try:
            yield from new.fill()
        finally:
            new.close()
    _forget(data, identity, host)
    for shard in shards:
        _swap(data.disk, shard.paths.index)


def _forget(data: Offline, identity: Identity, host: Host) -> None:
    """Record, durably on return, that the bookie may have lost entries. A bookie that is already to
    fence its ledgers has an incarnation that no other process has seen."""
    if identity.state is State.READY:
        fresh = host.random_bytes(16).hex()
        cookie = identity.cookie.remade(frozenset(), fresh)
        data.directory.write_identity(Identity(cookie, State.FORGOT, identity.incarnation))


def _beside(index: Path, what: str) -> Path:
    return index.with_name(f"{index.name}.{what}")


def _swap(disk: Disk, index: Path) -> None:
    new, old = _beside(index, "new"), _beside(index, "old")
    shutil.rmtree(old, ignore_errors=True)
    disk.sync_directory(new)
    if index.name in disk.names(index.parent):
        disk.rename(index, old)
    disk.rename(new, index)
    disk.sync_directory(index.parent)
    shutil.rmtree(old, ignore_errors=True)


class _NewIndex:
    """The index of one shard, being made."""

    def __init__(
        self,
        disk: Disk,
        shard: ShardDirectory,
        identity: Identity,
        host: Host,
        max_file_bytes: int,
    ) -> None:
        self._disk = disk
        self._paths = shard.paths
        self._incarnation = identity.directory_bytes
        # The checkpoint is read before the new index is made: it shows whether there is a journal.
        start = shard.read_checkpoint()
        self._replay = JournalReplay(
            disk, self._paths.journal, start=start, incarnation=self._incarnation
        )
        self._file_ids = entry_log_ids(disk, self._paths.entry_log)
        place = EntryLogPlace(
            disk, self._paths.entry_log, self._incarnation, lambda: host.random_bytes(16)
        )
        self._writer = EntryLogWriter(place, max_file_bytes=max_file_bytes)
        path = _beside(self._paths.index, "new")
        shutil.rmtree(path, ignore_errors=True)
        disk.make_directory(path)
        self._index = Index(disk.open_store(path, create=True))
        self._states = LedgerStates()
        self._found: list[StoredRun] = []
        self._copies: list[bytes] = []
        self._copied_bytes = 0
        self._ends: dict[int, int] = {}
        """The highest entry of each ledger with runs that are not written yet."""
        self._taken = self._copied = 0

    def fill(self) -> Iterator[Item]:
        """Take all entry logs and the journal, and yield the findings; the index is durable at the
        end."""
        for file_id in reversed(self._file_ids):
            yield from self._take_entry_log(file_id)
        while records := self._replay.next_records(_BATCH_BYTES):
            for record, _end in records:
                self._take_record(record)
        mark = self._replay.position.sequence
        self._flush()
        self._index.write([], [], mark=mark)
        yield {
            "index": str(self._paths.index),
            "ledgers": len(self._states.items()),
            "runs": self._taken,
            "copied": self._copied,
            "mark": mark,
        }

    def close(self) -> None:
        self._replay.close()
        self._writer.close()
        self._index.close()

    def _take_entry_log(self, file_id: int) -> Iterator[Item]:
        path = self._paths.entry_log / entry_log_name(file_id)
        file = self._disk.open(path)
        try:
            header = read_entry_log_header(file, file_id, self._incarnation)
            if header is None:
                yield {"unreadable": str(path), "offset": 0, "bytes": file.size()}
                return
            footer = decode_footer(file, seed=header.seed)
            end = records_end(file)
            for place in places(file, end, seed=header.seed):
                if place.record is not None:
                    self._take_stored(file_id, place.offset, place.record.body)
                elif footer is not None or place.end < end:
                    size = place.end - place.offset
                    yield {"unreadable": str(path), "offset": place.offset, "bytes": size}
        finally:
            file.close()
        self._flush()

    def _take_stored(self, file_id: int, offset: int, run: bytes) -> None:
        header = read_run_header(run)
        for first, last in self._missing(run):
            if (first, last) == (header.first_entry_id, header.last_entry_id):
                at = offset + RECORD_HEADER_BYTES
                self._found.append(
                    StoredRun(header.ledger_id, first, last, file_id, at, header.size)
                )
                self._remember(run)
            else:
                self._copy(slice_run(run, first, last))

    def _take_record(self, record: Record) -> None:
        if record.type.is_run:
            for first, last in self._missing(record.body):
                self._copy(slice_run(record.body, first, last))
            return
        take_back(record, self._states)
        if removed := self._states.take_removed():
            self._flush()
            self._index.write([], [], mark=1, removed=removed)
            self._states.are_removed(removed)

    def _missing(self, run: bytes) -> list[tuple[int, int]]:
        """Return the ranges of a run that are not in the index yet."""
        header = read_run_header(run)
        if header.first_entry_id <= self._ends.get(header.ledger_id, -1):
            self._flush()
        wanted = (header.first_entry_id, header.last_entry_id)
        return missing_ranges(wanted, self._index.ranges(header.ledger_id, wanted))

    def _copy(self, run: bytes) -> None:
        self._copies.append(run)
        self._copied_bytes += len(run)
        self._remember(run)

    def _remember(self, run: bytes) -> None:
        header = read_run_header(run)
        state = self._states.change(header.ledger_id)
        state.last_entry = max(state.last_entry, header.last_entry_id)
        state.lac = max(state.lac, run_lac(run, header))
        self._ends[header.ledger_id] = max(
            self._ends.get(header.ledger_id, -1), header.last_entry_id
        )
        if len(self._found) >= _BATCH_RUNS or self._copied_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        copied = self._writer.append(self._copies)
        self._index.write([*self._found, *copied], self._states.take_changed(), mark=1)
        self._taken += len(self._found)
        self._copied += len(copied)
        self._found, self._copies, self._copied_bytes, self._ends = [], [], 0, {}
