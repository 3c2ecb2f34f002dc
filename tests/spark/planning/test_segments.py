"""The owner's answer: parsed into values, and refused where it has a hole."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from fencelog.api.client.retry import is_transient
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import new_metadata, to_json
from fencelog.spark_connector.planning.segments import check_one_topic_each, parse_segments
from tests.spark.support.logs import segments

CLOSED = new_metadata(
    7, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
).closed(last_entry_id=4, length=900)
OPEN = new_metadata(8, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="u")


def segment(base: int, messages: int, entries: int, ledger: Any, **extra: Any) -> dict[str, Any]:
    fields = {"base_offset": base, "messages": messages, "first_entry": 0}
    return fields | {"last_entry": entries - 1, "ledger": to_json(ledger)} | extra


ANSWER: dict[str, Any] = {
    "partition": 3,
    "topic_id": "id-t",
    "earliest_offset": 10,
    "end_offset": 62,
    "segments": [
        segment(10, 50, 5, CLOSED),
        segment(60, 2, 1, OPEN, bytes=33),
        segment(62, 0, 0, OPEN),
    ],
    "bookies": {"b1": "127.0.0.1:3181"},
}


def test_the_answer_becomes_values() -> None:
    answer = parse_segments("t", ANSWER)
    assert (answer.partition, answer.earliest_offset, answer.end_offset) == (3, 10, 62)
    first, second = answer.segments
    assert (first.ledger, first.end_offset, first.entries, first.size_bytes) == (CLOSED, 60, 5, 900)
    assert (second.ledger, second.messages, second.size_bytes) == (OPEN, 2, 33)
    assert answer.bookies == {"b1": "127.0.0.1:3181"}


def test_an_answer_from_an_offset_begins_later() -> None:
    later = ANSWER | {"segments": ANSWER["segments"][1:]}
    (only,) = parse_segments("t", later, from_offset=60).segments
    assert only.base_offset == 60
    for offset in (10, 59):
        with pytest.raises(FencelogError, match="segments cover 60 to 62"):
            parse_segments("t", later, from_offset=offset)
    ends = parse_segments("t", ANSWER | {"segments": []}, from_offset=1 << 62)
    assert (ends.topic_id, ends.end_offset, ends.segments) == ("id-t", 62, ())


def test_an_empty_log_has_no_segments() -> None:
    answer = parse_segments("t", ANSWER | {"segments": [], "end_offset": 10})
    assert answer.segments == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("segments", 1, "base_offset"), 61),
        (("segments", 0, "base_offset"), 11),
        (("segments", 1, "messages"), 1),
        (("end_offset",), 63),
        (("segments",), []),
        (("segments", 0, "ledger"), {}),
        (("bookies",), None),
        (("partition",), "x"),
    ],
)
def test_an_answer_with_a_hole_is_refused(path: tuple[str | int, ...], value: Any) -> None:
    answer: Any = deepcopy(ANSWER)
    place = answer
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(FencelogError) as raised:
        parse_segments("t", answer)
    assert raised.value.code is ErrorCode.CORRUPT


def test_a_publish_time_of_a_whole_segment_is_kept() -> None:
    told = ANSWER | {"segments": [segment(10, 52, 5, CLOSED, publish_time=77)]}
    (found,) = parse_segments("t", told).segments
    assert found.publish_time_us == 77
    assert parse_segments("t", ANSWER).segments[0].publish_time_us is None


def test_a_topic_that_changes_while_it_is_asked_is_asked_again() -> None:
    """Its partitions are asked one after the other."""
    first, second = segments((1, 1), partition=0), segments((1, 1), partition=1)
    other = segments((1, 1), topic="default/other")
    check_one_topic_each([first, second, other])
    for answers in (
        [first, replace(second, topic_id="new")],
        [replace(first, topic_id="new"), second],
    ):
        with pytest.raises(FencelogError, match="created again") as raised:
            check_one_topic_each(answers)
        assert raised.value.code is ErrorCode.READ_UNKNOWN
        assert is_transient(raised.value)
