"""Copies of entries from the other bookies of their write set, verified end to end."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from operator import itemgetter
from typing import NamedTuple

from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.format.runs import CachedRun
from fencelog.bookie.repair.core import CopyRange, by_source, entries_of_read, missing_reason
from fencelog.ledgers.errors import ErrorCode, FencelogError, prefix_bookie
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.format.run import read_run_header, slice_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import (
    COPY_PART_MS,
    COPY_READ_BYTES,
    SOURCE_REST_MS,
    TARGET_RUN_BYTES,
)
from fencelog.ledgers.reader.entry_reads import verify_reply
from fencelog.ledgers.reader.fan_out import answers
from fencelog.ledgers.rpc.bookie_port import NO_LAC, BookieDirectory, ReadReply

_WELL = (ErrorCode.LEDGER_IN_LIMBO, ErrorCode.CORRUPT)
"""Errors of a bookie that is up, and may have the next entry that is asked for."""


_DAMAGED = (ErrorCode.CORRUPT, ErrorCode.STORAGE_FAILED)
"""Errors of a bookie whose copy is not what was written, or cannot be read."""


class PutOff(FencelogError):
    """An error for a repair that is possible only later; ``why`` is one word for ``status``."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(ErrorCode.READ_UNKNOWN, detail)
        self.why = why


class NoCopy(FencelogError):
    """An error for an entry of which no bookie gave a copy; ``reason`` states what may be
    concluded. ``entries``: all entries of which a repair has found the same, ``are_more``: it has
    not looked at all of them. ``is_silent``: no bookie could tell anything of the entry;
    ``is_damaged``: one has a copy that is not what was written, or cannot be read."""

    def __init__(self, ledger_id: int, entry_id: int, failed: Mapping[str, FencelogError]) -> None:
        self.reason = missing_reason(failed)
        self.is_silent = bool(failed) and not any(e.code.is_negative for e in failed.values())
        self.is_damaged = any(e.code in _DAMAGED for e in failed.values())
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


class _Rest(NamedTuple):
    """The time until which a source is not asked, and why. ``started_us``: the start of the process
    that failed; the next one of the bookie is asked at once."""

    until: float
    started_us: int
    error: FencelogError


class Copies:
    """A reader that asks one source after the other. After a failure a source is skipped for a
    while, or until it has started again: a bookie that is down costs one time-out, not one for each
    entry."""

    def __init__(self, bookies: BookieDirectory, *, key: bytes, pace: Pace) -> None:
        self._bookies = bookies
        self._key = key
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._resting: dict[str, _Rest] = {}

    async def run(self, metadata: LedgerMetadata, copy_range: CopyRange, entry_id: int) -> bytes:
        """Return a run of entries of the range that begins with this one, at most COPY_READ_BYTES
        of them but at least one, each with its digest verified. Raises NoCopy."""
        failed: dict[str, FencelogError] = {}
        for bookie_id in copy_range.sources:
            if (reason := self._rests(bookie_id)) is not None:
                failed[bookie_id] = reason
                continue
            started_us = self._started_us(bookie_id)
            try:
                run = await self._ask(bookie_id, metadata, copy_range, entry_id)
            except FencelogError as error:
                failed[bookie_id] = error
                self._failed(bookie_id, started_us, error)
            else:
                await self._pace.took(len(run))
                return run
        raise NoCopy(metadata.ledger_id, entry_id, failed)

    def entries_at_once(self, metadata: LedgerMetadata) -> int:
        """Return how many entries of a ledger to read at once."""
        return entries_of_read(metadata, self._pace.part(TARGET_RUN_BYTES, COPY_PART_MS))

    async def runs(
        self, metadata: LedgerMetadata, parts: Sequence[CopyRange], *, turn: int = 0
    ) -> list[CachedRun]:
        """Return runs of entries of several ranges, ascending, COPY_READ_BYTES of them but at least
        one of each source, each with its digest verified. ``run`` tells why entries are not among
        them. ``turn``: how many sources were asked in vain."""
        resting = {bookie for bookie in self._resting if self._rests(bookie) is not None}
        asked = by_source(parts, resting=resting, turn=turn)
        started_us = [self._started_us(bookie) for bookie in asked]
        entries = {bookie: sum([b - a + 1 for a, b in asked[bookie]]) for bookie in asked}
        most, of_all = self._pace.part(COPY_READ_BYTES, COPY_PART_MS), sum(entries.values())
        requests = [
            self._ask_for_ranges(b, metadata, ranges, max(1, most * entries[b] // of_all))
            for b, ranges in asked.items()
        ]
        found: list[CachedRun] = []
        async with aclosing(answers(requests)) as replies:
            async for number, reply in replies:
                if not isinstance(reply, FencelogError):
                    found += reply
                elif reply.code is not ErrorCode.UNSUPPORTED_VERSION:  # it answers ``run``
                    self._failed([*asked][number], started_us[number], reply)
        await self._pace.took(sum([len(run) for _, _, run in found]))
        return sorted(found, key=itemgetter(0))

    async def _ask_for_ranges(
        self, bookie_id: str, metadata: LedgerMetadata, ranges: Sequence[Range], max_bytes: int
    ) -> list[CachedRun]:
        """Ask one bookie for entries of several ranges. Raises FencelogError; CORRUPT if any of
        what it answers is not what it was asked for."""
        client = self._bookies.client(bookie_id)
        runs = await client.read_ranges(metadata.ledger_id, ranges, max_bytes=max_bytes)
        found: list[CachedRun] = []
        following = 0
        for run in runs:
            header = read_run_header(run)
            first, last = header.first_entry_id, header.last_entry_id
            at = bisect_right(ranges, first, key=itemgetter(0)) - 1
            if first < following or at < 0 or last > ranges[at][1]:
                raise FencelogError(
                    ErrorCode.CORRUPT,
                    f"bookie {bookie_id} was not asked for entries {first}..{last} of ledger "
                    f"{metadata.ledger_id}, and answered with them",
                )
            verify_reply(
                ReadReply(NO_LAC, run), metadata, first, bookie_id=bookie_id, key=self._key
            )
            found.append((first, last, bytes(run)))
            following = last + 1
        return found

    def _started_us(self, bookie_id: str) -> int:
        return self._bookies.describe(bookie_id).started_us

    def _rests(self, bookie_id: str) -> FencelogError | None:
        """Return why a source is not asked now, None if it is."""
        rest = self._resting.get(bookie_id)
        if rest is None or self._loop.time() >= rest.until:
            return None
        return rest.error if self._started_us(bookie_id) == rest.started_us else None

    def _failed(self, bookie_id: str, started_us: int, error: FencelogError) -> None:
        """Let a source rest that fails for reasons of its own. ``started_us``: that of its process
        when it was asked."""
        if not error.code.is_negative and error.code not in _WELL:
            until = self._loop.time() + SOURCE_REST_MS / 1000
            self._resting[bookie_id] = _Rest(until, started_us, error)

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
