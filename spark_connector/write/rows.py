"""The rows that Spark hands to a task, taken in a thread: the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import anyio.to_thread
import pyarrow as pa
from anyio.streams.memory import MemoryObjectSendStream

from fencelog.api.client.tasks import task_group

READY_BATCHES = 2
"""The batches of Spark's (10,000 rows each unless it is set otherwise) that are taken ahead: Spark
makes the next ones while the service writes."""


async def take_rows(
    rows: Iterator[pa.RecordBatch], write: Callable[[pa.RecordBatch], Awaitable[None]]
) -> None:
    """Call ``write`` with each batch of rows, one after the other, in order. Raises its errors, and
    those of Spark."""
    ahead, ready = anyio.create_memory_object_stream[pa.RecordBatch](READY_BATCHES)
    async with task_group() as group, ready:
        group.start_soon(_take, rows, ahead)
        async for batch in ready:
            await write(batch)


async def _take(
    rows: Iterator[pa.RecordBatch], ahead: MemoryObjectSendStream[pa.RecordBatch]
) -> None:
    async with ahead:
        while (batch := await anyio.to_thread.run_sync(_next, rows)) is not None:
            await ahead.send(batch)


def _next(rows: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(rows, None)
