"""The reader of a ledger: from any bookie of a write set, verified, never past the confirmed end.

``core`` decides, ``entry_reads`` and ``tail`` carry it out; this module keeps the bounds: the last
entry of a closed ledger, the LAC of one that is open or being recovered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Protocol

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.ledger_metadata.model import NO_ENTRY, LedgerMetadata, LedgerState
from fencelog.ledgers.limits import (
    LAC_POLL_MS,
    MAX_READ_BYTES,
    MAX_RUN_ENTRIES,
    SPECULATIVE_READ_MS,
)
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.metrics import LedgerCounts
from fencelog.ledgers.reader.core import LacRound, is_older
from fencelog.ledgers.reader.entry_reads import EntryReads, Verify, verify_runs
from fencelog.ledgers.reader.fan_out import answers, cancel_all
from fencelog.ledgers.reader.tail import LacPolls
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

LOOK_AGAIN_S = 0.25
"""The pause between rounds of a tailing reader that bring nothing (a fenced ledger answers at
once)."""


class MetadataSource(Protocol):
    """The source of newer metadata (``LedgerStore``)."""

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]: ...

    async def get_latest(self, ledger_id: int) -> tuple[LedgerMetadata, Version]: ...


class LedgerReader:
    """The reader of one ledger, without fencing it. Made by ``LedgerClient.open`` or ``.reader``.

    ``last_confirmed`` bounds every read: the last entry of a closed ledger, otherwise the highest
    LAC reported by bookies or by the writer (``confirm``). It never goes back.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        *,
        bookies: BookieDirectory,
        key: bytes = b"",
        source: MetadataSource | None = None,
        speculative_read_ms: int = SPECULATIVE_READ_MS,
        metrics: LedgerCounts | None = None,
        verify: Verify = verify_runs,
    ) -> None:
        """Create a reader. ``source``: without it metadata stays as it is, until ``update``.
        ``speculative_read_ms``: how long one bookie may take before another is asked as well.
        ``metrics``: the figures to add to (None: its own). ``verify``: what makes entries of runs,
        with all checks of ``verify_runs``."""
        self.metadata = metadata
        self._bookies = bookies
        self._source = source
        self._confirmed = NO_ENTRY
        self._reads = EntryReads(
            bookies,
            key=key,
            speculative_read_ms=speculative_read_ms,
            learn=self.confirm,
            metrics=metrics or LedgerCounts(),
            verify=verify,
        )
        self._polls = LacPolls(bookies)
        self._looking: asyncio.Task[bool] | None = None
        self._confirm_fragments()

    @property
    def last_confirmed(self) -> int:
        return self.metadata.last_entry_id if self.metadata.is_closed else self._confirmed

    def confirm(self, lac: int) -> None:
        """Record that entries up to ``lac`` are acknowledged, as the caller knows."""
        self._confirmed = max(self._confirmed, lac)

    def update(self, metadata: LedgerMetadata) -> None:
        """Use newer metadata: the fragments of an open ledger change, an open one is closed.
        Metadata older than the current one changes nothing.

        Raises CORRUPT for a ledger that was closed below an entry known to be acknowledged.
        """
        if is_older(metadata, self.metadata):
            return
        if metadata.is_closed and metadata.last_entry_id < self._confirmed:
            raise FencelogError(
                ErrorCode.CORRUPT,
                f"ledger {metadata.ledger_id} is closed at entry {metadata.last_entry_id}, "
                f"and entry {self._confirmed} was acknowledged",
            )
        self.metadata = metadata
        self._confirm_fragments()

    def _confirm_fragments(self) -> None:
        """Confirm the entries before the last fragment: a fragment starts at LAC + 1."""
        if not self.metadata.is_closed:
            self.confirm(self.metadata.last_fragment.first_entry_id - 1)

    async def read_lac(self) -> int:
        """Return the last entry that may be read now. For an open ledger it trails the writer's
        LAC.

        It returns when no entry can have been acknowledged without one of the bookies that
        answered, or when all have answered or failed. Raises READ_UNKNOWN if all failed, and what
        the metadata store raises.
        """
        if not self.metadata.is_closed and self._source is not None:
            metadata, _ = await self._source.get(self.metadata.ledger_id)
            self.update(metadata)
        if self.metadata.is_closed:
            return self.metadata.last_entry_id
        round_ = LacRound(self.metadata)
        ledger_id = self.metadata.ledger_id
        requests = [self._bookies.client(bookie).read_lac(ledger_id) for bookie in round_.members]
        async with aclosing(answers(requests)) as answered:
            async for index, answer in answered:
                round_.answer(index, answer)
                if round_.is_covered:
                    break
        unknown = round_.unknown()
        if unknown is not None:
            raise unknown
        self.confirm(round_.highest)
        return self.last_confirmed

    async def wait_lac(self, above: int, timeout_ms: int) -> int:
        """Wait until entries after ``above`` may be read, or the ledger is closed; returns
        ``last_confirmed`` at that time, or at the end of the timeout. It never goes back.

        Raises READ_UNKNOWN if at the end every bookie of the last fragment fails, LEDGER_NOT_FOUND.
        While the metadata store is absent, only a change of members and the close go unseen. One
        caller at a time; ``close`` ends the requests that are still in flight afterwards.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        round_: LacRound | None = None
        while self.last_confirmed <= above and not self.metadata.is_closed:
            began = loop.time()
            left = deadline - began
            if left <= 0:
                break
            wait_ms = min(LAC_POLL_MS, max(1, int(left * 1000)))
            round_ = await self._polls.round(
                self.metadata, above, wait_ms=wait_ms, has_changed=self._has_changed
            )
            self.confirm(round_.highest)
            if round_.highest <= above and not await self._look_briefly():
                pause = began + LOOK_AGAIN_S - loop.time()
                await asyncio.sleep(min(pause, deadline - loop.time()))
        unknown = round_.unknown() if round_ is not None else None
        if unknown is not None and self.last_confirmed <= above and not self.metadata.is_closed:
            raise unknown
        return self.last_confirmed

    async def _has_changed(self) -> bool:
        """Tell whether to ask again: members have changed, or the ledger is no longer open."""
        return await self._look_briefly() or self.metadata.state is not LedgerState.OPEN

    async def _look_briefly(self) -> bool:
        """Call ``_look`` without letting a slow metadata store delay news from bookies: the check
        continues by itself, and the next call finds its result."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        done, _ = await asyncio.wait([self._looking], timeout=LOOK_AGAIN_S)
        if not done:
            return False
        looking, self._looking = self._looking, None
        return looking.result()

    async def _look(self) -> bool:
        """Read metadata, if possible, and tell whether it has changed."""
        before = self.metadata
        if self._source is None:
            return False
        try:
            metadata, _ = await self._source.get(before.ledger_id)
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_UNAVAILABLE, ErrorCode.METADATA_UNKNOWN):
                raise
            return False
        self.update(metadata)
        return self.metadata != before

    async def read(
        self, first: int, last: int, *, max_bytes: int = MAX_READ_BYTES
    ) -> Sequence[Entry]:
        """Read entries ``first`` … in order without a gap, at least one, at most up to ``last``.

        Fewer entries than requested are returned where ``max_bytes`` of payload or a fragment ends:
        ask again from the next. Raises BAD_REQUEST (beyond ``last_confirmed``), NO_SUCH_ENTRY (the
        whole write set of a closed ledger says so), READ_UNKNOWN (some bookie may have it).
        """
        if not 0 <= first <= min(last, self.last_confirmed):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"entries {first}..{last} of ledger {self.metadata.ledger_id} are not within "
                f"0..{self.last_confirmed}",
            )
        used = self.metadata
        try:
            return await self._read(first, last, max_bytes)
        except FencelogError as error:
            if not await self._is_outdated(used, error):
                raise
        used = self.metadata
        try:
            return await self._read(first, last, max_bytes)
        except FencelogError as error:
            is_absent = error.code is ErrorCode.NO_SUCH_ENTRY
            if is_absent and await self._is_outdated(used, error):
                raise self._unknown(first) from error
            raise

    async def _is_outdated(self, used: LedgerMetadata, error: FencelogError) -> bool:
        """Tell whether metadata has changed since it was used for a read that failed, so that the
        read can be repeated. If that cannot be determined, the read's own error stands, except a
        "no": the bookies of a closed ledger are replaced when they are lost, and those that were
        asked may have given up the entry since. Raises READ_UNKNOWN then."""
        is_absent = error.code is ErrorCode.NO_SUCH_ENTRY
        try:
            if is_absent and self._source is not None:
                self.update((await self._source.get_latest(used.ledger_id))[0])
            else:
                await self._look()
        except FencelogError as reason:
            if is_absent and reason.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise self._unknown(error.extra["entry_id"]) from reason
            raise error from reason
        return self.metadata != used

    def _unknown(self, entry_id: int) -> FencelogError:
        """Return the error of a read whose "no" may come from bookies that were replaced since."""
        return FencelogError(
            ErrorCode.READ_UNKNOWN,
            f"entry {entry_id} of ledger {self.metadata.ledger_id} was not found where outdated "
            "metadata says it is",
            ledger_id=self.metadata.ledger_id,
        )

    async def _read(self, first: int, last: int, max_bytes: int) -> Sequence[Entry]:
        last = min(
            last, self.last_confirmed, self._fragment_end(first), first + MAX_RUN_ENTRIES - 1
        )
        return await self._reads.read(self.metadata, first, last, max_bytes=max_bytes)

    async def read_last(self) -> Entry | None:
        """Return the last confirmed entry, None if the ledger is empty."""
        last = self.last_confirmed
        if last == NO_ENTRY:
            return None
        (entry,) = await self.read(last, last)
        return entry

    async def close(self) -> None:
        """End the requests that ``wait_lac`` left in flight. The reader may be used again."""
        await self._polls.close()
        if self._looking is not None:
            looking, self._looking = self._looking, None
            await cancel_all([looking])

    def _fragment_end(self, entry_id: int) -> int:
        """Return the last entry id that lies on the same ensemble as ``entry_id``."""
        for fragment in self.metadata.fragments:
            if fragment.first_entry_id > entry_id:
                return fragment.first_entry_id - 1
        return 2**63 - 1
