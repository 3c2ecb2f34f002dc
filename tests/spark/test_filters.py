"""The filters of real queries: the rows are those that Spark keeps, and fewer are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader

from fencelog.ledgers.record_batch import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SWITCH = "spark.sql.python.filterPushdown.enabled"

HAS_FILTERS = hasattr(DataSourceReader, "pushFilters")
needs_filters = pytest.mark.skipif(not HAS_FILTERS, reason="PySpark 4.0 pushes no filters down")

Read = Callable[..., "DataFrame"]


class Filled(Protocol):
    server: str
    messages: dict[tuple[int, int], Message]


@pytest.fixture
def switched_on(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SWITCH, "true")
    yield
    spark.conf.unset(SWITCH)


def rows_of(frame: DataFrame) -> tuple[list[tuple[int, int]], int]:
    """Return the partition and offset of each row, and how many rows were read for these."""
    rows = sorted((row.partition, row.offset) for row in frame.collect())
    plan = frame._jdf.queryExecution().executedPlan()
    scan = plan.collectLeaves().head()
    return rows, scan.metrics().apply("numOutputRows").value()


@needs_filters
@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("mode", ["direct", "broker"])
@pytest.mark.parametrize(
    ("condition", "read_rows"),
    [
        ("offset >= 100 AND offset < 130", 3 * 30),
        ("partition = 1", None),
        ("partition IN (0, 2) AND offset IN (5, 9, NULL)", 2 * 5),
        ("partition > 1 AND offset <= 4", 5),
        ("offset = 7 AND partition <=> 2", 1),
        ("offset < 0", 0),
        ("offset > 99999999", 0),
        ("partition = 9", 0),
        ("offset < 10 AND (offset = 3 OR value IS NOT NULL)", 3 * 10),
    ],
)
def test_comparisons_of_offset_and_partition_narrow_what_is_read(
    read: Read, filled: Filled, condition: str, read_rows: int | None, mode: str
) -> None:
    whole, everything = rows_of(read(readMode=mode).where(condition))
    assert everything == len(filled.messages)
    rows, number = rows_of(read(readMode=mode, pushFilters="true").where(condition))
    assert rows == whole
    of_partition_1 = sum(partition == 1 for partition, _ in filled.messages)
    assert number == (of_partition_1 if read_rows is None else read_rows)


@needs_filters
@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("comparison", ["=", "<", "<=", ">", ">="])
def test_comparisons_of_publish_time_narrow_what_is_read(
    read: Read, filled: Filled, comparison: str
) -> None:
    """Also where the constant is a time of messages."""
    times = read().selectExpr("CAST(publish_time AS STRING) AS t").distinct().collect()
    middle = sorted(row.t for row in times)[len(times) // 2]
    condition = f"publish_time {comparison} '{middle}'"
    whole, _ = rows_of(read().where(condition))
    rows, number = rows_of(read(pushFilters="true").where(condition))
    assert rows == whole
    assert number == len(rows) < len(filled.messages)


@needs_filters
@pytest.mark.usefixtures("switched_on")
def test_a_topic_is_one_of_several(read: Read, filled: Filled) -> None:
    frame = read("", topicsPattern="spark/.*", pushFilters="true")
    rows, number = rows_of(frame.where("topic = 'spark/prices' AND offset >= 4"))
    assert rows == [(0, offset) for offset in range(4, 31)]
    assert number == len(rows)
    assert frame.where("topic > 'spark/events' AND topic IN ('spark/events')").count() == 0


@needs_filters
@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize(
    "condition",
    ["event_time >= '2020-01-01'", "offset % 2 = 0", "offset = 1 OR offset = 5", "NOT offset = 3"],
)
def test_other_filters_are_left_to_spark(read: Read, filled: Filled, condition: str) -> None:
    rows, number = rows_of(read(pushFilters="true").where(condition))
    assert rows == rows_of(read().where(condition))[0]
    assert 0 < len(rows) < number == len(filled.messages)


@needs_filters
@pytest.mark.usefixtures("switched_on")
def test_the_compacted_view_is_filtered(read: Read) -> None:
    frame = read("spark/prices", view="compacted", pushFilters="true")
    rows, _ = rows_of(frame.where("offset >= 28 AND partition = 0"))
    assert rows == [(0, 28), (0, 29), (0, 30)]
    gone = read("spark/prices", view="compacted", pushFilters="true").where("partition = 1")
    assert rows_of(gone) == ([], 0)


@needs_filters
@pytest.mark.usefixtures("switched_on")
def test_one_frame_has_right_rows_under_several_filters_unless_they_are_pushed(
    read: Read, filled: Filled
) -> None:
    """Spark plans a frame once for all queries: what it pushed last would hold for the others, so
    pushing is no default."""
    frame = read()
    assert frame.where("offset >= 9000").count() < 3 * 1000
    assert frame.count() == len(filled.messages)
    both = frame.where("offset < 5").union(frame.where("offset >= 5"))
    assert both.count() == len(filled.messages)


@needs_filters
@pytest.mark.usefixtures("switched_on")
def test_no_filters_are_pushed_for_a_table_of_the_catalog(
    spark: SparkSession, filled: Filled
) -> None:
    """A query that names such a table twice would lack rows."""
    given = f"server '{filled.server}', topic 'spark/events'"
    refused = pytest.raises(PySparkException, match="'pushFilters' is not for tables")
    with refused:
        spark.sql(f"CREATE TABLE narrowed USING fencelog OPTIONS ({given}, pushFilters 'true')")
    spark.sql(f"CREATE TABLE narrowed USING fencelog OPTIONS ({given})")
    try:
        with refused:
            spark.sql("SELECT * FROM narrowed WITH (pushFilters 'true') WHERE offset < 5").count()
        both = spark.sql(
            "SELECT * FROM narrowed WHERE offset < 5 UNION ALL "
            "SELECT * FROM narrowed WHERE offset >= 5"
        )
        assert both.count() == len(filled.messages)
    finally:
        spark.sql("DROP TABLE narrowed")


@needs_filters
def test_spark_names_its_switch(read: Read) -> None:
    with pytest.raises(PySparkException, match=SWITCH):
        read(pushFilters="true").count()


@pytest.mark.skipif(HAS_FILTERS, reason="for PySpark 4.0")
def test_the_oldest_spark_pushes_no_filters(read: Read) -> None:
    with pytest.raises(PySparkException, match="needs PySpark 4"):
        read(pushFilters="true").count()
