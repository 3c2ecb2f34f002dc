"""The ledger check: what bookies list and what they return is compared with metadata, and ledgers
that lack copies are marked.

Unlike the cluster metadata checker it marks, and it reads: the first and the last entry that each
bookie should have of each fragment, and a share of the others, each verified by its digest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from fencelog.bookie.auditor.check_core import (
    Answer,
    DurabilityFindings,
    shortfalls,
)
from fencelog.bookie.auditor.check_report import CheckProgress
from fencelog.bookie.auditor.each import each, when_available
from fencelog.bookie.auditor.entry_lists import EntryLists, ListedWindow
from fencelog.bookie.auditor.limits import LEDGERS_AT_ONCE, SAMPLE_BYTES_PER_S
from fencelog.bookie.auditor.sample_core import sampled
from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.repair.core import wanted_ranges
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.limits import MAX_READ_BYTES, MAX_RUN_ENTRIES
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.reader.entry_reads import verified_reply
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_RANGES_AT_ONCE = 1024
"""Number of ranges gone through in one turn of the event loop, about a millisecond."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LedgerCheckResult:
    """The result of a ledger check. ``unverified``: ledgers whose digests need a key that is not
    known here."""

    ledgers: int = 0
    marked: int = 0
    sampled_entries: int = 0
    damaged: int = 0
    unverified: int = 0
    unreadable: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "ledgers": self.ledgers,
            "marked": self.marked,
            "sampled_entries": self.sampled_entries,
            "damaged": self.damaged,
            "unverified": self.unverified,
            "unreadable": self.unreadable,
        }


class LedgerCheck:
    """One check of all ledgers. ``share``: of the entries that are read besides the first and the
    last ones, 0 … 1; negative: none at all is read."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        *,
        host: Host,
        share: float = 0.0,
        key: bytes = b"",
        bytes_per_s: int | None = SAMPLE_BYTES_PER_S,
        ledgers_at_once: int = LEDGERS_AT_ONCE,
    ) -> None:
        self._store = store
        self._ledgers = LedgerStore(store)
        self._marks = UnderReplicatedLedgers(store)
        self._bookies = bookies
        self._host = host
        self._share = share
        self._key = key
        self._pace = Pace(bytes_per_s)
        self._at_once = ledgers_at_once
        self._loop = asyncio.get_running_loop()
        self.progress = CheckProgress()
        self.result = LedgerCheckResult()

    async def run(self) -> LedgerCheckResult:
        """Check all ledgers. Raises FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN,
        CORRUPT; some ledgers may be marked then."""
        ledger_ids = [ledger_id async for ledger_id in self._ledgers.list()]
        self.progress.begin("ledger check", len(ledger_ids), self._loop.time())
        await each(ledger_ids, self._look, at_once=self._at_once)
        self.progress.phase = "done"
        return self.result

    async def _look(self, ledger_id: int) -> None:
        await when_available(lambda: self._check(ledger_id))
        self.result.ledgers += 1
        self.progress.did(self._loop.time())

    async def _check(self, ledger_id: int) -> None:
        try:
            metadata = closed_part((await self._ledgers.get(ledger_id))[0])
        except FencelogError as error:
            if error.code is ErrorCode.CORRUPT:
                self.result.unreadable += 1
            elif error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            return
        missing, damaged = await self._compare(metadata)
        if not missing and not damaged:
            return
        # A mark costs a worker a look: if the ledger has changed, the next check marks it.
        try:
            latest = closed_part((await self._ledgers.get_latest(ledger_id))[0])
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            return
        if latest.fragments != metadata.fragments:
            return
        try:
            for bookies, why in ((missing, Cause.MISSING_COPIES), (damaged, Cause.DAMAGED)):
                if bookies:
                    now_us = self._host.now_us()
                    named = sorted(bookies)
                    await self._marks.mark(ledger_id, missing=named, why=why, now_us=now_us)
        except FencelogError as error:
            if error.code is not ErrorCode.CORRUPT:
                raise
            _log.error("ledger %d is not marked: %s", ledger_id, error.detail)
            self.result.unreadable += 1
            return
        self.result.marked += 1
        self.result.damaged += bool(damaged)

    async def _compare(self, metadata: LedgerMetadata) -> tuple[set[str], set[str]]:
        """Return the bookies that lack entries, and those that have damaged ones."""
        durability = DurabilityFindings(metadata)
        lists = EntryLists(metadata, self._bookies)
        missing, damaged = set[str](), set[str]()
        is_read = self._share >= 0 and self._can_verify(metadata)
        async for window in lists.windows():
            durability.add(shortfalls(metadata, window.first, window.last, window.held))
            if is_read:
                for bookie_id, held in window.held.items():
                    if held.answer in (Answer.COMPLETE, Answer.IN_LIMBO):
                        await self._sample(metadata, window, bookie_id, missing, damaged)
        return missing | durability.missing.keys(), damaged

    def _can_verify(self, metadata: LedgerMetadata) -> bool:
        if metadata.digest_type is DigestType.HMAC_SHA256 and not self._key:
            self.result.unverified += 1
            return False
        return True

    async def _sample(
        self,
        metadata: LedgerMetadata,
        window: ListedWindow,
        bookie_id: str,
        missing: set[str],
        damaged: set[str],
    ) -> None:
        """Read samples from one bookie until one is damaged or missing, or the bookie fails."""
        listed = window.held[bookie_id].listed
        start = self._host.fraction()
        for entries in _wanted(metadata, window, bookie_id):
            for first, last in sampled(entries, share=self._share, start=start):
                for held in listed.ranges(first, last):
                    try:
                        await self._read(metadata, bookie_id, held)
                    except FencelogError as error:
                        if error.code is ErrorCode.CORRUPT:
                            damaged.add(bookie_id)
                        elif error.code.is_negative:
                            missing.add(bookie_id)
                        return
            await asyncio.sleep(0)

    async def _read(self, metadata: LedgerMetadata, bookie_id: str, entries: Range) -> None:
        """Read entries from a bookie, and verify each. Raises FencelogError: CORRUPT, a negative,
        or unknown."""
        entry_id, last = entries
        while entry_id <= last:
            reply = await self._bookies.client(bookie_id).read(
                metadata.ledger_id,
                entry_id,
                max_entries=min(last - entry_id + 1, MAX_RUN_ENTRIES),
                max_bytes=MAX_READ_BYTES,
            )
            found = verified_reply(reply, metadata, entry_id, bookie_id=bookie_id, key=self._key)
            entry_id += len(found)
            self.result.sampled_entries += len(found)
            await self._pace.took(len(reply.run))


def _wanted(
    metadata: LedgerMetadata, window: ListedWindow, bookie_id: str
) -> Iterator[list[Range]]:
    """Yield the ranges of a window that belong on a bookie, those of one fragment after those of
    another, _RANGES_AT_ONCE at most."""
    fragments = metadata.fragments
    for number, fragment in enumerate(fragments):
        end = window.last
        if number + 1 < len(fragments):
            end = min(end, fragments[number + 1].first_entry_id - 1)
        first = max(window.first, fragment.first_entry_id)
        if bookie_id in fragment.bookies and first <= end:
            ranges = wanted_ranges(metadata, bookie_id, first, end)
            while some := list(islice(ranges, _RANGES_AT_ONCE)):
                yield some


def closed_part(metadata: LedgerMetadata) -> LedgerMetadata:
    """Return the metadata as if the ledger ended with its last closed fragment: what a writer or a
    recovery may still change is left out."""
    if metadata.is_closed:
        return metadata
    last = metadata.last_fragment.first_entry_id - 1
    return replace(metadata, state=LedgerState.CLOSED, last_entry_id=last)
