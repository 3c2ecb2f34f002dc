"""Reading through brokers: exactly the wanted messages, however pages fall."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencelog.api.client import ReadPage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import FramedBatch, encode_values
from fencelog.spark_connector.planning.broker_reads import BrokerRead
from fencelog.spark_connector.read import through_broker
from fencelog.spark_connector.read.columns import arrow_schema
from fencelog.spark_connector.read.through_broker import COMPACTED, LOG, read_through_broker

SCHEMA = arrow_schema(["topic", "partition", "offset", "value", "publish_time"])


def frame(offset: int, count: int) -> FramedBatch:
    values = [b"%d" % number for number in range(offset, offset + count)]
    return FramedBatch(offset, offset, count, memoryview(encode_values(values)))


class Broker:
    """A partition that is answered ``page`` batches at a time, and may fail sometimes."""

    def __init__(self, frames: list[FramedBatch], *, page: int = 3) -> None:
        self.frames = frames
        self.page = page
        self.tail = frames[-1].base_offset + frames[-1].count
        self.earliest = 0
        self.topic_id = "id"
        self.failures: list[ErrorCode] = []
        self.views: set[str] = set()

    async def read(
        self, topic: str, partition: int, start: int, /, *, view: str, topic_id: str
    ) -> ReadPage:
        assert (topic, topic_id, partition) == ("a/t", "id", 3)
        self.views.add(view)
        if self.failures:
            raise FencelogError(self.failures.pop(), "not now")
        if start < self.earliest:
            raise FencelogError(ErrorCode.OFFSET_TRIMMED, "trimmed", earliest_offset=self.earliest)
        wanted = [f for f in self.frames if f.base_offset + f.count > start][: self.page]
        following = wanted[-1].base_offset + wanted[-1].count if wanted else self.tail
        return ReadPage(following, self.tail, following >= self.tail, wanted, start_offset=start)

    async def topic(self, topic: str, /, *, confirmed: bool = False) -> dict[str, Any]:
        assert (topic, confirmed) == ("a/t", True)
        return {"topic_id": self.topic_id}


async def rows(
    broker: Broker,
    start: int,
    end: int | None,
    *,
    view: str = LOG,
    skip_lost: bool = False,
    least_end: int = 0,
) -> list[tuple[int, bytes]]:
    batches: list[pa.RecordBatch] = []

    async def emit(read: Iterable[pa.RecordBatch]) -> None:
        batches.extend(read)

    wanted = BrokerRead("a/t", "id", 3, start, end, 0, least_end)
    await read_through_broker(broker, wanted, SCHEMA, emit, view=view, skip_lost=skip_lost)
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist() if row]


def exactly(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(offset, b"%d" % offset) for offset in range(start, end)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 5), st.data())
@settings(max_examples=60)
async def test_exactly_the_wanted_messages_come_in_order(
    counts: list[int], page: int, data: st.DataObject
) -> None:
    offsets = [sum(counts[:n]) for n in range(len(counts))]
    broker = Broker([frame(*pair) for pair in zip(offsets, counts, strict=True)], page=page)
    start = data.draw(st.integers(0, broker.tail))
    end = data.draw(st.integers(start, broker.tail))
    assert await rows(broker, start, end) == exactly(start, end)
    assert broker.views <= {LOG}


async def test_the_compacted_view_has_gaps_and_is_read_to_its_tail() -> None:
    broker = Broker([frame(2, 1), frame(7, 2), frame(20, 3)], page=2)
    got = await rows(broker, 0, None, view=COMPACTED)
    assert got == [*exactly(2, 3), *exactly(7, 9), *exactly(20, 23)]
    assert broker.views == {COMPACTED}
    assert await rows(broker, 0, 21, view=COMPACTED) == got[:4]


async def test_a_broker_that_is_away_for_a_moment_is_asked_again() -> None:
    broker = Broker([frame(0, 5)])
    broker.failures = [ErrorCode.NO_OWNER, ErrorCode.REQUEST_TIMEOUT]
    assert await rows(broker, 0, 5) == exactly(0, 5)


class Replaced(Broker):
    """A partition that is answered by its previous owner as long as ``answers`` says."""

    previous = Broker([frame(0, 5)])
    answers = 3

    async def read(
        self, topic: str, partition: int, start: int, /, *, view: str, topic_id: str
    ) -> ReadPage:
        if not self.answers:
            return await super().read(topic, partition, start, view=view, topic_id=topic_id)
        self.answers -= 1
        if start > self.previous.tail:
            raise FencelogError(ErrorCode.OFFSET_BEYOND_TAIL, "beyond", tail_offset=5)
        return await self.previous.read(topic, partition, start, view=view, topic_id=topic_id)


@pytest.mark.parametrize("start", [3, 5, 7])
async def test_the_tail_of_an_owner_that_was_replaced_is_no_end(start: int) -> None:
    broker = Replaced([frame(0, 5), frame(5, 5)])
    assert await rows(broker, start, 10) == exactly(start, 10)
    assert broker.answers == 0


async def test_nor_is_it_that_of_a_view_which_is_read_to_its_end() -> None:
    broker = Replaced([frame(0, 5), frame(5, 5)])
    assert await rows(broker, 0, None, view=COMPACTED, least_end=10) == exactly(0, 10)
    assert broker.answers == 0


@pytest.mark.parametrize("skip_lost", [False, True])
async def test_a_partition_that_stays_shorter_than_planned_fails_the_task(
    skip_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(through_broker, "ANSWER_S", 0.0)
    broker = Replaced([frame(0, 5)])
    for start in (3, 7):
        with pytest.raises(FencelogError, match="had offsets up to 10") as raised:
            await rows(broker, start, 10, skip_lost=skip_lost)
        assert raised.value.code is ErrorCode.READ_UNKNOWN


async def test_what_was_trimmed_fails_or_is_skipped() -> None:
    broker = Broker([frame(0, 5), frame(5, 5)])
    broker.earliest = 5
    with pytest.raises(FencelogError) as raised:
        await rows(broker, 0, 10)
    assert raised.value.code is ErrorCode.OFFSET_TRIMMED
    assert await rows(broker, 0, 10, skip_lost=True) == exactly(5, 10)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_FOUND])
async def test_a_topic_that_was_deleted_fails_or_is_skipped(code: ErrorCode) -> None:
    """Also where another one has its name."""
    broker = Broker([frame(0, 5), frame(5, 5)])
    broker.topic_id = "another"
    broker.failures = [code]
    with pytest.raises(FencelogError) as raised:
        await rows(broker, 0, 10)
    assert raised.value.code is code
    broker.failures = [code]
    assert await rows(broker, 0, 10, skip_lost=True) == []


@pytest.mark.parametrize("skip_lost", [False, True])
@pytest.mark.parametrize("code", [ErrorCode.NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND])
async def test_what_the_asked_broker_does_not_know_yet_is_asked_for_again(
    code: ErrorCode, skip_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is there, and never gets fewer partitions: no loss that could be skipped."""
    broker = Broker([frame(0, 5), frame(5, 5)])
    broker.failures = [code] * 2
    assert await rows(broker, 0, 10, skip_lost=skip_lost) == exactly(0, 10)
    monkeypatch.setattr(through_broker, "ANSWER_S", 0.0)
    broker.failures = [code] * 2
    with pytest.raises(FencelogError, match="not known everywhere yet") as raised:
        await rows(broker, 0, 10, skip_lost=skip_lost)
    assert raised.value.code is ErrorCode.READ_UNKNOWN


async def test_a_view_that_was_not_made_yet_begins_with_the_log() -> None:
    broker = Broker([frame(5, 5)])
    broker.earliest = 5
    assert await rows(broker, 0, None, view=COMPACTED) == exactly(5, 10)
    with pytest.raises(FencelogError) as raised:
        await rows(broker, 2, None, view=COMPACTED)
    assert raised.value.code is ErrorCode.OFFSET_TRIMMED


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([frame(0, 5), frame(6, 4)], "partition 3 of a/t: the server left out offset 5"),
        (
            [frame(0, 5), replace(frame(5, 5), count=6)],
            "the batch at offset 5 is not valid: 5 messages, its header says 6",
        ),
        ([frame(0, 5), replace(frame(5, 5), batch=frame(9, 9).batch)], "9 messages"),
    ],
)
async def test_a_page_without_what_was_asked_for_is_refused(
    frames: list[FramedBatch], named: str
) -> None:
    with pytest.raises(FencelogError, match=named) as raised:
        await rows(Broker(frames), 0, 10)
    assert raised.value.code is ErrorCode.CORRUPT
