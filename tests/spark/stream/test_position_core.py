"""Positions of a stream: their text is canonical, and that of anything else is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.stream.position_core import StreamPosition, parse_position

HERE = StreamPosition({"a/t": "1", "a/u": "2"}, {"a/u": {1: 5, 0: 7}, "a/t": {0: 3}})

positions = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 30), st.integers(0, 1 << 60), max_size=12),
    max_size=4,
).map(lambda offsets: StreamPosition({topic: f"id of {topic}" for topic in offsets}, offsets))


def test_the_form() -> None:
    assert json.dumps(HERE.members()) == (
        '{"version": 1, "ids": {"a/t": "1", "a/u": "2"}, '
        '"offsets": {"a/t": {"0": 3}, "a/u": {"0": 7, "1": 5}}}'
    )


@given(positions, st.randoms(use_true_random=False))
def test_equal_positions_have_equal_text(position: StreamPosition, chance: Any) -> None:
    text = json.dumps(position.members())
    assert parse_position(json.loads(text)) == position
    topics = list(position.offsets)
    chance.shuffle(topics)
    shuffled = {
        topic: dict(chance.sample(sorted(each.items()), len(each)))
        for topic in topics
        if (each := position.offsets[topic]) is not None
    }
    ids = {topic: position.ids[topic] for topic in topics}
    assert json.dumps(StreamPosition(ids, shuffled).members()) == text


def test_a_partition_that_is_new_begins_at_its_first_message() -> None:
    assert HERE.next_offset("a/u", 1) == 5
    assert HERE.next_offset("a/u", 2) == 0
    assert HERE.next_offset("a/new", 0) == 0


def test_a_position_up_to_another_has_what_is_in_both() -> None:
    end = StreamPosition({"a/u": "2", "a/v": "3"}, {"a/u": {0: 4, 1: 9, 2: 1}, "a/v": {0: 1}})
    assert HERE.up_to(end) == StreamPosition({"a/u": "2"}, {"a/u": {0: 4, 1: 5}})
    assert HERE.up_to(HERE) == HERE


def test_more_members_are_ignored() -> None:
    assert parse_position(HERE.members() | {"messagesBehind": 9}) == HERE


@pytest.mark.parametrize(
    "members",
    [
        None,
        [],
        {},
        {"topic-0": {"0": 1}},  # Kafka's
        HERE.members() | {"version": 2},
        HERE.members() | {"ids": {"a/t": "1"}},
        HERE.members() | {"ids": {"a/t": "1", "a/u": 2}},
        HERE.members() | {"ids": None},
        HERE.members() | {"offsets": {"a/t": {"0": -1}, "a/u": {}}},
        HERE.members() | {"offsets": 7},
    ],
)
def test_the_checkpoint_of_another_source_is_refused(members: Any) -> None:
    with pytest.raises(FencelogError, match="the checkpoint is none of a fencelog stream") as error:
        parse_position(members)
    assert error.value.code is ErrorCode.BAD_REQUEST


def test_two_positions_are_joined_by_the_later_offset_of_each_partition() -> None:
    one = StreamPosition({"a": "1", "b": "2"}, {"a": {0: 5, 1: 3}, "b": {0: 1}})
    two = StreamPosition({"a": "9", "c": "4"}, {"a": {0: 4, 1: 6, 2: 0}, "c": {0: 2}})
    assert one.joined(two) == StreamPosition(
        {"a": "1", "b": "2", "c": "4"}, {"a": {0: 5, 1: 6, 2: 0}, "b": {0: 1}, "c": {0: 2}}
    )
    assert one.joined(one) == one
