"""Stored runs that cannot be read back, and their replacement by copies of other bookies.

Damaged entries are answered with an error, never as "not there", until their replacement is
durable. Nothing more is written to an entry log in which damage was found. Otherwise, if the header
of the newest file has decayed, each replacement would be as unreadable as what it replaces.
"""

from __future__ import annotations

import logging
from functools import partial

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.shard import Shard
from fencelog.bookie.format.runs import Range
from fencelog.bookie.repair.copies import Copies, PutOff
from fencelog.bookie.repair.core import CopyRange, copy_ranges
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import merge_runs, read_run_header
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.limits import MAX_DAMAGED_RUNS

_log = logging.getLogger(__name__)


class DamagedRuns:
    """The damaged runs that were found and not replaced yet."""

    def __init__(self, bookie: Bookie, *, ledgers: LedgerStore, copies: Copies) -> None:
        self._bookie = bookie
        self._ledgers = ledgers
        self._copies = copies
        self._runs: dict[int, set[Range]] = {}
        self._files: dict[tuple[Shard, int], None] = {}
        """The entry logs in which damage was found since the last ``leave_files``, in order."""
        self.found = 0
        self.replaced = 0

    @property
    def count(self) -> int:
        return sum(map(len, self._runs.values()))

    def ledger_ids(self) -> list[int]:
        return sorted(self._runs)

    def add(self, run: StoredRun, error: FencelogError) -> None:
        """Record a run that cannot be read back, though the index points to it; the error says
        where. Above MAX_DAMAGED_RUNS, runs are only logged: the next pass finds them again."""
        entries = (run.first_entry_id, run.last_entry_id)
        self._files[self._bookie.shard(run.ledger_id), run.file_id] = None
        if entries in self._runs.get(run.ledger_id, ()):
            return
        if self._bookie.shard(run.ledger_id).cache.ranges(run.ledger_id, entries):
            return  # its replacement goes to the index with the next flush
        self.found += 1
        _log.error("bookie %s has damaged entries: %s", self._bookie.bookie_id, error.detail)
        if self.count < MAX_DAMAGED_RUNS:
            self._runs.setdefault(run.ledger_id, set()).add(entries)

    async def leave_files(self) -> None:
        """Write no more to the entry logs in which damage was found."""
        while self._files:
            (shard, file_id), _ = self._files.popitem()
            try:
                shard.check_open()
                leave = partial(shard.storage.leave_entry_log, file_id)
                await shard.write_io_thread.run(leave)
            except (FencelogError, OSError) as error:  # no run is added to it all the same
                _log.error("bookie %s: entry log %x: %s", self._bookie.bookie_id, file_id, error)

    async def repair(self, ledger_id: int) -> None:
        """Replace the damaged runs of a ledger, durably. Runs that were not replaced are kept.
        Raises FencelogError where they cannot be replaced now."""
        try:
            metadata, _ = await self._ledgers.get(ledger_id)
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_NOT_FOUND:
                self._runs.pop(ledger_id, None)  # it was deleted
                return
            raise
        if not metadata.is_closed:
            raise PutOff("open", f"ledger {ledger_id} is repaired when it is closed")
        self._copies.check_key(metadata)
        fenced = self._bookie.fence(ledger_id)
        if fenced is not None and (not_fenced := await fenced) is not None:
            raise not_fenced
        await self.leave_files()
        failure: FencelogError | None = None
        for entries in sorted(self._runs.get(ledger_id, ())):
            try:
                await self._replace(metadata, entries)
            except FencelogError as error:
                failure = error
            else:
                self._runs[ledger_id].discard(entries)
        if failure is not None:
            raise failure
        if not self._runs.get(ledger_id):  # else more was found meanwhile
            self._runs.pop(ledger_id, None)

    async def _replace(self, metadata: LedgerMetadata, entries: Range) -> None:
        """Replace a run, unless the index does not have exactly this run any more. Of one that goes
        on behind the ledger's end only the entries before it are kept: no reader needs the others,
        and there may be no other copy of them."""
        shard = self._bookie.shard(metadata.ledger_id)
        if entries not in await shard.reads.stored_ranges(metadata.ledger_id, entries):
            return
        first, last = entries[0], min(entries[1], metadata.last_entry_id)
        if last < first:
            raise PutOff(
                "behind_the_end",
                f"entries {first}..{entries[1]} of ledger {metadata.ledger_id} are behind its end, "
                f"{metadata.last_entry_id}",
            )
        runs: list[bytes] = []
        for copy_range in copy_ranges(metadata, self._bookie.bookie_id, (first, last)):
            runs += await self._all_of(metadata, copy_range)
        run = runs[0] if len(runs) == 1 else merge_runs(runs)
        await shard.adds.replace(run, is_end=last == metadata.last_entry_id)
        self.replaced += 1
        _log.warning(
            "bookie %s: entries %d..%d of ledger %d are repaired",
            self._bookie.bookie_id,
            first,
            last,
            metadata.ledger_id,
        )

    async def _all_of(self, metadata: LedgerMetadata, copy_range: CopyRange) -> list[bytes]:
        """Fetch all entries of a range. They fit in memory: a stored run is no larger than
        MAX_RUN_BYTES, and so are its parts together."""
        runs: list[bytes] = []
        entry_id = copy_range.first
        while entry_id <= copy_range.last:
            runs.append(await self._copies.run(metadata, copy_range, entry_id))
            entry_id = read_run_header(runs[-1]).last_entry_id + 1
        return runs
