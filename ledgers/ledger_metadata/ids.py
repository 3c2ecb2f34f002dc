"""Ledger ids: 1, 2, 3, …, never used twice, taken in blocks from a counter node."""

from __future__ import annotations

import asyncio
from collections import deque

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.update import retry_pauses
from fencelog.ledgers.metastore.instance import require_instance
from fencelog.ledgers.metastore.port import MetadataStore

COUNTER_PATH = "/counters/ledger_id"
BLOCK = 16
"""Ids taken with one compare-and-set. The rest of a block is skipped when the process ends."""


class LedgerIds:
    """The source of ids. The node holds the last id that any process may have taken, in decimal."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._left: deque[int] = deque()
        self._reserving = asyncio.Lock()

    async def next(self) -> int:
        """Return an id that was never returned before. Raises FencelogError(METADATA_UNAVAILABLE,
        CORRUPT)."""
        async with self._reserving:
            await self._fill()
            return self._left.popleft()

    async def take_ahead(self) -> None:
        """Have at least one id at hand, so that ``next`` does not wait for the store. Raises
        FencelogError as ``next``."""
        async with self._reserving:
            await self._fill()

    async def _fill(self) -> None:
        if not self._left:
            self._left.extend(await self._reserve())

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
                # Another process was faster, or the outcome is unknown. The next read starts after
                # everything that was taken: if that includes this block, it is skipped.
            else:
                return range(last + 1, last + 1 + BLOCK)
            await asyncio.sleep(next(pauses))

    async def _create_counter(self) -> None:
        try:
            await self._store.create(COUNTER_PATH, b"0")
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                raise


async def skip_ids(store: MetadataStore, count: int, *, name: str = "the metadata store") -> int:
    """Raise the counter by ``count``, for a store that went back to an older state; return the last
    id that is skipped. Repeated after an unknown outcome it skips more, which costs nothing.
    ``name``: the store, in an error. Raises FencelogError(METADATA_NOT_FOUND) for a store that
    belongs to no cluster, (METADATA_CONFLICT, METADATA_EXISTS) if somebody takes ids meanwhile, and
    (METADATA_UNKNOWN, METADATA_UNAVAILABLE, CORRUPT)."""
    # A counter made in the wrong store, or in an empty one, would be taken for the one that counts.
    await require_instance(store, name)
    try:
        node = await store.get(COUNTER_PATH)
    except FencelogError as error:
        if error.code is not ErrorCode.METADATA_NOT_FOUND:
            raise
        await store.create(COUNTER_PATH, b"%d" % count)
        return count
    last = _parse(node.value) + count
    await store.set(COUNTER_PATH, b"%d" % last, node.version)
    return last


async def last_given_id(store: MetadataStore) -> int:
    """Return the last id that any process may have taken, as the session sees it; 0 if none was.
    Raises FencelogError(METADATA_UNAVAILABLE, CORRUPT)."""
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
