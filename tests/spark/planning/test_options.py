"""Options of a read: what is understood, and what is refused by name."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.offsets import AtTime, Bound, End, Position
from fencelog.spark_connector.planning.options import (
    DEFAULT_TARGET_PARTITION_BYTES,
    ReadOptions,
    parse_options,
)

GIVEN = {"server": "http://127.0.0.1:8080", "topic": "logs/linux"}


def at(positions: dict[int, Position]) -> Bound:
    return Bound(End.EARLIEST, {"logs/linux": positions})


def test_server_and_topic_are_enough() -> None:
    options = parse_options(GIVEN)
    assert options == ReadOptions(("http://127.0.0.1:8080",), ("logs/linux",))
    assert options.starting == Bound(End.EARLIEST)
    assert options.ending == Bound(End.LATEST)
    assert options.reads_locally
    assert options.target_partition_bytes == DEFAULT_TARGET_PARTITION_BYTES


def test_names_are_compared_without_case_and_values_trimmed() -> None:
    options = parse_options(
        {
            "SERVER": " http://a:1/ , http://b:2 ",
            "Topic": "orders",
            "failOnDataLoss": " False ",
            "StartingOffsets": ' {"0": 7, "3": 0} ',
            "ENDINGOFFSETS": "Latest",
            "minPartitions": " 12 ",
            "targetpartitionbytes": "1000",
            "IncludeHeaders": "FALSE",
            "LOCALREADS": "false",
        }
    )
    assert options.servers == ("http://a:1", "http://b:2")
    assert options.topics == ("default/orders",)
    assert options.starting == Bound(End.EARLIEST, {"default/orders": {0: 7, 3: 0}})
    assert options.min_partitions == 12
    assert options.target_partition_bytes == 1000
    assert not options.include_headers
    assert not options.reads_locally
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("changed", "starting"),
    [
        ({"startingOffsets": "latest"}, Bound(End.LATEST)),
        ({"startingOffsets": '{"2": -1, "3": -2}'}, at({2: End.LATEST, 3: End.EARLIEST})),
        ({"startingOffsets": '{"logs/linux": {"2": 9}}'}, at({2: 9})),
        ({"startingOffsets": "{}"}, at({})),
        ({"startingTimestamp": "1700000000123"}, Bound(AtTime(1_700_000_000_123_000))),
        ({"startingTimestamp": "1970-01-01T01:00:01+01:00"}, Bound(AtTime(1_000_000))),
        ({"startingTimestamp": '{"0": 5, "1": "7"}'}, at({0: AtTime(5000), 1: AtTime(7000)})),
    ],
)
def test_a_read_begins_by_offset_or_by_time(changed: dict[str, str], starting: Bound) -> None:
    assert parse_options(GIVEN | changed).starting == starting


def test_the_way_to_the_messages_is_chosen() -> None:
    plain = parse_options(GIVEN)
    assert not plain.through_brokers
    assert not plain.is_compacted
    assert plain.secret_file is None
    chosen = parse_options(
        GIVEN | {"readMode": "Broker", "view": "compacted", "secretFile": " /etc/secret "}
    )
    assert chosen.through_brokers
    assert chosen.is_compacted
    assert chosen.secret_file == "/etc/secret"


def test_several_topics_are_named_or_matched() -> None:
    several = parse_options({"server": "http://a:1", "topics": "b, logs/a,default/b"})
    assert several.topics == ("default/b", "logs/a")
    assert several.shows_topic
    assert several.what == "topics default/b, logs/a"
    assert not parse_options(GIVEN).shows_topic
    pattern = parse_options({"server": "http://a:1", "topicsPattern": "x|y.*"})
    assert pattern.topics_pattern == "x|y.*"
    assert pattern.topics == ()
    both = parse_options(
        {
            "server": "http://a:1",
            "topicsPattern": "logs/.*",
            "endingOffsets": '{"logs/a": {"0": 1}, "b": {"1": 2}}',
        }
    )
    assert both.topics_pattern == "logs/.*"
    assert both.ending == Bound(End.LATEST, {"logs/a": {0: 1}, "default/b": {1: 2}})


@pytest.mark.parametrize(
    ("pattern", "selected", "others"),
    [
        ("x|y.*", ["default/x", "default/yy"], ["default/xx", "logs/x", "default/x/y", "x"]),
        ("logs/.*|y", ["logs/a"], ["default/logs", "default/y", "a/logs/a"]),
        ("(?i)Orders", ["default/orders", "default/ORDERS"], ["Default/orders", "logs/orders"]),
        ("(?x) orders  # all of them", ["default/orders"], ["default/orders2"]),
    ],
)
def test_a_pattern_matches_whole_names_as_it_was_given(
    pattern: str, selected: list[str], others: list[str]
) -> None:
    options = parse_options({"server": "http://a:1", "topicsPattern": pattern})
    assert options.what == f"topics like {pattern}"
    assert [name for name in (*selected, *others) if options.selects(name)] == selected


def test_named_topics_are_selected_alone() -> None:
    options = parse_options(GIVEN)
    assert options.selects("logs/linux")
    assert not options.selects("logs/linux2")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"quux": "1"}, "unknown option 'quux' (options: server, topic,"),
        ({"topic": ""}, "option 'topic' is missing"),
        ({"server": ""}, "option 'server' is missing"),
        ({"server": "127.0.0.1:8080"}, "'127.0.0.1:8080'"),
        ({"server": "http://a:1,ftp://b"}, "'ftp://b'"),
        (
            {"server": "http://[::1"},
            "option 'server' is no URL like http://127.0.0.1:8080: 'http://[",
        ),
        ({"server": "http://a:99999"}, "option 'server' is no URL"),
        ({"topic": "a/b/c"}, "'a/b/c'"),
        ({"topic": "/b"}, "'/b'"),
        ({"topic": "a/"}, "'a/'"),
        ({"startingOffsets": "soon"}, "option 'startingOffsets'"),
        ({"startingOffsets": "[1]"}, "option 'startingOffsets'"),
        ({"endingOffsets": '{"0": -3}'}, "partition '0' has -3"),
        ({"endingOffsets": '{"0": true}'}, "partition '0' has True"),
        ({"endingOffsets": '{"x": 1}'}, "partition 'x' has 1"),
        ({"endingOffsets": '{"0": 1'}, "option 'endingOffsets' is not earliest, latest or JSON"),
        ({"endingOffsets": '{"0": 1, "0": 2}'}, "a member is repeated"),
        ({"endingOffsets": '{"0": 1, "00": 2}'}, 'names partition 0 twice: \'{"0": 1, "00": 2}\''),
        (
            {"endingTimestamp": '{"07": 1, "7": 1}'},
            "option 'endingTimestamp' names partition 7 twice",
        ),
        (
            {"topic": "a", "endingOffsets": '{"a": {"0": 1}, "default/a": {"1": 2}}'},
            "option 'endingOffsets' names topic default/a twice",
        ),
        ({"endingOffsets": '{"a": {"0": 1}}'}, "names topic default/a, which is not read"),
        ({"endingOffsets": '{"logs/linux": {"0": 1}, "x": 2}'}, "names topic default/x"),
        ({"endingTimestamp": "yesterday"}, "option 'endingTimestamp' is not a time"),
        ({"endingTimestamp": "2026-11-22T10:00:00"}, "'2026-11-22T10:00:00'"),
        ({"endingTimestamp": '{"0": 1.5}'}, "partition '0' has 1.5"),
        ({"endingTimestamp": "1", "endingOffsets": "latest"}, "exclude each other"),
        ({"topics": "a,b"}, "options 'topic' and 'topics' exclude each other"),
        ({"topic": "", "topics": "a,,b"}, "option 'topics' is neither"),
        ({"topic": "", "topics": "a,b", "endingOffsets": '{"0": 1}'}, "names no topic"),
        ({"topic": "", "topicsPattern": "("}, "option 'topicsPattern' is no regular expression"),
        ({"minPartitions": "0"}, "option 'minPartitions'"),
        ({"minPartitions": "-3"}, "option 'minPartitions'"),
        ({"minPartitions": "9" * 5000}, "option 'minPartitions' is no whole number"),
        ({"startingTimestamp": "9" * 5000}, "option 'startingTimestamp' is not a time"),
        ({"startingOffsets": f'{{"{"9" * 5000}": 7}}'}, "option 'startingOffsets' is not earliest"),
        ({"startingOffsets": f'{{"0": {"9" * 5000}}}'}, "option 'startingOffsets' is not earliest"),
        ({"readMode": "fast"}, "option 'readMode' is none of direct, broker: 'fast'"),
        ({"view": "all"}, "option 'view' is none of log, compacted: 'all'"),
        ({"failOnDataLoss": "no"}, "option 'failOnDataLoss' is none of true, false: 'no'"),
        ({"targetPartitionBytes": "64m"}, "option 'targetPartitionBytes'"),
        ({"includeHeaders": "yes"}, "option 'includeHeaders'"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, str], named: str) -> None:
    with pytest.raises(FencelogError) as raised:
        parse_options(GIVEN | changed)
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert named in raised.value.detail
