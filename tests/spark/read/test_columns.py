"""Record batches as Arrow batches: exact types, the same contents, no copies."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencelog.ledgers.record_batch import Message, encode_batch, encode_values
from fencelog.ledgers.record_batch.format import BatchView, pack_ints, read_batch
from fencelog.spark_connector.read.columns import Stretch, arrow_schema, to_arrow
from fencelog.spark_connector.source import COLUMNS
from tests.support.house import ROOT

BASE = 1_000_000_000_000
SCHEMA = arrow_schema(list(COLUMNS))
PUBLISHED = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)

messages = st.lists(
    st.builds(
        Message,
        st.binary(max_size=20),
        st.none() | st.binary(max_size=5),
        st.none() | st.integers(0, 4_000_000_000_000_000),
        st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=40,
)


def stretch(view: BatchView) -> Stretch:
    """A batch from BASE on in partition 2."""
    return Stretch("spark/events", 2, [BASE], view, [view.count], [1_700_000_000_123_456])


def rows(batch: bytes) -> pa.RecordBatch:
    return to_arrow(stretch(read_batch(batch)[1]), SCHEMA)


def messages_of(batch: pa.RecordBatch) -> list[Message]:
    return [
        Message(value, key, time, tuple((header["name"], header["value"]) for header in headers))
        for value, key, time, headers in zip(
            batch["value"].to_pylist(),
            batch["key"].to_pylist(),
            batch["event_time"].cast(pa.int64()).to_pylist(),
            batch["headers"].to_pylist(),
            strict=True,
        )
    ]


@given(messages)
@settings(max_examples=60)
def test_rows_are_the_messages(sent: list[Message]) -> None:
    arrow = rows(encode_batch(sent))
    assert messages_of(arrow) == sent
    assert arrow["offset"].to_pylist() == [BASE + i for i in range(len(sent))]
    assert set(arrow["topic"].to_pylist()) == {"spark/events"}
    assert set(arrow["partition"].to_pylist()) == {2}
    assert set(arrow["publish_time"].to_pylist()) == {PUBLISHED}


def test_each_batch_has_its_offset_and_its_publish_time() -> None:
    (_, view) = read_batch(encode_values([b"a", b"b", b"c"]))
    times = [1_700_000_000_123_456, 1_700_000_001_123_456]
    arrow = to_arrow(Stretch("t", 0, [5, 9], view, [1, 2], times), SCHEMA)
    assert arrow["offset"].to_pylist() == [5, 9, 10]
    assert arrow["publish_time"].cast(pa.int64()).to_pylist() == [times[0], times[1], times[1]]


def test_types_are_those_spark_derives_from_the_columns() -> None:
    from pyspark.sql.pandas import types
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("name", StringType()), StructField("value", BinaryType())])
    spark_types = {
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "binary": BinaryType(),
        "timestamp": TimestampType(),
        "array<struct<name:string,value:binary>>": ArrayType(header),
    }
    schema = StructType([StructField(name, spark_types[kind]) for name, kind in COLUMNS.items()])
    assert types.to_arrow_schema(schema, timezone="UTC").equals(SCHEMA)
    assert rows(encode_values([b"x"])).schema.equals(SCHEMA)


def test_buffers_are_wrapped_where_they_lie() -> None:
    batch = encode_batch([Message(b"value", b"key", 5, (("name", b"header"),))] * 1000)
    arrow = rows(batch)
    whole = pa.py_buffer(batch)
    stored = range(whole.address, whole.address + whole.size)
    for name in ("key", "value", "headers", "event_time"):
        buffers = [buffer for buffer in arrow[name].buffers() if buffer is not None]
        assert buffers
        assert all(buffer.address in stored for buffer in buffers)


def test_absent_columns_are_null_and_headers_empty() -> None:
    arrow = rows(encode_values([b"a", b"", b"\xff\xfe"]))
    assert arrow["key"].null_count == arrow["event_time"].null_count == 3
    assert arrow["headers"].to_pylist() == [[], [], []]
    assert arrow["value"].to_pylist() == [b"a", b"", b"\xff\xfe"]


def test_only_the_columns_asked_for_are_made_in_their_order() -> None:
    schema = arrow_schema(["value", "offset"])
    arrow = to_arrow(stretch(read_batch(encode_values([b"a", b"b"]))[1]), schema)
    assert arrow.schema.names == ["value", "offset"]
    assert arrow.num_rows == 2


FULL = read_batch(encode_batch([Message(b"ab", b"k", 7, (("n", b"v"),))] * 2))[1]


def ints(*numbers: int) -> memoryview:
    return memoryview(pack_ints("i", numbers))


@pytest.mark.parametrize(
    "damaged",
    [
        replace(FULL, value_offsets=ints(0, 2, 5)),
        replace(FULL, value_offsets=ints(0, 5, 4)),
        replace(FULL, value_offsets=ints(-1, 2, 4)),
        replace(FULL, value_offsets=ints(0, 2)),
        replace(FULL, value_offsets=ints(0, 2, 4, 4)),
        replace(FULL, key_offsets=ints(0, 1, 2**31 - 1)),
        replace(FULL, key_validity=memoryview(b""), key_offsets=memoryview(b"")),
        replace(FULL, event_times=memoryview(bytes(8))),
        replace(FULL, count=9, value_offsets=ints(*range(10)), value_data=memoryview(bytes(9))),
        replace(FULL, header_list_offsets=ints(0, 1, 3)),
        replace(FULL, header_list_offsets=ints(0, 1)),
        replace(FULL, header_name_offsets=memoryview(b"")),
        replace(FULL, header_name_offsets=ints(0, 1, 7)),
        replace(FULL, header_value_offsets=ints(0, 1)),
        replace(FULL, header_name_data=memoryview(b"\xff\xff")),
    ],
)
def test_offsets_that_lead_out_of_the_buffers_are_refused(damaged: BatchView) -> None:
    assert to_arrow(stretch(FULL), SCHEMA).num_rows == 2
    with pytest.raises(ValueError, match=r"\w"):
        to_arrow(stretch(damaged), SCHEMA)


def test_no_worker_imports_pandas() -> None:
    """It takes longer than to read a million messages, and ``pa.array`` imports it."""
    code = (
        "import sys\n"
        "import fencelog.spark_connector.read.task\n"
        "from tests.spark.read.test_columns import Message, encode_batch, rows\n"
        "rows(encode_batch([Message(b'v', b'k', 1, (('n', b'h'),)), Message(b'v')]))\n"
        "rows(encode_batch([Message(b'v')]))\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
