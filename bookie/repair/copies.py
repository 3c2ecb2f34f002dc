"""Copies of entries from the other bookies of their write set, verified end to end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.repair.core import CopyRange, missing_reason
from fencelog.ledgers.errors import ErrorCode, FencelogError, prefix_bookie
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.format.run import slice_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import COPY_PART_MS, COPY_READ_BYTES, SOURCE_REST_MS
from fencelog.ledgers.reader.entry_reads import verify_reply
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_WELL = (ErrorCode.LEDGER_IN_LIMBO, ErrorCode.CORRUPT)
"""Errors of a bookie that is up, and may have the next entry that is asked for."""


class PutOff(FencelogError):
    """An error for a repair that is possible only later; ``why`` is one word for ``status``."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(ErrorCode.READ_UNKNOWN, detail)
        self.why = why


class NoCopy(FencelogError):
    """An error for an entry of which no bookie gave a copy; ``reason`` states what may be
    concluded. ``entries``: all entries of which a repair has found the same, ``are_more``: it has
    not looked at all of them. ``is_silent``: no bookie could tell anything of the entry."""

    def __init__(self, ledger_id: int, entry_id: int, failed: Mapping[str, FencelogError]) -> None:
        self.reason = missing_reason(failed)
        self.is_silent = bool(failed) and not any(e.code.is_negative for e in failed.values())
        self.entry_id = entry_id
        self.entries: tuple[Range, ...] = ((entry_id, entry_id),)
        self.are_more = False
        self.in_limbo = tuple(
            sorted(b for b, error in failed.items() if error.code is ErrorCode.LEDGER_IN_LIMBO)
        )
        said = "; ".join(
            prefix_bookie(bookie, error.detail) for bookie, error in sorted(failed.items())
        )
        super().__init__(
            ErrorCode.READ_UNKNOWN,
            f"no other bookie gave entry {entry_id} of ledger {ledger_id}"
            f" ({said or 'there is none that should have it'})",
        )


class Copies:
    """A reader that asks one source after the other. After a failure a source is skipped for a
    while: a bookie that is down costs one time-out, not one for each entry."""

    def __init__(self, bookies: BookieDirectory, *, key: bytes, pace: Pace) -> None:
        self._bookies = bookies
        self._key = key
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._resting: dict[str, tuple[float, FencelogError]] = {}

    async def run(self, metadata: LedgerMetadata, copy_range: CopyRange, entry_id: int) -> bytes:
        """Return a run of entries of the range that begins with this one, at most COPY_READ_BYTES
        of them but at least one, each with its digest verified. Raises NoCopy."""
        failed: dict[str, FencelogError] = {}
        for bookie_id in copy_range.sources:
            until, reason = self._resting.get(bookie_id, (0.0, None))
            if reason is not None and self._loop.time() < until:
                failed[bookie_id] = reason
                continue
            try:
                run = await self._ask(bookie_id, metadata, copy_range, entry_id)
            except FencelogError as error:
                failed[bookie_id] = error
                if not error.code.is_negative and error.code not in _WELL:
                    self._resting[bookie_id] = (self._loop.time() + SOURCE_REST_MS / 1000, error)
            else:
                await self._pace.took(len(run))
                return run
        raise NoCopy(metadata.ledger_id, entry_id, failed)

    def check_key(self, metadata: LedgerMetadata) -> None:
        """Check that copies can be verified. Raises PutOff where none could be."""
        if metadata.digest_type is DigestType.HMAC_SHA256 and not self._key:
            raise PutOff("key", f"the key of ledger {metadata.ledger_id} is not known here")

    def wake_all(self) -> None:
        """Ask sources again that are being skipped, on an operator's request."""
        self._resting.clear()

    async def _ask(
        self, bookie_id: str, metadata: LedgerMetadata, copy_range: CopyRange, entry_id: int
    ) -> bytes:
        reply = await self._bookies.client(bookie_id).read(
            metadata.ledger_id,
            entry_id,
            max_entries=copy_range.last - entry_id + 1,
            max_bytes=self._pace.part(COPY_READ_BYTES, COPY_PART_MS),
        )
        verify_reply(reply, metadata, entry_id, bookie_id=bookie_id, key=self._key)
        return slice_run(reply.run, entry_id, copy_range.last)
