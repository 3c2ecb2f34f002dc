"""The entries of a range, from wherever they are by now.

A task runs later than its plan was made. Bookies have come back at other addresses since, and those
of closed ledgers were replaced when they were lost. So a read that nobody answers, and the "no" of
every planned bookie, say nothing of the log: the partition's owner is asked again. Only the
beginning of the log behind a range, or the end of its topic, proves that the range is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fencelog.api.client import FencelogClient
from fencelog.api.client.retry import retry_idempotent
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.spark_connector.planning.planner import EntryRange
from fencelog.spark_connector.planning.segments import (
    DELETED,
    PartitionSegments,
    parse_segments,
)
from fencelog.spark_connector.read.bookies import BookieTable
from fencelog.spark_connector.read.deletion import check_deleted

LOOK_AGAIN_S = 1.0
"""The time between two look-ups of a range: one that nobody can read fails in many parts."""

Ask = Callable[[EntryRange], Awaitable[PartitionSegments]]
"""Asks for the ledger of a range, as ``ask_owner`` does."""


async def ask_owner(servers: Sequence[str], wanted: EntryRange) -> PartitionSegments:
    """Return the segments of the partition from the last one of the range on, confirmed, with the
    latest metadata of its ledger. Raises FencelogError."""
    offset, ledger_id = wanted.end_offset - 1, wanted.ledger.ledger_id
    async with FencelogClient(servers) as client:

        async def ask() -> Any:
            try:
                return await client.segments(
                    wanted.topic,
                    wanted.partition,
                    from_offset=offset,
                    confirmed=True,
                    refresh=ledger_id,
                )
            except FencelogError as error:
                await check_deleted(client, wanted.topic, wanted.topic_id, error)
                raise

        answer = await retry_idempotent(ask)
    return parse_segments(wanted.topic, answer, from_offset=offset)


class LedgerSource:
    """The reader of a range's ledger. Implements ``EntrySource``."""

    def __init__(
        self, reader: LedgerReader, wanted: EntryRange, bookies: BookieTable, ask: Ask
    ) -> None:
        self._reader = reader
        self._wanted = wanted
        self._bookies = bookies
        self._ask = ask
        self._next_look_s = 0.0

    async def read(self, first: int, last: int) -> Sequence[Entry]:
        """Read as ``LedgerReader.read`` does, again whenever the entries turn out to be elsewhere.

        Raises FencelogError: OFFSET_TRIMMED if the range is not in the log any more; READ_UNKNOWN,
        also where all bookies that should have an entry say no; CORRUPT.
        """
        while True:
            try:
                return await self._reader.read(first, last)
            except FencelogError as error:
                is_absent = error.code.is_negative
                if not is_absent and error.code is not ErrorCode.READ_UNKNOWN:
                    raise
                if await self._is_elsewhere():
                    continue
                if not is_absent:
                    raise
                why = f"{self._wanted}: {error.detail}, and nothing says that it was trimmed"
                raise FencelogError(ErrorCode.READ_UNKNOWN, why) from error

    async def _is_elsewhere(self) -> bool:
        """Ask where the ledger is; tell whether that has changed. Raises OFFSET_TRIMMED."""
        now = asyncio.get_running_loop().time()
        if now < self._next_look_s:
            return False
        try:
            answer = await self._ask(self._wanted)
        except FencelogError as error:
            if error.code in DELETED:
                raise self._gone("its topic was deleted") from error
            return False  # the error of the read says more
        finally:
            self._next_look_s = asyncio.get_running_loop().time() + LOOK_AGAIN_S
        if answer.topic_id != self._wanted.topic_id:
            raise self._gone("its topic was deleted and created again")
        if answer.earliest_offset >= self._wanted.end_offset:
            raise self._gone(f"the log begins at {answer.earliest_offset} now")
        before = self._reader.metadata
        for segment in answer.segments:
            if segment.ledger.ledger_id == before.ledger_id:
                self._reader.update(segment.ledger)
        has_moved = await self._bookies.move(answer.bookies)
        return has_moved or self._reader.metadata != before

    def _gone(self, why: str) -> FencelogError:
        return FencelogError(
            ErrorCode.OFFSET_TRIMMED,
            f"{self._wanted} was trimmed or deleted after the query was planned: {why}",
        )
