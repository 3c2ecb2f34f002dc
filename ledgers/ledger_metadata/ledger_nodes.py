"""One node for each ledger below a directory: ``ROOT/{id >> 16}/{id & 0xffff}``.

Both parts are hexadecimal, so that no directory has more than 65,536 children and a listing of it
stays below what one ZooKeeper packet may hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.instance import catch_up, check_session
from fencelog.ledgers.metastore.port import MetadataStore

T = TypeVar("T")

UNDERREPLICATION_PATH = "/underreplication"
MARKS_PATH = f"{UNDERREPLICATION_PATH}/ledgers"
"""The directory of the marks of ledgers that lack copies (``bookie/replication/store.py``). While a
ledger is marked, a process may be copying entries of it to bookies that its metadata does not name
yet."""

_READS_AT_ONCE = 64
"""Nodes read at the same time: enough to hide the round trip, and no burden to the store."""


def ledger_path(root: str, ledger_id: int) -> str:
    return f"{root}/{ledger_id >> 16:x}/{ledger_id & 0xFFFF:04x}"


async def has_node(store: MetadataStore, root: str, ledger_id: int) -> bool:
    """Tell whether a ledger has a node below ``root``, as the session sees it. Raises
    FencelogError."""
    try:
        await store.get(ledger_path(root, ledger_id))
    except FencelogError as error:
        if error.code is not ErrorCode.METADATA_NOT_FOUND:
            raise
        return False
    return True


async def list_ledgers(store: MetadataStore, root: str) -> AsyncIterator[int]:
    """Yield the ids of the ledgers that have a node below ``root``, ascending. Nodes created or
    deleted meanwhile may be missing or included. Raises FencelogError instead of ending early."""
    for high in await directories_of_ledgers(store, root):
        for ledger_id in await ledgers_in_directory(store, root, high):
            yield ledger_id


async def directories_of_ledgers(store: MetadataStore, root: str) -> tuple[int, ...]:
    """Return the directories below ``root``, ascending. Raises FencelogError."""
    return await _numbers(store, root)


async def ledgers_in_directory(store: MetadataStore, root: str, high: int) -> tuple[int, ...]:
    """Return the ids of the ledgers that have a node in a directory, ascending. Raises
    FencelogError."""
    return tuple(high << 16 | low for low in await _numbers(store, f"{root}/{high:x}"))


async def read_ledgers(
    store: MetadataStore,
    root: str,
    read: Callable[[int], Awaitable[T | None]],
    *,
    newest_first: bool = False,
) -> AsyncIterator[T]:
    """Yield ``read(ledger_id)`` for every ledger that had a node below ``root`` at the time of the
    call, none older than the call, even if a server lags behind; ascending by id, or descending
    (``newest_first``), without None. Nodes created or deleted meanwhile may be missing or included.
    Raises FencelogError instead of ending early: METADATA_UNAVAILABLE, METADATA_UNKNOWN,
    CORRUPT."""
    session_id = await catch_up(store)
    ledger_ids = [ledger_id async for ledger_id in list_ledgers(store, root)]
    if newest_first:
        ledger_ids.reverse()
    for at in range(0, len(ledger_ids), _READS_AT_ONCE):
        for value in await asyncio.gather(*map(read, ledger_ids[at : at + _READS_AT_ONCE])):
            if value is not None:
                yield value
    check_session(store, session_id, f"read all nodes below {root}")


async def _numbers(store: MetadataStore, path: str) -> tuple[int, ...]:
    """Return the children, which are hexadecimal numbers, ascending; none if there is no such
    node."""
    try:
        names = await store.children(path)
        return tuple(sorted(int(name, 16) for name in names))
    except ValueError as error:
        raise FencelogError(ErrorCode.CORRUPT, f"{path}: {error}") from error
    except FencelogError as error:
        if error.code is ErrorCode.METADATA_NOT_FOUND:
            return ()
        raise
