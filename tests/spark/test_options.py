"""Options of a read: what is understood, and what is refused by name."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.options import (
    DEFAULT_TARGET_PARTITION_BYTES,
    Bound,
    ReadOptions,
    parse_options,
)

GIVEN = {"server": "http://127.0.0.1:8080", "topic": "logs/linux"}


def test_server_and_topic_are_enough() -> None:
    options = parse_options(GIVEN)
    assert options == ReadOptions(("http://127.0.0.1:8080",), "logs/linux")
    assert options.starting == Bound("earliest")
    assert options.ending == Bound("latest")
    assert options.target_partition_bytes == DEFAULT_TARGET_PARTITION_BYTES


def test_names_are_compared_without_case_and_values_trimmed() -> None:
    options = parse_options(
        {
            "SERVER": " http://a:1/ , http://b:2 ",
            "Topic": "orders",
            "StartingOffsets": ' {"0": 7, "3": 0} ',
            "ENDINGOFFSETS": "Latest",
            "partitions": " 12 ",
            "targetpartitionbytes": "1000",
            "IncludeHeaders": "FALSE",
        }
    )
    assert options.servers == ("http://a:1", "http://b:2")
    assert options.topic == "default/orders"
    assert options.starting == Bound("earliest", {0: 7, 3: 0})
    assert options.partitions == 12
    assert options.target_partition_bytes == 1000
    assert not options.include_headers


def test_a_bound_falls_back_for_partitions_it_does_not_name() -> None:
    bound = Bound("latest", {1: 5})
    assert bound.of(1, earliest=2, latest=9) == 5
    assert bound.of(0, earliest=2, latest=9) == 9
    assert Bound("earliest").of(0, earliest=2, latest=9) == 2


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"quux": "1"}, "unknown option 'quux' (options: server, topic,"),
        ({"topic": ""}, "option 'topic' is missing"),
        ({"server": ""}, "option 'server' is missing"),
        ({"server": "127.0.0.1:8080"}, "'127.0.0.1:8080'"),
        ({"server": "http://a:1,ftp://b"}, "'ftp://b'"),
        ({"topic": "a/b/c"}, "'a/b/c'"),
        ({"topic": "/b"}, "'/b'"),
        ({"topic": "a/"}, "'a/'"),
        ({"startingOffsets": "soon"}, "option 'startingOffsets'"),
        ({"startingOffsets": "[1]"}, "option 'startingOffsets'"),
        ({"endingOffsets": '{"0": -1}'}, "partition '0' has offset -1"),
        ({"endingOffsets": '{"0": true}'}, "partition '0' has offset True"),
        ({"endingOffsets": '{"x": 1}'}, "partition 'x' has offset 1"),
        ({"partitions": "0"}, "option 'partitions'"),
        ({"partitions": "-3"}, "option 'partitions'"),
        ({"targetPartitionBytes": "64m"}, "option 'targetPartitionBytes'"),
        ({"includeHeaders": "yes"}, "option 'includeHeaders'"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, str], named: str) -> None:
    with pytest.raises(FencelogError) as raised:
        parse_options(GIVEN | changed)
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert named in raised.value.detail
