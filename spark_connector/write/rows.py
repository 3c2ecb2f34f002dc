"""The rows that Spark hands to a task, taken in a thread: the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import anyio.to_thread
import pyarrow as pa


async def next_rows(rows: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Return the next batch of rows; None: there is none left."""
    return await anyio.to_thread.run_sync(_next, rows)


def _next(rows: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(rows, None)
