"""Rows that wait for more: where their record batches end, and the memory that they keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fencelog.ledgers.limits import KIB, MAX_BATCH_MESSAGES, MIB
from fencelog.spark_connector.read.columns import HEADERS
from fencelog.spark_connector.write.batches import encode
from fencelog.spark_connector.write.gathered import Gathered
from fencelog.spark_connector.write.limits import PART_BYTES, SPARE_BYTES, TARGET_BYTES

ROUNDS = 100
"""Batches of 1 MiB, about: several times what may be kept beside the rows that wait."""


def of_sizes(sizes: list[int]) -> pa.RecordBatch:
    headers = [[{"name": "h", "value": b"v" * (size // 80)}] for size in sizes]
    values = [b"x" * size for size in sizes]
    return pa.RecordBatch.from_pydict({"value": values, "headers": pa.array(headers, HEADERS)})


def numbered(first: int, count: int = 1_000) -> pa.RecordBatch:
    """Rows of 1 KiB."""
    values = [b"%08d" % number + bytes(KIB - 8) for number in range(first, first + count)]
    return pa.RecordBatch.from_pydict({"value": values})


def numbers_in(part: pa.Table) -> list[int]:
    return [int(value[:8]) for value in part["value"].to_pylist()]


def add(waiting: Gathered, parts: dict[int, pa.RecordBatch]) -> list[tuple[int, pa.Table]]:
    """Add one batch, with these rows of each partition; return what is given out."""
    places = np.repeat(list(parts), [part.num_rows for part in parts.values()])
    return list(waiting.add(pa.concat_batches(parts.values()), places))


def gathered(*batches: pa.RecordBatch) -> list[pa.Table]:
    """What is given out of these rows of partition 0."""
    waiting = Gathered()
    full = [part for rows in batches for _, part in add(waiting, {0: rows})]
    return [*full, *(part for _, part in waiting.rest())]


class Task:
    """A task that takes batches of rows, each row with its partition."""

    def __init__(self, waiting: Gathered) -> None:
        self._waiting = waiting
        self._before = pa.total_allocated_bytes()
        self.most = 0
        """The memory that was kept between two batches, at most."""
        self.given_out: dict[int, list[list[int]]] = defaultdict(list)
        self.entered = 0

    def take(self, rounds: Iterator[NDArray[np.int64]]) -> None:
        for partitions in rounds:
            rows = numbered(self.entered, len(partitions))
            self.entered += len(partitions)
            for partition, part in self._waiting.add(rows, partitions):
                self.given_out[partition].append(numbers_in(part))
                del part
            del rows
            self.most = max(self.most, pa.total_allocated_bytes() - self._before)

    def end(self) -> list[int]:
        """Return all rows; check that those of each partition are in order."""
        for partition, part in self._waiting.rest():
            self.given_out[partition].append(numbers_in(part))
        found = [[n for part in parts for n in part] for parts in self.given_out.values()]
        assert all(numbers == sorted(numbers) for numbers in found)
        return sorted(n for numbers in found for n in numbers)


def test_many_small_rows_are_not_more_than_a_batch_may_hold() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b""] * (MAX_BATCH_MESSAGES + 1)})
    counts = [part.num_rows for part in gathered(rows)]
    assert max(counts) <= MAX_BATCH_MESSAGES
    assert sum(counts) == MAX_BATCH_MESSAGES + 1


@pytest.mark.parametrize("spare", [0, SPARE_BYTES])
@given(
    st.lists(st.sampled_from([0, 1, 200_000, 600_000, TARGET_BYTES + 1]), min_size=1, max_size=15),
    st.lists(st.integers(0, 15)),
)
def test_batches_end_where_their_rows_say(spare: int, sizes: list[int], cuts: list[int]) -> None:
    """A repetition with the same rows has the same batches, however Spark hands the rows over."""
    rows = of_sizes(sizes)
    places = [0, *sorted(cut for cut in cuts if cut < len(sizes)), len(sizes)]
    parts = [rows.slice(a, b - a) for a, b in pairwise(places) if b > a]
    once = gathered(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fencelog.spark_connector.write.gathered.SPARE_BYTES", spare)
        again = gathered(*parts)
    assert [part.num_rows for part in once] == [part.num_rows for part in again]
    assert [encode(part) for part in once] == [encode(part) for part in again]
    assert sum(part.num_rows for part in once) == len(sizes)


def test_small_batches_wait_for_each_other() -> None:
    waiting = Gathered()
    small = pa.RecordBatch.from_pydict({"value": [b"x" * 1_000] * 100})
    given_out = [
        (number, part)
        for _ in range(40)
        for number, part in add(waiting, {0: small, 1: small.slice(0, 1)})
    ]
    assert [number for number, _ in given_out] == [0]
    assert abs(given_out[0][1].nbytes - TARGET_BYTES) < TARGET_BYTES // 50
    rest = dict(waiting.rest())
    assert rest[1].num_rows == 40
    assert rest[0].num_rows + given_out[0][1].num_rows == 4_000
    assert list(waiting.rest()) == []


def test_a_row_that_waits_does_not_keep_the_batches_that_it_came_in() -> None:
    partitions = np.zeros(1_000, np.int64)
    partitions[500] = 1
    task = Task(Gathered())
    task.take(partitions for _ in range(ROUNDS))
    assert len(task.given_out[0]) > ROUNDS // 3
    assert task.most < SPARE_BYTES + 2 * TARGET_BYTES + 4 * MIB
    assert task.end() == list(range(task.entered))


def test_what_is_left_of_whole_batches_does_not_keep_them() -> None:
    """Each batch is of one partition: the most of it leaves, and the end of it waits."""
    task = Task(Gathered())
    task.take(np.full(2_100, number, np.int64) for number in range(ROUNDS // 2))
    assert task.most < SPARE_BYTES + ROUNDS * MIB // 10
    assert task.end() == list(range(task.entered))


def test_single_rows_that_wait_are_joined() -> None:
    """Arrow's objects for each of them would take more than their bytes."""
    waiting = Gathered()
    row = pa.RecordBatch.from_pydict({"value": [b"x"]})
    count = 3 * SPARE_BYTES // PART_BYTES
    for _ in range(count):
        assert list(waiting.add(row, np.zeros(1, int))) == []
    ((_, rest),) = waiting.rest()
    assert rest.num_rows == count
    assert rest["value"].num_chunks <= SPARE_BYTES // PART_BYTES


def spread_evenly(partitions: int) -> Iterator[NDArray[np.int64]]:
    """Rows that fill all partitions alike."""
    for _ in range(ROUNDS):
        yield np.arange(1_000, dtype=np.int64) % partitions


def test_above_a_limit_the_largest_parts_leave_early() -> None:
    task = Task(Gathered(most_bytes=8 * MIB))
    task.take(spread_evenly(64))
    assert task.most < 8 * MIB + SPARE_BYTES + 2 * MIB
    sizes = [len(numbers) for parts in task.given_out.values() for numbers in parts]
    assert min(sizes) >= 8 * MIB // 64 // (KIB + 100)
    assert task.end() == list(range(task.entered))


def test_a_part_that_is_small_stays_while_larger_ones_leave() -> None:
    waiting = Gathered(most_bytes=MIB)
    assert add(waiting, {0: numbered(0, 10), 1: numbered(0, 900)}) == []
    ((partition, part),) = add(waiting, {0: numbered(10, 10), 2: numbered(0, 500)})
    assert (partition, part.num_rows) == (1, 900)
    rest = {number: numbers_in(each) for number, each in waiting.rest()}
    assert rest == {0: list(range(20)), 2: list(range(500))}


def test_without_a_limit_all_wait_for_whole_record_batches() -> None:
    task = Task(Gathered())
    task.take(spread_evenly(64))
    assert task.given_out == {}
    assert task.end() == list(range(task.entered))
