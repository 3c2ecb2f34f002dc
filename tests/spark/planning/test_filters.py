"""Filters as ranges of offsets: nothing that Spark would keep is left out, and not much else is
read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.spark_connector.planning.bounds import TimeOffset
from fencelog.spark_connector.planning.filters import (
    Comparison,
    Operator,
    Range,
    RowFilter,
    comparison_of,
    narrow,
    row_filter,
)
from fencelog.spark_connector.planning.option_values import MAX_TIMESTAMP_US
from fencelog.spark_connector.planning.segments import PartitionSegments

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPICS = ("default/a", "default/b")


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


@dataclass(frozen=True)
class Log:
    """A partition whose messages from ``earliest`` on have these publish times (µs)."""

    topic: str
    partition: int
    earliest: int
    times_us: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.earliest + len(self.times_us)

    def answer(self) -> PartitionSegments:
        return PartitionSegments(
            self.topic, self.partition, self.earliest, self.end, (), {}, self.topic
        )

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "topic": self.topic,
                "partition": self.partition,
                "offset": self.earliest + number,
                "publish_time": moment(time_us),
            }
            for number, time_us in enumerate(self.times_us)
        ]

    def offset_for_time(self, time_us: int, tail: int) -> TimeOffset:
        """What a broker answers that knows the messages below ``tail``."""
        for number, time in enumerate(self.times_us[: tail - self.earliest]):
            if time >= time_us:
                return TimeOffset(self.earliest + number, is_found=True)
        return TimeOffset(tail, is_found=False)


times = st.integers(0, 12)
logs = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.integers(0, 2),
        st.integers(0, 3),
        st.lists(times, max_size=8).map(sorted),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda shape: shape[:2],
).map(lambda shapes: [Log(topic, p, first, tuple(given)) for topic, p, first, given in shapes])

CONSTANTS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from((*TOPICS, "default/c", "")),
    "partition": st.integers(-1, 3),
    "offset": st.integers(-2, 12),
    "publish_time": st.integers(-2, 14).map(moment),
}


def comparisons(column: str) -> st.SearchStrategy[Comparison]:
    constant = CONSTANTS[column]
    single = [kind for kind in Operator if kind is not Operator.IN]
    return st.one_of(
        st.builds(Comparison, st.just(column), st.sampled_from(single), constant),
        st.builds(
            Comparison,
            st.just(column),
            st.just(Operator.IN),
            st.lists(constant, max_size=3).map(tuple),
        ),
    )


filters = st.lists(st.sampled_from(list(CONSTANTS)).flatmap(comparisons), max_size=4)


def kept(filters: Sequence[Comparison], row: dict[str, Any]) -> bool:
    """What Spark does with a row."""
    return all(each.holds(row[each.column]) for each in filters)


@given(logs, filters, st.data())
def test_all_rows_that_spark_keeps_are_read_once(
    logs: list[Log], filters: list[Comparison], data: st.DataObject
) -> None:
    """Whatever the options bound, and however little the broker knows that is asked for times."""
    rows = row_filter(filters, is_compacted=False)
    found: dict[tuple[str, int, int], TimeOffset] = {}
    starts: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for log in logs:
        start = data.draw(st.integers(log.earliest, log.end))
        starts.setdefault(log.topic, {})[log.partition] = start
        end = data.draw(st.integers(start, log.end))
        ends.setdefault(log.topic, {})[log.partition] = end
        tail = data.draw(st.integers(log.earliest, log.end))
        for time_us in rows.times_wanted(log.topic, log.partition):
            found[log.topic, log.partition, time_us] = log.offset_for_time(time_us, tail)
    answers, lows, highs = narrow([log.answer() for log in logs], starts, ends, rows, found)
    places = [(answer.topic, answer.partition) for answer in answers]
    assert len(set(places)) == len(places)
    for log in logs:
        start, end = starts[log.topic][log.partition], ends[log.topic][log.partition]
        low = high = start
        if (log.topic, log.partition) in places:
            low, high = lows[log.topic][log.partition], highs[log.topic][log.partition]
        assert start <= low <= high <= end
        for row in log.rows():
            if start <= row["offset"] < end and kept(filters, row):
                assert low <= row["offset"] < high


@given(logs, filters)
def test_both_ends_of_what_is_read_are_wanted(logs: list[Log], filters: list[Comparison]) -> None:
    """With a broker that knows all, only IN reads what is not wanted, between what is."""
    rows = row_filter(filters, is_compacted=False)
    starts: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for log in logs:
        starts.setdefault(log.topic, {})[log.partition] = log.earliest
        ends.setdefault(log.topic, {})[log.partition] = log.end
    found = {
        (log.topic, log.partition, time_us): log.offset_for_time(time_us, log.end)
        for log in logs
        for time_us in rows.times_wanted(log.topic, log.partition)
    }
    answers, lows, highs = narrow([log.answer() for log in logs], starts, ends, rows, found)
    simple = [each for each in filters if each.operator is not Operator.IN]
    read = {(answer.topic, answer.partition) for answer in answers}
    for log in logs:
        if (log.topic, log.partition) in read:
            low, high = lows[log.topic][log.partition], highs[log.topic][log.partition]
            for row in log.rows()[low - log.earliest : high - log.earliest]:
                assert kept(simple, row)


@pytest.mark.parametrize(
    ("kind", "operand", "wanted"),
    [
        (Operator.EQUAL, 5, Range(5, 6)),
        (Operator.LESS, 5, Range(None, 5)),
        (Operator.LESS_OR_EQUAL, 5, Range(None, 6)),
        (Operator.GREATER, 5, Range(6, None)),
        (Operator.GREATER_OR_EQUAL, 5, Range(5, None)),
        (Operator.IN, (7, 5), Range(5, 8)),
        (Operator.IN, (), Range(0, 0)),
    ],
)
def test_comparisons_are_ranges(kind: Operator, operand: Any, wanted: Range) -> None:
    in_us = tuple(map(moment, operand)) if isinstance(operand, tuple) else moment(operand)
    filters = [Comparison("offset", kind, operand), Comparison("publish_time", kind, in_us)]
    low = None if wanted.low == 0 else wanted.low  # there is no earlier time
    expected = RowFilter((), wanted, Range(low, wanted.end))
    assert row_filter(filters, is_compacted=False) == expected


def test_only_whole_partitions_of_the_compacted_view_are_left_out() -> None:
    filters = [
        Comparison("partition", Operator.EQUAL, 1),
        Comparison("offset", Operator.LESS, 5),
        Comparison("publish_time", Operator.GREATER, moment(7)),
    ]
    assert row_filter(filters, is_compacted=True) == RowFilter(places=(filters[0],))
    assert row_filter(filters, is_compacted=False) == RowFilter(
        (filters[0],), Range(end=5), Range(low=8)
    )


def test_the_service_is_asked_for_times_that_it_takes() -> None:
    def times(kind: Operator, operand: datetime) -> Range:
        return row_filter([Comparison("publish_time", kind, operand)], is_compacted=False).times

    before, last = moment(-5), moment(MAX_TIMESTAMP_US + 999)
    assert times(Operator.GREATER, before) == Range()
    assert times(Operator.LESS, before) == Range(end=0)
    assert times(Operator.GREATER, last) == Range(low=MAX_TIMESTAMP_US)
    assert times(Operator.LESS_OR_EQUAL, last) == Range()


def test_partitions_that_are_left_out_need_no_times() -> None:
    filters = [
        Comparison("partition", Operator.IN, (1, 2)),
        Comparison("publish_time", Operator.EQUAL, moment(7)),
    ]
    rows = row_filter(filters, is_compacted=False)
    assert rows.times_wanted("default/a", 2) == {7, 8}
    assert rows.times_wanted("default/a", 0) == set()


# -- filters as PySpark gives them -----------------------------------------------------------------


def sparks(name: str, attribute: tuple[str, ...], *value: object) -> object:
    """A filter of PySpark: its classes do not exist in 4.0."""
    fields = {"attribute": attribute} | ({"value": value[0]} if value else {})
    return type(name, (), fields)()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("EqualTo", Operator.EQUAL),
        ("EqualNullSafe", Operator.EQUAL),
        ("LessThan", Operator.LESS),
        ("LessThanOrEqual", Operator.LESS_OR_EQUAL),
        ("GreaterThan", Operator.GREATER),
        ("GreaterThanOrEqual", Operator.GREATER_OR_EQUAL),
    ],
)
def test_comparisons_are_understood(name: str, kind: Operator) -> None:
    assert comparison_of(sparks(name, ("offset",), 5)) == Comparison("offset", kind, 5)
    found = comparison_of(sparks(name, ("publish_time",), moment(9)))
    assert found == Comparison("publish_time", kind, moment(9))
    assert comparison_of(sparks(name, ("topic",), "a/b")) == Comparison("topic", kind, "a/b")


def test_lists_are_understood_and_null_in_them_keeps_no_row() -> None:
    found = comparison_of(sparks("In", ("partition",), [1, None, 2]))
    assert found == Comparison("partition", Operator.IN, (1, 2))
    empty = comparison_of(sparks("In", ("offset",), (None,)))
    assert empty == Comparison("offset", Operator.IN, ())
    assert empty is not None
    assert not empty.holds(0)


@pytest.mark.parametrize(
    "given",
    [
        sparks("Not", (), 5),
        sparks("IsNotNull", ("offset",)),
        sparks("IsNull", ("offset",)),
        sparks("StringStartsWith", ("topic",), "a"),
        sparks("EqualTo", ("event_time",), moment(5)),
        sparks("EqualTo", ("key",), b"k"),
        sparks("EqualTo", ("headers", "name"), "n"),
        sparks("EqualTo", ("offset", "x"), 5),
        sparks("EqualTo", ("offset",), None),
        sparks("EqualTo", ("offset",), 5.0),
        sparks("EqualTo", ("offset",), True),
        sparks("EqualTo", ("publish_time",), datetime(2026, 1, 1)),
        sparks("EqualTo", ("publish_time",), "2026-01-01"),
        sparks("In", ("offset",), [1, "2"]),
        sparks("In", ("offset",), 1),
        sparks("SomethingNew", ("offset",), 1),
    ],
)
def test_anything_else_narrows_nothing(given: object) -> None:
    assert comparison_of(given) is None
    assert row_filter([None], is_compacted=False) == RowFilter()
