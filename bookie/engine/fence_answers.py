"""The answer to FENCE: the ledger is fenced durably, then its LAC and its end are read, as by a LAC
read and reads that follow it."""

from __future__ import annotations

from typing import Protocol

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Buffer, merge_runs, read_run_header
from fencelog.ledgers.limits import FENCE_READ_BYTES, MAX_RUN_ENTRIES
from fencelog.ledgers.rpc.bookie_port import FenceAnswer, ReadReply


class FencedReads(Protocol):
    """The reads of a bookie, see ``BookieClient``."""

    async def read_lac(self, ledger_id: int, *, fence: bool = False) -> int: ...

    async def read(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> ReadReply: ...


async def fence_and_read(reads: FencedReads, ledger_id: int, above: int) -> FenceAnswer:
    """Fence a ledger and answer with what is at its end; the contract of
    ``BookieClient.fence_and_read``. The reads begin when the fence is durable, so an entry that is
    not here now will never be, unless a recovery writes it."""
    lac = await reads.read_lac(ledger_id, fence=True)
    first = max(lac, above)
    entry_id, left, runs = max(first, 0), FENCE_READ_BYTES, list[Buffer]()
    absent: int | None = None
    while absent is None:
        try:
            reply = await reads.read(
                ledger_id, entry_id, max_entries=MAX_RUN_ENTRIES, max_bytes=left
            )
        except FencelogError as error:
            if error.code is not ErrorCode.NO_SUCH_ENTRY:
                break
            if entry_id == first:  # the entries after it are those that the client asks about
                entry_id, first = entry_id + 1, -1
            else:
                absent = entry_id
            continue
        left -= len(reply.run)
        if left < 0:
            break
        runs.append(reply.run)
        entry_id = read_run_header(reply.run).last_entry_id + 1
    run = merge_runs(runs) if len(runs) > 1 else b"".join(runs)
    return FenceAnswer(lac, run, absent)
