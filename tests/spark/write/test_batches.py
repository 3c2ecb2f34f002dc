"""Rows of Arrow as record batches: every message as it was, whatever the shape of the columns."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.routing.partitioner import partition_of_key
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import (
    MAX_HEADERS,
    MAX_KEY_BYTES,
    MAX_MESSAGE_BYTES,
)
from fencelog.ledgers.record_batch import Message, check_batch, decode_batch
from fencelog.spark_connector.read.columns import HEADERS, TIMESTAMP
from fencelog.spark_connector.write.batches import encode, encode_checked, route, split
from fencelog.spark_connector.write.gathered import Gathered
from fencelog.spark_connector.write.limits import TARGET_BYTES

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("event_time", TIMESTAMP),
    ]
)
messages = st.builds(
    Message,
    st.binary(max_size=9),
    st.none() | st.binary(max_size=5),
    st.none() | st.integers(-(2**40), 2**40),
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=3).map(tuple),
)


def rows_of(found: list[Message]) -> pa.RecordBatch:
    rows = [
        {
            "key": message.key,
            "value": message.value,
            "headers": [{"name": name, "value": value} for name, value in message.headers],
            "event_time": message.event_time,
        }
        for message in found
    ]
    times = pa.array([row.pop("event_time") for row in rows], pa.int64()).cast(TIMESTAMP)
    columns = [pa.array([row[name] for row in rows], SCHEMA.field(name).type) for name in rows[0]]
    return pa.RecordBatch.from_arrays([*columns, times], schema=SCHEMA)


def table(*batches: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches(batches)


def messages_of(*batches: pa.RecordBatch) -> list[Message]:
    rows = table(*batches)
    batch = encode(rows)
    assert b"".join(encode_checked(rows)) == batch
    return decode_batch(batch)


def gathered(*batches: pa.RecordBatch) -> list[pa.Table]:
    """What is given out of these rows of partition 0."""
    waiting = Gathered()
    full = [part for rows in batches for _, part in waiting.add(rows, np.zeros(len(rows), int))]
    return [*full, *(part for _, part in waiting.rest())]


@given(st.lists(messages, min_size=1, max_size=40), st.data())
def test_every_message_stays_as_it_was(found: list[Message], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(found) - 1))
    end = data.draw(st.integers(start + 1, len(found)))
    rows = rows_of(found)
    assert messages_of(rows.slice(start, end - start)) == found[start:end]


@given(st.lists(st.lists(messages, min_size=1, max_size=4), min_size=1, max_size=25))
def test_rows_that_come_in_parts_are_the_same_batch(parts: list[list[Message]]) -> None:
    found = [message for part in parts for message in part]
    whole = rows_of([Message(b"before", b"k", 1, (("h", b"v"),)), *found])
    came = [whole.slice(0, 1), *map(rows_of, parts), whole.slice(1, 0)]
    assert decode_batch(encode(table(*came))) == [*messages_of(whole.slice(0, 1)), *found]
    assert encode(table(*came)) == encode(table(whole))
    assert messages_of(*map(rows_of, parts)) == found


def parts_of_rows() -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"value": [b"v" * 100] * 5_000}) for _ in range(2)]


def test_the_bytes_of_rows_are_copied_once() -> None:
    rows = table(*parts_of_rows())
    size = len(encode(rows))
    tracemalloc.start()
    try:
        encode(rows)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1.5 * size


def test_the_bytes_of_rows_are_not_copied_before_they_are_a_run() -> None:
    rows = table(*parts_of_rows())
    in_rows = {chunk.buffers()[2].address for chunk in rows["value"].chunks}
    found = [np.frombuffer(piece, np.uint8) for piece in encode_checked(rows) if piece]
    assert {each.ctypes.data for each in found} >= in_rows


def test_limits_are_left_to_the_broker_where_it_checks_them() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * (MAX_MESSAGE_BYTES + 1)]})
    with pytest.raises(FencelogError) as raised:
        check_batch(encode(table(rows)))
    assert raised.value.code is ErrorCode.PAYLOAD_TOO_LARGE


def test_text_and_missing_columns_are_taken() -> None:
    rows = pa.RecordBatch.from_pydict({"value": ["grüße", ""]})
    assert messages_of(rows) == [Message("grüße".encode()), Message(b"")]
    lists = pa.array([None, [{"name": "n", "value": b"v"}], []], HEADERS)
    rows = pa.RecordBatch.from_pydict({"value": [b"1", b"2", b"3"], "headers": lists})
    assert messages_of(rows) == [
        Message(b"1"),
        Message(b"2", headers=(("n", b"v"),)),
        Message(b"3"),
    ]


def test_many_rows_become_several_batches_in_order() -> None:
    found = [Message(b"%d" % n + b"x" * 1_000) for n in range(5_000)]
    batches = [encode(rows) for rows in gathered(rows_of(found))]
    assert len(batches) > 1
    assert max(len(batch) for batch in batches) <= 1.5 * TARGET_BYTES
    assert [m for batch in batches for m in decode_batch(batch)] == found


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ({"value": pa.array([None, b"a"])}, ErrorCode.BAD_REQUEST),
        ({"value": [b"x" * (MAX_MESSAGE_BYTES + 1)]}, ErrorCode.PAYLOAD_TOO_LARGE),
        (
            {"value": [b"a"], "key": [b"x" * (MAX_KEY_BYTES + 1)]},
            ErrorCode.PAYLOAD_TOO_LARGE,
        ),
        (
            {
                "value": [b"a"],
                "headers": pa.array([[{"name": "n", "value": b"v"}] * (MAX_HEADERS + 1)], HEADERS),
            },
            ErrorCode.PAYLOAD_TOO_LARGE,
        ),
        (
            {"value": [b"a"], "headers": pa.array([[{"name": None, "value": b"v"}]], HEADERS)},
            ErrorCode.BAD_REQUEST,
        ),
    ],
)
def test_what_is_no_message_is_refused(column: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(FencelogError) as raised:
        encode_checked(pa.Table.from_pydict(column))
    assert raised.value.code is code


def test_offsets_that_do_not_rise_are_refused() -> None:
    offsets = pa.array([0, 4, 2, 6], pa.int32())
    values = pa.Array.from_buffers(
        pa.binary(), 3, [None, offsets.buffers()[1], pa.py_buffer(b"abcdef")]
    )
    with pytest.raises(FencelogError, match="offsets do not rise"):
        encode_checked(pa.Table.from_pydict({"value": values}))


@given(st.lists(st.none() | st.binary(max_size=2), min_size=1), st.integers(1, 5))
def test_keys_go_where_brokers_send_them(keys: list[bytes | None], partitions: int) -> None:
    rows = pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary())})
    expected = [
        partitions - 1 if key is None else partition_of_key(key, partitions) for key in keys
    ]
    assert route(rows, partitions, partitions - 1).tolist() == expected


def test_a_named_partition_comes_first_and_must_be_there() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"key": [b"k", b"k"], "partition": pa.array([2, None], pa.int32())}
    )
    assert route(rows, 3, 0).tolist() == [2, partition_of_key(b"k", 3)]
    with pytest.raises(FencelogError, match="has 2 partitions, no 2"):
        route(rows, 2, 0)
    assert route(rows, 2, 0, existing=3).tolist() == [2, partition_of_key(b"k", 2)]


@given(st.lists(st.integers(0, 3), max_size=30))
def test_rows_keep_their_order_within_a_partition(numbers: list[int]) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array(range(len(numbers)), pa.int64())})
    found, parts = split(rows, np.array(numbers, np.int64))
    assert {n: found["value"][start:end].to_pylist() for n, start, end in parts} == {
        n: [place for place, number in enumerate(numbers) if number == n] for n in set(numbers)
    }
