"""Reading through the partition's broker, where bookies cannot be reached.

Record batches come as they are stored, in pages of a few MiB; all but the way is as in ``scan``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from fencelog.api.client import ReadPage
from fencelog.api.client.retry import retry_idempotent
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import FramedBatch
from fencelog.spark_connector.planning.broker_reads import BrokerRead
from fencelog.spark_connector.planning.segments import DELETED
from fencelog.spark_connector.planning.service import ANSWER_S
from fencelog.spark_connector.read.decode import (
    StoredBatches,
    decode,
    grouped,
    uncompressed_bytes,
)
from fencelog.spark_connector.read.deletion import TopicSource, check_deleted
from fencelog.spark_connector.read.merge import InvalidBatchError
from fencelog.spark_connector.read.scan import Emit

LOG, COMPACTED = "log", "compacted"
_NO_END = 2**63 - 1


class PageSource(TopicSource, Protocol):
    """The part of ``FencelogClient`` that this needs."""

    async def read(
        self, topic: str, partition: int, start: int, /, *, view: str, topic_id: str
    ) -> ReadPage: ...


async def read_through_broker(
    client: PageSource,
    wanted: BrokerRead,
    schema: pa.Schema,
    emit: Emit,
    *,
    view: str,
    skip_lost: bool,
) -> None:
    """Emit the wanted messages, in order of offset, as batches of ``schema``; with
    ``skip_lost`` without those that were trimmed meanwhile, or whose topic was deleted.

    Raises FencelogError: OFFSET_TRIMMED, TOPIC_NOT_FOUND (another topic may have the name),
    CORRUPT, READ_UNKNOWN where the partition ends before them or is not there, or the last error of
    a broker that stays away. Whoever takes the batches gets CORRUPT where one is not valid.
    """
    end = _NO_END if wanted.end_offset is None else wanted.end_offset
    start = wanted.start_offset
    while start < end:
        try:
            page = await _page(client, wanted, start, view)
        except FencelogError as error:
            if skip_lost and error.code in DELETED:
                return
            # The view begins where the log does until it has been made.
            is_beginning = view == COMPACTED and start == 0
            if error.code is not ErrorCode.OFFSET_TRIMMED or not (skip_lost or is_beginning):
                raise
            start = max(start + 1, int(error.extra["earliest_offset"]))
            continue
        frames = [frame for frame in page.batches if frame.base_offset < end]
        if view == LOG:
            _check_sequence(wanted, start, min(page.next_offset, end), frames)
        await emit(_batches(wanted, frames, schema, start, end))
        if page.at_tail and wanted.end_offset is None and page.next_offset >= wanted.least_end:
            return
        if page.next_offset <= start:
            raise FencelogError(
                ErrorCode.CORRUPT, f"{_where(wanted)}: the server goes on at {start} for ever"
            )
        start = page.next_offset


async def _page(client: PageSource, wanted: BrokerRead, start: int, view: str) -> ReadPage:
    """Return what is there from ``start`` on. A tail before the end of the plan is asked for again:
    the plan was confirmed, so the tail is that of an owner that was replaced."""

    async def read() -> ReadPage:
        try:
            page = await client.read(
                wanted.topic, wanted.partition, start, view=view, topic_id=wanted.topic_id
            )
        except FencelogError as error:
            if error.code is ErrorCode.OFFSET_BEYOND_TAIL:
                raise _old_tail(wanted, start) from error
            await check_deleted(client, wanted.topic, wanted.topic_id, error)
            raise
        if page.at_tail and page.next_offset <= start < _confirmed_end(wanted):
            raise _old_tail(wanted, start)
        return page

    return await retry_idempotent(read, timeout_s=ANSWER_S)


def _old_tail(wanted: BrokerRead, start: int) -> FencelogError:
    return FencelogError(
        ErrorCode.READ_UNKNOWN,
        f"{_where(wanted)} has no message at {start}, and had offsets up to "
        f"{_confirmed_end(wanted)}",
    )


def _confirmed_end(wanted: BrokerRead) -> int:
    return wanted.least_end if wanted.end_offset is None else wanted.end_offset


def _check_sequence(
    wanted: BrokerRead, start: int, end: int, frames: Sequence[FramedBatch]
) -> None:
    """Check that the batches hold every message from ``start`` to ``end``."""
    expected = start
    for frame in frames:
        if frame.base_offset > expected:
            break
        expected = max(expected, frame.base_offset + frame.count)
    if expected < end:
        raise FencelogError(
            ErrorCode.CORRUPT, f"{_where(wanted)}: the server left out offset {expected}"
        )


def _batches(
    wanted: BrokerRead, frames: Sequence[FramedBatch], schema: pa.Schema, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    held = [frame for frame in frames if frame.base_offset + frame.count > start]
    for group in grouped([f.count for f in held], [uncompressed_bytes(f.batch) for f in held]):
        members = held[group.start : group.stop]
        stored = StoredBatches(
            wanted.topic,
            wanted.partition,
            [frame.batch for frame in members],
            [frame.count for frame in members],
            [frame.base_offset for frame in members],
            [frame.publish_time_us for frame in members],
        )
        try:
            yield decode(stored, schema, start_offset=start, end_offset=end)
        except InvalidBatchError as error:
            first = members[error.index].base_offset
            raise FencelogError(
                ErrorCode.CORRUPT,
                f"{_where(wanted)}: the batch at offset {first} is not valid: {error}",
            ) from error


def _where(wanted: BrokerRead) -> str:
    return f"partition {wanted.partition} of {wanted.topic}"
