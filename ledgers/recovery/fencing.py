"""The fencing of a ledger: requests to its last ensemble until (Qw - Qa) + 1 bookies of each write
set have fenced it. No add of the ledger's writer can be acknowledged from then on (rule 4)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import verify_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.reader.entry_reads import verified_reply
from fencelog.ledgers.reader.fan_out import answers, cancel_all
from fencelog.ledgers.recovery.rules import AcceptedLoss, Copy, FenceRound, Told, Verdict
from fencelog.ledgers.rpc.bookie_port import BookieDirectory, FenceAnswer, ReadReply


async def fence_ledger(metadata: LedgerMetadata, *, bookies: BookieDirectory) -> None:
    """Fence a ledger that is not going to be recovered, with LAC reads.

    Raises RECOVERY_INCOMPLETE naming the bookies that are missing (some may be fenced by then; that
    cannot be undone and need not be).
    """
    await _read_lacs(FenceRound(metadata), bookies)


async def fence_for_recovery(
    metadata: LedgerMetadata,
    *,
    bookies: BookieDirectory,
    key: bytes,
    accepted: AcceptedLoss | None = None,
) -> FenceRound:
    """Fence a ledger, and learn where its recovery begins. The answers contain the end of the
    ledger too, where it is small and not striped. Raises as ``fence_ledger``."""
    fence = FenceRound(metadata, accepted)
    if fence.asks_for_entries:
        await _read_ends(fence, bookies, key)
    else:
        await _read_lacs(fence, bookies)
    return fence


async def _read_lacs(fence: FenceRound, bookies: BookieDirectory) -> None:
    ledger_id = fence.metadata.ledger_id
    requests = [bookies.client(bookie).read_lac(ledger_id, fence=True) for bookie in fence.members]
    async with aclosing(answers(requests)) as answered:
        async for index, answer in answered:
            if isinstance(answer, int):
                fence.answer(index, answer)
            else:
                fence.error(index, answer)
            if fence.verdict is not Verdict.WAITING:
                break
    if fence.verdict is not Verdict.POSITIVE:
        raise fence.incomplete()


async def _read_ends(fence: FenceRound, bookies: BookieDirectory, key: bytes) -> None:
    ledger_id, above = fence.metadata.ledger_id, fence.above
    asked = {
        bookies.client(bookie).fence_and_read(ledger_id, above): index
        for index, bookie in enumerate(fence.members)
    }
    pending = set(asked)
    try:
        while fence.verdict is Verdict.WAITING:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for each in sorted(done, key=asked.__getitem__):
                error = each.exception()
                if error is None:
                    answer, bookie = each.result(), fence.members[asked[each]]
                    fence.answer(asked[each], answer.lac, told_by(answer, fence, bookie, key))
                elif isinstance(error, FencelogError):
                    fence.error(asked[each], error)
                else:
                    raise error
    finally:
        await cancel_all(pending)
    if fence.verdict is not Verdict.POSITIVE:
        raise fence.incomplete()


def told_by(answer: FenceAnswer, fence: FenceRound, bookie_id: str, key: bytes) -> Told:
    """Return what an answer tells of entries. A run that is not valid tells nothing: the entries
    are read by themselves."""
    if not answer.run:
        return Told(None, answer.absent)
    metadata = fence.metadata
    try:
        first = verify_run(answer.run).first_entry_id
        reply = ReadReply(answer.lac, answer.run)
        entries = verified_reply(reply, metadata, first, bookie_id=bookie_id, key=key, whole=False)
    except FencelogError:
        return Told()
    return Told(Copy(answer.run, entries), answer.absent)
