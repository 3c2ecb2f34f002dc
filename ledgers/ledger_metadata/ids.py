"""Ledger ids: 1, 2, 3, …, never given twice, taken in blocks from a counter node."""

from __future__ import annotations

import asyncio

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.update import retry_pauses
from fencelog.ledgers.metastore.port import MetadataStore

COUNTER_PATH = "/counters/ledger_id"
BLOCK = 16
"""Ids taken with one compare-and-set. What is left of a block when a process ends is skipped."""


class LedgerIds:
    """Gives out ids. The node holds the last id that anybody may have, in decimal."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._block = iter(range(0))
        self._reserving = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody had before. Raises FencelogError(METADATA_UNAVAILABLE, CORRUPT)."""
        async with self._reserving:
            ledger_id = next(self._block, None)
            if ledger_id is None:
                self._block = iter(await self._reserve())
                ledger_id = next(self._block)
            return ledger_id

    async def _reserve(self) -> range:
        pauses = retry_pauses()
        while True:
            try:
                node = await self._store.get(COUNTER_PATH)
                last = _parse(node.value)
                await self._store.set(COUNTER_PATH, b"%d" % (last + BLOCK), node.version)
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_NOT_FOUND:
                    await self._create_counter()
                elif error.code not in (ErrorCode.METADATA_CONFLICT, ErrorCode.METADATA_UNKNOWN):
                    raise
                # Another process was faster, or the outcome is unknown. Reading again starts
                # behind whatever was taken: if this block was, it is skipped.
            else:
                return range(last + 1, last + 1 + BLOCK)
            await asyncio.sleep(next(pauses))

    async def _create_counter(self) -> None:
        try:
            await self._store.create(COUNTER_PATH, b"0")
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                raise


async def last_given_id(store: MetadataStore) -> int:
    """The last id that anybody may have, as the session sees it; 0 where none was given. Raises
    FencelogError(METADATA_UNAVAILABLE, CORRUPT)."""
    try:
        node = await store.get(COUNTER_PATH)
    except FencelogError as error:
        if error.code is ErrorCode.METADATA_NOT_FOUND:
            return 0
        raise
    return _parse(node.value)


def _parse(value: bytes) -> int:
    if not value.isdigit():
        raise FencelogError(ErrorCode.CORRUPT, f"{COUNTER_PATH} holds {value[:40]!r}, no number")
    return int(value)
