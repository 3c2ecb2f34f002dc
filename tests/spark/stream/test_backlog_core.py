"""What a stream has not read, and whether it may go on: losses, other topics, new partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.stream.backlog_core import (
    Backlog,
    backlogs,
    check_complete,
    check_partitions,
    check_topics,
    covers,
    ends_of,
    is_doubtful,
    within,
)
from fencelog.spark_connector.stream.position_core import StreamPosition
from tests.spark.support.logs import segments

T = "default/t"
OPTIONS = ReadOptions(("http://127.0.0.1:1",), (T,))
PATTERN = replace(OPTIONS, topics=(), topics_pattern="default/.*")


def at(*offsets: int, topic: str = T) -> StreamPosition:
    return StreamPosition({topic: topic}, {topic: dict(enumerate(offsets))})


def test_a_backlog_is_measured_ledger_by_ledger() -> None:
    backlog = Backlog(segments((10, 100), (10, 10_000), (10, 0)), 5, 25)
    assert (backlog.messages, backlog.size_bytes) == (20, 50 + 10_000 + 5)
    assert Backlog(segments((10, 100), (10, 100)), 12, 14).size_bytes == 20
    assert backlog.messages_within(0) == 0
    assert backlog.messages_within(49) == 4
    assert backlog.messages_within(50) == 5
    assert backlog.messages_within(50 + 3_500) == 8
    assert backlog.messages_within(1 << 40) == 20


def test_new_partitions_and_topics_are_read_from_their_beginning() -> None:
    answers = [
        segments((5, 50)),
        segments((3, 30), partition=1),
        segments((2, 20), topic="default/u"),
        segments(topic="default/v"),
    ]
    found = [
        (b.partition.topic, b.partition.partition, b.start, b.end)
        for b in backlogs(at(4), answers, None)
    ]
    assert found == [(T, 0, 4, 5), (T, 1, 0, 3), ("default/u", 0, 0, 2)]


def test_nothing_is_read_beyond_the_end_that_was_fixed() -> None:
    answers = [segments((5, 50)), segments((3, 30), partition=1), segments((9, 1), partition=2)]
    found = [(b.start, b.end) for b in backlogs(at(4, 0, 9), answers, {T: {0: 4, 1: 2}})]
    assert found == [(0, 2)]


def test_what_was_trimmed_is_left_out() -> None:
    answer = segments((5, 50), first=10, earliest=12)
    assert [(b.start, b.end) for b in backlogs(at(3), [answer], None)] == [(12, 15)]
    assert backlogs(at(20), [answer], None) == []


@pytest.mark.parametrize(
    ("start", "answers", "code", "named"),
    [
        (at(3), [segments((5, 9), first=10, earliest=12)], "OFFSET_TRIMMED", "messages 3 to 11"),
        (at(3), [segments((2, 9))], "OFFSET_BEYOND_TAIL", "up to offset 3, it ends at 2"),
        (at(0), [segments(topic="default/u")], "TOPIC_NOT_FOUND", f"topic {T} of the stream"),
        (
            at(0),
            [segments(), segments((1, 1), partition=1, first=5, earliest=5)],
            "OFFSET_TRIMMED",
            "messages 0 to 4 of partition 1",
        ),
    ],
)
def test_a_loss_is_named(
    start: StreamPosition, answers: list[object], code: str, named: str
) -> None:
    with pytest.raises(FencelogError, match=named) as error:
        check_complete(start, answers)  # type: ignore[arg-type]  # parametrize has one list for all
    assert error.value.code is ErrorCode[code]
    assert "failOnDataLoss=false" in error.value.detail


def test_a_log_that_has_everything_is_complete() -> None:
    check_complete(at(10), [segments((5, 9), first=10, earliest=10)])
    check_complete(at(15), [segments((5, 9), first=10, earliest=12)])
    check_complete(at(0), [segments(), segments((1, 1), topic="default/new")])


def test_a_partition_that_is_missing_is_no_loss() -> None:
    """A topic never gets fewer: who was asked does not know it yet."""
    check_partitions(at(4, 3), at(4, 0, 7))
    check_partitions(at(4, 3), at(9, topic="default/other"))  # a topic that was deleted is another
    with pytest.raises(FencelogError, match=f"offset 0 of partition 1 of {T}") as error:
        check_partitions(at(4, 0, 2), at(9))
    assert error.value.code is ErrorCode.READ_UNKNOWN


def test_another_topic_of_the_same_name_is_refused_with_both_ids() -> None:
    check_topics(at(0), {T: T, "default/u": "9"}, OPTIONS)
    check_topics(at(0), {}, OPTIONS)  # deleted: a loss, which may be tolerated
    with pytest.raises(FencelogError, match=f"with id {T}, now its id is 77") as error:
        check_topics(at(0), {T: "77"}, OPTIONS)
    assert error.value.code is ErrorCode.TOPIC_NOT_FOUND


def test_a_topic_that_the_query_does_not_read_is_refused() -> None:
    with pytest.raises(
        FencelogError, match="checkpoint is of topic other/x, the query reads topic"
    ):
        check_topics(at(0, topic="other/x"), {}, OPTIONS)
    with pytest.raises(FencelogError, match="reads topics like default"):
        check_topics(at(0, topic="other/x"), {}, PATTERN)


def test_an_answer_that_contradicts_what_was_known_is_doubtful() -> None:
    answers = [segments((5, 50)), segments((3, 30), partition=1)]
    assert is_doubtful(answers, at(6, 0))
    assert not is_doubtful(answers, at(5, 3))
    assert not is_doubtful(answers, at(1, 1, 9))  # a partition without an answer is no short one
    assert not is_doubtful(answers, at(9, topic="default/deleted"))
    assert is_doubtful(answers, replace(at(1), ids={T: "another"}))


def test_a_position_is_kept_within_what_there_is() -> None:
    answers = [segments((5, 5)), segments((9, 9), partition=1)]
    assert within(at(7, 3), answers) == at(5, 3)
    assert within(at(7, 3, 4), answers) == at(5, 3, 4)  # a partition without an answer stays
    gone = at(7, topic="default/deleted")
    assert within(gone, answers) == gone


def test_answers_cover_an_end_that_they_reach() -> None:
    answers = [segments((5, 50)), segments((3, 30), partition=1)]
    assert ends_of(answers) == StreamPosition({T: T}, {T: {0: 5, 1: 3}})
    assert covers(answers, at(5, 3))
    assert not covers(answers, at(5, 4))
    assert not covers(answers, at(1, 1, 1))
    assert covers(answers, at(0, 0, 0))
