"""Task groups whose errors come out as themselves.

A group of anyio raises an ExceptionGroup, but callers decide by the code of one FencelogError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")
R = TypeVar("R")


@asynccontextmanager
async def task_group() -> AsyncIterator[TaskGroup]:
    """Run tasks, and wait at the end of the block until all of them have ended. The first error
    cancels the others and the block, and is raised itself."""
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            yield group
    except BaseExceptionGroup as failures:
        failure = failures
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
    if failure is not None:
        raise failure  # outside of the handler, so that it keeps its own cause and context


async def map_concurrently(
    call: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int
) -> list[R]:
    """Return ``call(item)`` of all items in their order, ``limit`` of them at a time. The first
    error cancels the others and is raised."""
    slots = anyio.CapacityLimiter(limit)
    results: dict[int, R] = {}

    async def run(place: int, item: T) -> None:
        async with slots:
            results[place] = await call(item)

    async with task_group() as group:
        for place, item in enumerate(items):
            group.start_soon(run, place, item)
    return [result for _, result in sorted(results.items(), key=lambda pair: pair[0])]
