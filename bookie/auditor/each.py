"""Work on many ledgers, a bounded number at a time, over short outages of the metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

from fencelog.bookie.auditor.limits import METADATA_RETRY_MS, METADATA_RETRY_PAUSE_MS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.reader.fan_out import cancel_all

T = TypeVar("T")


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]], *, at_once: int) -> None:
    """Do the work for every item, ``at_once`` at a time: at most so many tasks.
    Raises the first error, after the other work was cancelled."""
    waiting = iter(items)

    async def run(first: T) -> None:
        await work(first)
        for item in waiting:
            await work(item)

    loop = asyncio.get_running_loop()
    await _all_of([loop.create_task(run(first)) for first in islice(waiting, at_once)])


async def _all_of(tasks: list[asyncio.Task[None]]) -> None:
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


async def when_available(step: Callable[[], Awaitable[T]]) -> T:
    """Carry out a step that may be repeated, again and again while the metadata store is away, for
    at most METADATA_RETRY_MS. Raises FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN after
    that; anything else at once."""
    loop = asyncio.get_running_loop()
    until = loop.time() + METADATA_RETRY_MS / 1000
    while True:
        try:
            return await step()
        except FencelogError as error:
            away = error.code in (ErrorCode.METADATA_UNAVAILABLE, ErrorCode.METADATA_UNKNOWN)
            if not away or loop.time() >= until:
                raise
        await asyncio.sleep(METADATA_RETRY_PAUSE_MS / 1000)
