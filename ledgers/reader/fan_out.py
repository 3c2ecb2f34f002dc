"""Requests to several bookies at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable
from typing import Any, TypeVar

from fencelog.ledgers.errors import FencelogError

T = TypeVar("T")


async def answers(
    requests: Iterable[Coroutine[Any, Any, T]],
) -> AsyncGenerator[tuple[int, T | FencelogError]]:
    """Send all requests at once; yields (number of the request, answer or error) as they come. A
    caller that needs no more answers leaves the loop: the rest is cancelled (use with
    ``contextlib.aclosing``)."""
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(request): number for number, request in enumerate(requests)}
    try:
        pending: set[asyncio.Task[T]] = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=tasks.__getitem__):
                error = task.exception()
                if error is not None and not isinstance(error, FencelogError):
                    raise error
                yield tasks[task], error or task.result()
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel these tasks, or futures, and wait until they have ended; their results and errors are
    ignored."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)
