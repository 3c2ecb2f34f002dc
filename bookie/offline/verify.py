"""The check of every byte of a bookie's data that has a meaning, without changing one.

The checks of a start are made by the code of a start, on a read-only disk; in addition, each run
that the index points to is read and its checksum compared, and files are compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fencelog.bookie.disk.port import Disk, File, KeyValueStore
from fencelog.bookie.format.ledger_state import BookieLedgerState
from fencelog.bookie.format.records import FileHeader
from fencelog.bookie.identity.cookies import Identity, Mark
from fencelog.bookie.offline.inspect_entry_log import read_entry_log_header
from fencelog.bookie.offline.inspect_index import IndexedLedger, index_ledgers
from fencelog.bookie.offline.inspect_journal import journal_records
from fencelog.bookie.offline.inspect_records import RecordSpan, places
from fencelog.bookie.offline.offline import Offline
from fencelog.bookie.storage.entry_log import (
    EntryLogReader,
    StoredRun,
    decode_footer,
    encode_footer,
    entry_log_ids,
    entry_log_name,
    records_end,
)
from fencelog.bookie.storage.index import Index
from fencelog.bookie.storage.shard_directory import ShardDirectory
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import read_run_header

_KNOWN_KEYS = (b"L", b"M", b"R")

_MOST_SHOWN = 1000
"""Number of damaged places of one file that are reported one by one."""


@dataclass(frozen=True, slots=True)
class VerifyProblem:
    """A problem with a file. ``offset`` is None where the whole file is meant."""

    path: Path
    offset: int | None
    what: str

    def __str__(self) -> str:
        where = self.path if self.offset is None else f"{self.path} at offset {self.offset}"
        return f"{where}: {self.what}"


def verify(data: Offline) -> Iterator[VerifyProblem]:
    """Yield all problems of a bookie's data. ``data.disk`` is a read-only one."""
    try:
        identity = data.identity()
    except FencelogError as error:
        yield _problem(data.directory.path, error)
        return
    yield from _marks(data, identity)
    for number, shard in enumerate(data.shards):
        part = _Shard(data.disk, shard, identity, number, len(data.shards))
        try:
            yield from part.problems()
        except OSError as error:
            yield _problem(shard.paths.ledgers, error)


def _marks(data: Offline, identity: Identity) -> Iterator[VerifyProblem]:
    """Yield the problems of the marks in the given directories."""
    try:
        found = data.directory.inspect().directories
    except FencelogError as error:
        yield _problem(data.directory.path, error)
        return
    for directory in found:
        made_in = identity.cookie.made_in(directory.place)
        expected = Mark(identity.bookie_id, directory.place, made_in, is_made=True)
        if directory.mark != expected:
            what = f"is {directory.mark}, not {expected}" if directory.mark else "is missing"
            yield VerifyProblem(Path(directory.path, "cookie"), None, what)


def index_problems(
    disk: Disk, shard: ShardDirectory, number: int = 0, count: int = 1
) -> Iterator[VerifyProblem]:
    """Yield the reasons to rebuild an index: it cannot be read to its end, it is older than the
    checkpoint, or it is inconsistent. Runs are not read."""
    path = shard.paths.index
    try:
        store = disk.open_store(path, create=False)
    except OSError as error:
        yield _problem(path, error)
        return
    try:
        yield from _mark_problems(Index(store), shard)
        for ledger in index_ledgers(store):
            yield from _ledger_problems(path, ledger, number, count)
        yield from _unknown_keys(path, store)
    except (OSError, FencelogError) as error:
        yield _problem(path, error)
    finally:
        store.close()


def _mark_problems(index: Index, shard: ShardDirectory) -> Iterator[VerifyProblem]:
    mark = index.mark()
    try:
        checkpoint = shard.read_checkpoint()
    except FencelogError:
        return  # reported elsewhere
    if mark < checkpoint.sequence:
        what = f"has the records before {mark}; the checkpoint says {checkpoint.sequence}"
        yield VerifyProblem(shard.paths.index, None, what)


def _ledger_problems(
    path: Path, ledger: IndexedLedger, number: int, count: int
) -> Iterator[VerifyProblem]:
    ledger_id, state = ledger.ledger_id, ledger.state
    if ledger_id % count != number:
        yield VerifyProblem(path, None, f"ledger {ledger_id} does not belong to shard {number}")
    if state is None:
        yield VerifyProblem(path, None, f"ledger {ledger_id} has runs and no state")
    end = -1
    for run in ledger.runs:
        name = f"run {run.first_entry_id}..{run.last_entry_id} of ledger {ledger_id}"
        if run.first_entry_id <= end:
            yield VerifyProblem(
                path, None, f"{name} overlaps the one before, which ends with {end}"
            )
        if run.first_entry_id > run.last_entry_id or run.first_entry_id < 0:
            yield VerifyProblem(path, None, f"{name} is none")
        end = run.last_entry_id
    if state is not None:
        yield from _state_problems(path, ledger_id, state, end)


def _state_problems(
    path: Path, ledger_id: int, state: BookieLedgerState, end: int
) -> Iterator[VerifyProblem]:
    if state.deleted and end >= 0:
        yield VerifyProblem(path, None, f"ledger {ledger_id} is deleted and has runs up to {end}")
    elif end > state.last_entry:
        what = f"ledger {ledger_id} ends with {state.last_entry}, its runs with {end}"
        yield VerifyProblem(path, None, what)


def _unknown_keys(path: Path, store: KeyValueStore) -> Iterator[VerifyProblem]:
    ends = (b"", *(bytes([key[0] + 1]) for key in _KNOWN_KEYS))
    for first, end in zip(ends, (*_KNOWN_KEYS, b"\xff" * 32), strict=True):
        for key, value in store.scan(first, end):
            yield VerifyProblem(path, None, f"{key.hex()} -> {value.hex()} means nothing")


class _Shard:
    """One shard; every method yields the problems of a part of it."""

    def __init__(
        self, disk: Disk, shard: ShardDirectory, identity: Identity, number: int, count: int
    ) -> None:
        self._disk = disk
        self._shard = shard
        self._incarnation = identity.directory_bytes
        self._number = number
        self._count = count

    def problems(self) -> Iterator[VerifyProblem]:
        yield from self._checkpoint()
        yield from index_problems(self._disk, self._shard, self._number, self._count)
        yield from self._journal()
        yield from self._runs()
        for file_id in entry_log_ids(self._disk, self._shard.paths.entry_log):
            yield from self._entry_log(file_id)

    def _checkpoint(self) -> Iterator[VerifyProblem]:
        try:
            self._shard.read_checkpoint()
        except FencelogError as error:
            yield _problem(self._shard.paths.checkpoint, error)

    def _journal(self) -> Iterator[VerifyProblem]:
        path = self._shard.paths.journal
        try:
            end = 0
            for at, _record in journal_records(self._disk, self._shard, self._incarnation):
                end = at.sequence
            mark = self._mark()
        except (OSError, FencelogError) as error:
            yield _problem(path, error)
            return
        if mark is not None and end < mark:
            yield VerifyProblem(
                path, None, f"ends before record {end}; up to {mark} had been synced"
            )

    def _mark(self) -> int | None:
        try:
            store = self._disk.open_store(self._shard.paths.index, create=False)
        except OSError:
            return None  # reported elsewhere
        try:
            return Index(store).mark()
        except FencelogError:
            return None
        finally:
            store.close()

    def _runs(self) -> Iterator[VerifyProblem]:
        """Yield the problems of the runs that the index points to."""
        paths = self._shard.paths
        try:
            store = self._disk.open_store(paths.index, create=False)
        except OSError:
            return  # reported elsewhere
        reader = EntryLogReader(self._disk, paths.entry_log, incarnation=self._incarnation)
        try:
            for ledger in index_ledgers(store):
                for run in ledger.runs:
                    yield from self._run(reader, run)
        except (OSError, FencelogError):
            return  # reported elsewhere
        finally:
            reader.close()
            store.close()

    def _run(self, reader: EntryLogReader, run: StoredRun) -> Iterator[VerifyProblem]:
        try:
            reader.read(run)
        except FencelogError as error:
            path = self._shard.paths.entry_log / entry_log_name(run.file_id)
            yield _problem(path, error, run.offset)

    def _entry_log(self, file_id: int) -> Iterator[VerifyProblem]:
        """Yield the problems of an entry log: its header, and in a sealed file every record and the
        footer. Bytes at the end of an unsealed file count only if the index points to them."""
        path = self._shard.paths.entry_log / entry_log_name(file_id)
        try:
            file = self._disk.open(path)
        except OSError as error:
            yield _problem(path, error)
            return
        try:
            header = read_entry_log_header(file, file_id, self._incarnation)
            if header is None:
                yield VerifyProblem(path, 0, "entry log header is damaged")
                return
            yield from _log_problems(path, file, header)
        finally:
            file.close()


def _log_problems(path: Path, file: File, header: FileHeader) -> Iterator[VerifyProblem]:
    footer = decode_footer(file, seed=header.seed)
    end = records_end(file)
    sizes: dict[int, int] = {}
    damaged: list[RecordSpan] = []
    for place in places(file, end, seed=header.seed):
        if place.record is None:
            damaged.append(place)
        else:
            ledger_id = read_run_header(place.record.body).ledger_id
            sizes[ledger_id] = sizes.get(ledger_id, 0) + place.end - place.offset
    if footer is None and end == file.size():
        yield from _lost_footer(path, sizes, damaged[-1:])
        return
    for place in damaged[:_MOST_SHOWN]:
        yield VerifyProblem(path, place.offset, f"damaged up to offset {place.end}")
    if sizes != footer and not damaged:
        yield VerifyProblem(path, end, "footer is damaged, or does not say what the records are")


def _lost_footer(
    path: Path, sizes: dict[int, int], last: list[RecordSpan]
) -> Iterator[VerifyProblem]:
    """Yield a problem if exactly as many bytes as the footer would take end the file, and are no
    footer. Other files without a footer were cut off by a crash."""
    size = len(encode_footer(sizes, offset=0, seed=0))
    for place in last:
        if place.end - place.offset == size:
            yield VerifyProblem(path, place.offset, "footer is damaged")


def _problem(
    path: Path, error: OSError | FencelogError, offset: int | None = None
) -> VerifyProblem:
    """Turn an error into a problem that names its place once."""
    if isinstance(error, OSError):
        return VerifyProblem(path, offset, str(error.strerror or error).removeprefix(f"{path}: "))
    path = Path(error.extra.get("path", path))
    offset = error.extra.get("offset", offset)
    what = error.detail
    for where in (f"{path} at offset {offset}", f"{path}"):
        what = what.removeprefix(where).lstrip(": ")
    return VerifyProblem(path, offset, what)
