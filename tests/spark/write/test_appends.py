"""The appends of a task: to several partitions together, again where it is not known whether they
were written, and numbered so that other rows of another attempt are not taken for the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import anyio
import pyarrow as pa
import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.client.client import Appended
from fencelog.api.client.tasks import task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.record_batch import decode_batch
from fencelog.spark_connector.write import gathered
from fencelog.spark_connector.write.appends import IN_FLIGHT, _OrderedAppends, append_all
from fencelog.spark_connector.write.limits import ROW_BYTES
from fencelog.spark_connector.write.options import ExactlyOnce, WriteOptions
from fencelog.spark_connector.write.target import Job, WriteTarget, reached

TARGET_BYTES = 64 * KIB
FILLER = b"x" * (TARGET_BYTES // 4)
"""Makes four rows a record batch."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "TARGET_BYTES", TARGET_BYTES)


def rows_of(numbers: range, *, partitions: int = 1, at_once: int = 100) -> Iterator[pa.RecordBatch]:
    """Rows with these numbers, in turn to each partition, in batches of so many."""
    for first in range(0, len(numbers), at_once):
        part = numbers[first : first + at_once]
        yield pa.RecordBatch.from_pydict(
            {
                "value": [b"%06d" % number + FILLER[: -6 - ROW_BYTES] for number in part],
                "partition": pa.array([number % partitions for number in part], pa.int32()),
            }
        )


async def numbers_in(client: FencelogClient, topic: str, partition: int = 0) -> list[int]:
    found: list[int] = []
    while not (page := await client.read(topic, partition, len(found))).at_tail or page.batches:
        found += [int(m.value[:6]) for batch in page.batches for m in decode_batch(batch.batch)]
    return found


async def target_of(server: str, topic: str) -> WriteTarget:
    return await reached(WriteOptions((server,), topic, ExactlyOnce.DEDUP))


class Appends:
    """What passes through ``FencelogClient.append_batch``. ``fault`` may raise after an append."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most: dict[int | None, int] = {}
        """How many were on their way at the same time: to each partition, and (None) in all."""
        self.count = 0
        self.awaited = 0
        """The number that each waits for to be on their way at the same time; only for a while, for
        some may wait for their turn behind it."""
        self._are_there = anyio.Event()
        self.faults: list[FencelogError] = []
        self._open: dict[int | None, int] = {}
        self._append = FencelogClient.append_batch
        monkeypatch.setattr(FencelogClient, "append_batch", self._counted(self._append))

    def _counted(self, append: Any) -> Any:
        async def counted(client: FencelogClient, *args: Any, **options: Any) -> Appended:
            self.count += 1
            places = (None, options["partition"])
            for place in places:
                self._open[place] = self._open.get(place, 0) + 1
                self.most[place] = max(self.most.get(place, 0), self._open[place])
            try:
                if self.most[None] >= self.awaited:
                    self._are_there.set()
                with anyio.move_on_after(0.2):  # the others get their turn
                    await self._are_there.wait()
                done: Appended = await append(client, *args, **options)
            finally:
                for place in places:
                    self._open[place] -= 1
            if self.faults:
                raise self.faults.pop()
            return done

        return counted


@pytest.fixture
def appends(monkeypatch: pytest.MonkeyPatch) -> Appends:
    return Appends(monkeypatch)


@pytest.mark.parametrize("job", [None, Job("spark-query", 3)])
async def test_partitions_are_written_together_and_each_in_order(
    server: str, client: FencelogClient, appends: Appends, job: Job | None
) -> None:
    appends.awaited = IN_FLIGHT
    topic = f"appends/together-{'dedup' if job else 'none'}"
    await client.create_topic(topic, partitions=6)
    rows = rows_of(range(120), partitions=6)
    assert await append_all(rows, await target_of(server, topic), turn=0, job=job) == 120
    for partition in range(6):
        assert await numbers_in(client, topic, partition) == list(range(partition, 120, 6))
    assert appends.most.pop(None) == IN_FLIGHT
    assert set(appends.most.values()) == {1}


@pytest.mark.parametrize("job", [None, Job("spark-query", 3)])
async def test_rows_leave_early_unless_an_earlier_attempt_says_where_batches_end(
    server: str,
    client: FencelogClient,
    appends: Appends,
    monkeypatch: pytest.MonkeyPatch,
    job: Job | None,
) -> None:
    monkeypatch.setattr("fencelog.spark_connector.write.appends.MAX_WAITING_BYTES", TARGET_BYTES)
    topic = f"appends/early-{'dedup' if job else 'none'}"
    await client.create_topic(topic, partitions=8)
    rows = rows_of(range(160), partitions=8, at_once=8)
    await append_all(rows, await target_of(server, topic), turn=0, job=job)
    for partition in range(8):
        assert await numbers_in(client, topic, partition) == list(range(partition, 160, 8))
    if job is None:
        assert appends.count > 160 // 4
    else:
        assert appends.count == 160 // 4


async def test_an_append_whose_outcome_is_unknown_is_sent_again(
    server: str, client: FencelogClient, appends: Appends
) -> None:
    topic = "appends/unknown"
    await client.create_topic(topic)
    appends.faults = [FencelogError(ErrorCode.APPEND_UNKNOWN, "the answer was lost")]
    await append_all(rows_of(range(4)), await target_of(server, topic), turn=0, job=None)
    assert await numbers_in(client, topic) == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("job", [None, Job("spark-query", 3)])
async def test_an_append_that_is_refused_ends_the_task(
    server: str, client: FencelogClient, appends: Appends, job: Job | None
) -> None:
    topic = f"appends/refused-{'dedup' if job else 'none'}"
    await client.create_topic(topic, partitions=2)
    appends.faults = [FencelogError(ErrorCode.TOPIC_TERMINATED, "no more")]
    rows = rows_of(range(200), partitions=2)
    with pytest.raises(FencelogError, match="no more"):
        await append_all(rows, await target_of(server, topic), turn=0, job=job)
    assert len(await numbers_in(client, topic)) < 100


# -- another attempt -------------------------------------------------------------------------------


async def test_nothing_is_appended_behind_what_has_failed() -> None:
    """It would get the numbers of that."""
    asked: list[int] = []
    all_wait = anyio.Event()

    async def refuse(_: int, batch: bytes, count: int) -> object:
        asked.append(count)
        await all_wait.wait()
        raise FencelogError(ErrorCode.TOPIC_TERMINATED, "it has ended")

    async def append_all_together() -> None:
        async with task_group() as group:
            ordered = _OrderedAppends(group, refuse)
            for count in range(1, IN_FLIGHT + 1):
                await ordered.append(0, pa.table({"value": [b"x"] * count}))
            await anyio.sleep(0.01)
            all_wait.set()

    with pytest.raises(FencelogError, match="it has ended"):
        await append_all_together()
    assert asked == [1]


async def attempt(
    target: WriteTarget, numbers: range, *, batch: int = 1, at_once: int = 100, partitions: int = 1
) -> None:
    rows = rows_of(numbers, at_once=at_once, partitions=partitions)
    await append_all(rows, target, turn=0, job=Job("spark-query", batch))


async def test_rows_that_come_again_are_written_once(server: str, client: FencelogClient) -> None:
    """A task that has died after ten record batches, and then the whole one, twice."""
    topic = "appends/again"
    await client.create_topic(topic)
    target = await target_of(server, topic)
    await attempt(target, range(40))
    await attempt(target, range(98), at_once=7)
    await attempt(target, range(98), at_once=33)
    assert await numbers_in(client, topic) == list(range(98))
    await attempt(target, range(98), batch=2)
    assert await numbers_in(client, topic) == [*range(98)] * 2


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        (range(1, 42), "rows 24 to 27 differ"),  # of the last ones that the owner remembers
        (range(36), "it had 41, not 36"),
        (range(43), "rows 40 to 42 differ"),
    ],
    ids=["shifted", "fewer", "more"],
)
async def test_other_rows_are_refused_and_not_left_out(
    server: str, client: FencelogClient, numbers: range, named: str
) -> None:
    topic = f"appends/other-{numbers.start}-{len(numbers)}"
    await client.create_topic(topic)
    target = await target_of(server, topic)
    await attempt(target, range(41))
    with pytest.raises(FencelogError, match=named) as raised:
        await attempt(target, numbers)
    assert raised.value.code is ErrorCode.SEQUENCE_REUSED
    assert await numbers_in(client, topic) == list(range(41))


async def test_a_batch_goes_to_the_partitions_of_its_first_attempt(
    server: str, client: FencelogClient
) -> None:
    topic = "appends/grows"
    await client.create_topic(topic, partitions=2)
    keyed = [b"%d" % number for number in range(50)]

    async def write(target: WriteTarget, batch: int) -> None:
        rows = pa.RecordBatch.from_pydict({"key": keyed, "value": [b"%06d" % n for n in range(50)]})
        job = Job("spark-query", batch)
        await append_all(iter([rows]), target, turn=0, job=job)

    await write(await target_of(server, topic), 1)
    await client.update_topic(topic, {}, partitions=5)
    grown = await target_of(server, topic)
    await write(grown, 1)
    first = [await numbers_in(client, topic, partition) for partition in range(5)]
    assert sorted(chain(*first)) == list(range(50))
    assert first[2:] == [[], [], []]
    await write(grown, 2)
    assert all([await numbers_in(client, topic, partition) for partition in range(2, 5)])
    with pytest.raises(FencelogError, match="batch 1 comes too late") as raised:
        await write(grown, 1)
    assert raised.value.code is ErrorCode.PRODUCER_FENCED


async def test_a_partition_that_a_row_names_may_be_added_between_two_attempts(
    server: str, client: FencelogClient
) -> None:
    """The number that the first attempt has stored is for rows that name none."""
    topic = "appends/named"
    await client.create_topic(topic, partitions=2)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": [b"%d" % number for number in range(50)],
            "value": [b"%06d" % number for number in range(50)],
            "partition": pa.array([2, *[None] * 49], pa.int32()),
        }
    )

    async def attempt() -> int:
        target, job = await target_of(server, topic), Job("spark-query", 1)
        return await append_all(iter([rows]), target, turn=0, job=job)

    with pytest.raises(FencelogError, match="the topic has 2 partitions, no 2"):
        await attempt()
    await client.update_topic(topic, {}, partitions=3)
    for _ in range(2):
        assert await attempt() == 50
    found = [await numbers_in(client, topic, partition) for partition in range(3)]
    assert sorted(chain(*found)) == list(range(50))
    assert found[2] == [0]
