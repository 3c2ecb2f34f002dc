"""The data of one ledger on a bookie: in the index, and in the journal alone."""

from __future__ import annotations

from collections.abc import Iterator

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.offline.inspect_index import describe_run, describe_state
from fencelog.bookie.offline.inspect_journal import journal_records
from fencelog.bookie.offline.inspect_records import Item, describe
from fencelog.bookie.storage.index import Index
from fencelog.bookie.storage.shard_directory import ShardDirectory


def inspect_ledger(
    disk: Disk, shard: ShardDirectory, incarnation: bytes, ledger_id: int
) -> Iterator[Item]:
    """Yield the ledger's runs in the index, its state there, then the records of it that a start
    would replay from the journal. ``disk`` is a read-only one. Raises OSError, FencelogError."""
    store = disk.open_store(shard.paths.index, create=False)
    try:
        index = Index(store)
        mark = index.mark()
        for run in index.runs_from(ledger_id, 0):
            yield describe_run(run)
        state = next((state for i, state in index.states() if i == ledger_id), None)
        yield {"ledger": ledger_id} | describe_state(state)
    finally:
        store.close()
    for at, record in journal_records(disk, shard, incarnation):
        if record is None or at.sequence < mark:
            continue
        said = describe(record)
        if said["ledger"] == ledger_id:
            yield {"in journal": at.file_id, "offset": at.offset} | said
