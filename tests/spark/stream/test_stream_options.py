"""The options of a stream: parsed, or refused by name."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.offsets import AtTime, Bound, End, Position
from fencelog.spark_connector.planning.options import parse_batch_options
from fencelog.spark_connector.stream.admission_core import NO_LIMITS, TriggerLimits
from fencelog.spark_connector.stream.options import parse_stream_options

PLAIN = {"server": "http://127.0.0.1:1", "topic": "t"}


def test_a_stream_begins_at_the_end_and_has_no_limits() -> None:
    options = parse_stream_options(PLAIN)
    assert options.read.starting == Bound(End.LATEST)
    assert (options.limits, options.subscription) == (NO_LIMITS, None)
    earliest = parse_stream_options(PLAIN | {"startingOffsets": "earliest"})
    assert earliest.read.starting == Bound(End.EARLIEST)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [("startingOffsets", "7", 7), ("startingTimestamp", "1000", AtTime(1_000_000))],
)
def test_a_partition_that_json_does_not_name_is_read_from_its_beginning(
    name: str, value: str, found: Position
) -> None:
    """As the offsets of a checkpoint are given: a partition may have been added since."""
    starting = parse_stream_options(PLAIN | {name: f'{{"0": {value}}}'}).read.starting
    assert starting.of("default/t", 0) == found
    assert starting.of("default/t", 1) is End.EARLIEST
    assert starting.of("default/added", 0) is End.EARLIEST


def test_every_option_is_parsed() -> None:
    options = parse_stream_options(
        PLAIN
        | {
            "maxoffsetspertrigger": "100",
            "MAXBYTESPERTRIGGER": "2000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "subscription": "etl",
            "minPartitions": "4",
        }
    )
    assert options.limits == TriggerLimits(100, 2000, 10, 30_000)
    assert options.subscription == "etl"
    assert options.read.min_partitions == 4


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("250", 250),
        ("250ms", 250),
        ("1 S", 1000),
        ("15m", 900_000),
        ("2 min", 120_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
    ],
)
def test_times_have_units(text: str, delay_ms: int) -> None:
    given = PLAIN | {"minOffsetsPerTrigger": "1", "maxTriggerDelay": text}
    assert parse_stream_options(given).limits.max_delay_ms == delay_ms


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' is no whole number from 1"),
        ({"maxBytesPerTrigger": "1k"}, "'maxBytesPerTrigger' is no whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "more than maxOffsetsPerTrig"),
        ({"maxTriggerDelay": "1s"}, "no effect without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "8d"}, "no time up to a week"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "0s"}, "no time up to a week"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "1 year"}, "no time up to a week"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "-1s"}, "no time up to a week"),
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads"),
        ({"pushFilters": "true"}, "'pushFilters' is for batch reads"),
        ({"endingTimestamp": "1"}, "'endingTimestamp' is for batch reads"),
        ({"view": "compacted"}, "'view' is for batch reads"),
        ({"targetPartitionBytes": "1"}, "'targetPartitionBytes' is for batch reads"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(FencelogError, match=named) as error:
        parse_stream_options(PLAIN | given)
    assert error.value.code is ErrorCode.BAD_REQUEST


def test_a_batch_read_refuses_the_options_of_streams() -> None:
    assert parse_batch_options(PLAIN).starting == Bound(End.EARLIEST)
    with pytest.raises(FencelogError, match="'subscription' is for streams"):
        parse_batch_options(PLAIN | {"subscription": "s"})
