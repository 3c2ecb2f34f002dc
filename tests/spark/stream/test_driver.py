"""A stream from trigger to trigger, over a scripted service and a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.planner import ScanTask
from fencelog.spark_connector.planning.segments import PartitionSegments
from fencelog.spark_connector.stream.admission_core import NO_LIMITS, TriggerLimits
from fencelog.spark_connector.stream.driver import (
    CURSOR_INTERVAL_S,
    LONGEST_PAUSE_S,
    StreamDriver,
)
from fencelog.spark_connector.stream.options import StreamOptions
from fencelog.spark_connector.stream.position_core import StreamPosition
from tests.spark.support.logs import segments

T = "default/t"
READ = ReadOptions(("http://127.0.0.1:1",), (T,))
FOLLOW = StreamOptions(READ, NO_LIMITS, "etl")


def at(*offsets: int, topic_id: str = T) -> StreamPosition:
    return StreamPosition({T: topic_id}, {T: dict(enumerate(offsets))})


@dataclass
class ScriptedService:
    """A topic of some lengths. Notes what it is asked for. ``shown`` and ``shown_id``: the lengths
    and the id that an owner answers with which was replaced and does not know it, unless it has to
    confirm them."""

    lengths: list[int]
    shown: list[int] | None = None
    shown_id: str | None = None
    earliest: int = 0
    topic_id: str = T
    looks: list[StreamPosition | None] = field(default_factory=list)
    known: list[StreamPosition | None] = field(default_factory=list)
    confirmed: int = 0
    cursors: list[tuple[str, StreamPosition]] = field(default_factory=list)
    clock_s: float = 100.0
    slept_s: list[float] = field(default_factory=list)
    is_closed: bool = False

    def starting(self) -> StreamPosition:
        return at(*[self.earliest] * len(self.lengths))

    def segments(
        self,
        start: StreamPosition | None,
        *,
        known: StreamPosition | None = None,
        confirmed: bool = False,
    ) -> list[PartitionSegments]:
        self.looks.append(start)
        self.known.append(known)
        self.confirmed += confirmed
        lengths = self.lengths if confirmed or self.shown is None else self.shown
        topic_id = self.topic_id if confirmed or self.shown_id is None else self.shown_id
        found = [
            segments(
                (length, length * 10),
                partition=number,
                earliest=self.earliest,
                topic_id=topic_id,
            )
            for number, length in enumerate(lengths)
        ]
        if start is None:
            return [replace(each, segments=()) for each in found]
        return [
            replace(each, segments=())
            if each.end_offset <= start.next_offset(T, each.partition)
            else each
            for each in found
        ]

    def move_cursor(self, subscription: str, position: StreamPosition) -> None:
        self.cursors.append((subscription, position))

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.clock_s += seconds

    def close(self) -> None:
        self.is_closed = True


def opened(
    service: ScriptedService,
    options: StreamOptions = FOLLOW,
    limits: TriggerLimits = NO_LIMITS,
    **read: Any,
) -> StreamDriver:
    options = replace(options, limits=limits, read=replace(options.read, **read))
    return StreamDriver(options, service, now=lambda: service.clock_s)


def rows(driver: StreamDriver, start: StreamPosition, end: StreamPosition) -> list[Any]:
    return [
        (found.partition, found.start_offset, found.end_offset)
        for task in driver.tasks(start, end)
        for found in (task.ranges if isinstance(task, ScanTask) else task.reads)
    ]


@pytest.mark.parametrize("through_brokers", [False, True])
def test_a_micro_batch_asks_the_service_once(through_brokers: bool) -> None:
    service = ScriptedService([5, 3])
    driver = opened(service, through_brokers=through_brokers)
    start = driver.begin()
    end = driver.next_end(start, limited=False)
    assert (start, end) == (at(0, 0), at(5, 3))
    assert rows(driver, start, end) == [(0, 0, 5), (1, 0, 3)]
    assert service.looks == [start]
    driver.close()
    assert service.is_closed


def test_a_micro_batch_is_planned_again_from_its_start() -> None:
    """As after a restart: the ends are those of the checkpoint, the log has gone on."""
    service = ScriptedService([9, 9])
    driver = opened(service)
    assert rows(driver, at(2, 3), at(4, 5)) == [(0, 2, 4), (1, 3, 5)]
    assert service.looks == [at(2, 3)]
    assert driver.next_end(at(4, 5), limited=False) == at(9, 9)
    assert rows(driver, at(4, 5), at(9, 9)) == [(0, 4, 9), (1, 5, 9)]
    assert rows(driver, at(2, 3), at(4, 5)) == [(0, 2, 4), (1, 3, 5)]
    assert driver.next_end(at(9, 9), limited=False) == at(9, 9)  # it has nothing before that
    assert rows(driver, at(4, 5), at(9, 9)) == [(0, 4, 9), (1, 5, 9)]


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_a_micro_batch_is_planned_up_to_its_end_though_less_was_there_at_the_last_look(
    fail_on_data_loss: bool,
) -> None:
    service = ScriptedService([5])
    driver = opened(service, fail_on_data_loss=fail_on_data_loss)
    assert driver.next_end(at(0), limited=False) == at(5)
    service.lengths = [9]
    assert rows(driver, at(0), at(9)) == [(0, 0, 9)]


def test_nothing_new_is_the_same_place_and_looked_for_ever_more_rarely() -> None:
    service = ScriptedService([5])
    driver = opened(service)
    for _ in range(12):
        assert driver.next_end(at(5), limited=False) == at(5)
        assert driver.tasks(at(5), at(5)) == []
    assert service.slept_s == sorted(service.slept_s)
    assert service.slept_s[-1] == pytest.approx(LONGEST_PAUSE_S)
    service.lengths = [6]
    assert driver.next_end(at(5), limited=False) == at(6)
    pauses = len(service.slept_s)
    driver.next_end(at(6), limited=False)
    assert len(service.slept_s) == pauses  # a busy topic is asked at once


def test_limits_hold_unless_spark_asks_for_everything() -> None:
    driver = opened(ScriptedService([100, 300]), limits=TriggerLimits(max_offsets=40))
    assert driver.next_end(at(0, 0), limited=True) == at(10, 30)
    assert driver.next_end(at(0, 0), limited=False) == at(100, 300)


def test_few_messages_wait_but_not_for_ever() -> None:
    service = ScriptedService([1])
    driver = opened(service, limits=TriggerLimits(min_offsets=5, max_delay_ms=60_000))
    assert driver.next_end(at(0), limited=True) == at(1)  # the first one does not wait
    service.lengths = [3]
    assert driver.next_end(at(1), limited=True) == at(1)
    service.clock_s += 61
    assert driver.next_end(at(1), limited=True) == at(3)


def test_a_run_with_a_fixed_end_reads_up_to_it_and_no_further() -> None:
    service = ScriptedService([10, 0])
    driver = opened(service, limits=TriggerLimits(max_offsets=6, min_offsets=5))
    driver.fix_end()
    service.lengths = [20, 20, 20]
    ends = [at(0, 0)]
    while (end := driver.next_end(ends[-1], limited=True)) != ends[-1]:
        ends.append(end)
    assert ends == [at(0, 0), at(6, 0), at(10, 0)]


def test_partitions_that_are_added_are_read_from_their_beginning() -> None:
    service = ScriptedService([2])
    driver = opened(service)
    assert driver.next_end(at(1), limited=False) == at(2)
    service.lengths = [2, 4]
    assert driver.next_end(at(2), limited=False) == at(2, 4)
    assert rows(driver, at(2), at(2, 4)) == [(1, 0, 4)]


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
@pytest.mark.parametrize("through_brokers", [False, True])
def test_a_partition_that_is_not_known_everywhere_yet_is_not_left_out(
    through_brokers: bool, fail_on_data_loss: bool
) -> None:
    """The topic got it before the query was restarted, and who is asked lags behind."""
    service = ScriptedService([5])
    read: dict[str, Any] = {
        "through_brokers": through_brokers,
        "fail_on_data_loss": fail_on_data_loss,
    }
    for start, end in ((at(5), at(5, 3)), (at(2, 1), at(5, 3))):
        with pytest.raises(FencelogError, match="partition 1 of default/t") as error:
            opened(service, **read).tasks(start, end)
        assert error.value.code is ErrorCode.READ_UNKNOWN
        assert service.known[-1] == at(5, 3)
    with pytest.raises(FencelogError, match="offset 3 of partition 1 of default/t"):
        opened(service, **read).next_end(at(5, 3), limited=False)
    service.lengths = [5, 4]
    assert rows(opened(service, **read), at(5), at(5, 3)) == [(1, 0, 3)]


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_an_end_without_a_partition_that_was_read_is_refused(fail_on_data_loss: bool) -> None:
    """Of Spark before 4.2, which tells no start: the next batch would read the partition again."""
    service = ScriptedService([5])
    driver = opened(service, fail_on_data_loss=fail_on_data_loss)
    end = driver.last_end()
    assert end == at(5)
    service.lengths = [5, 3]
    for start in (at(5, 3), at(4, 3)):
        with pytest.raises(FencelogError, match="offset 3 of partition 1 of default/t") as error:
            driver.tasks(start, end)
        assert error.value.code is ErrorCode.READ_UNKNOWN


def test_trimmed_messages_end_the_query_or_are_passed_over() -> None:
    service = ScriptedService([9], earliest=5)
    with pytest.raises(FencelogError, match="messages 3 to 4 of partition 0"):
        opened(service).next_end(at(3), limited=False)
    with pytest.raises(FencelogError, match="messages 3 to 4 of partition 0"):
        opened(service).tasks(at(3), at(9))
    tolerant = opened(service, fail_on_data_loss=False)
    assert tolerant.next_end(at(3), limited=False) == at(9)
    assert rows(tolerant, at(3), at(9)) == [(0, 5, 9)]


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_an_owner_that_was_replaced_makes_no_stream_lose_messages(fail_on_data_loss: bool) -> None:
    """A batch of the checkpoint used to be cut to the tail that such an owner showed, and then
    committed without rows that are in the log."""
    service = ScriptedService([12, 5], shown=[9, 5])
    driver = opened(service, fail_on_data_loss=fail_on_data_loss)
    assert rows(driver, at(3, 0), at(12, 5)) == [(0, 3, 12), (1, 0, 5)]
    assert driver.next_end(at(12, 5), limited=False) == at(12, 5)
    assert service.confirmed == 2


def test_ends_are_confirmed_only_where_nothing_is_known_of_them() -> None:
    service = ScriptedService([12], shown=[9])
    driver = opened(service)
    assert driver.last_end() == at(12)
    assert (driver.next_end(at(3), limited=False), service.confirmed) == (at(9), 1)
    assert rows(driver, at(3), at(9)) == [(0, 3, 9)]
    assert service.confirmed == 1


def test_a_fixed_end_is_reached_though_an_owner_that_was_replaced_shows_less() -> None:
    """Nothing new at its tail would be the end of the run."""
    service = ScriptedService([12])
    driver = opened(service)
    driver.fix_end()
    service.shown = [9]
    assert driver.next_end(at(9), limited=False) == at(12)
    assert rows(driver, at(9), at(12)) == [(0, 9, 12)]
    assert driver.next_end(at(12), limited=False) == at(12)
    assert service.known[-1] == at(12)
    assert service.confirmed == 3


def test_an_end_beyond_a_confirmed_one_ends_the_query_or_is_passed_over() -> None:
    """A tail never falls, so this is the log of a backup, which lacks what came after it."""
    service = ScriptedService([9])
    with pytest.raises(FencelogError, match="up to offset 12, it ends at 9") as error:
        opened(service).tasks(at(3), at(12))
    assert (error.value.code, service.confirmed) == (ErrorCode.OFFSET_BEYOND_TAIL, 1)
    with pytest.raises(FencelogError, match="up to offset 12, it ends at 9"):
        opened(service).next_end(at(12), limited=False)
    assert rows(opened(service, fail_on_data_loss=False), at(3), at(12)) == [(0, 3, 9)]
    assert service.confirmed == 3


def test_the_cursor_stays_within_the_log_of_a_backup() -> None:
    """A seek beyond the end would be refused, and the query end at every start."""
    service = ScriptedService([9, 20])
    driver = opened(service, fail_on_data_loss=False)
    assert driver.next_end(at(12, 3), limited=False) == at(12, 20)
    assert service.cursors == [("etl", at(9, 3))]


def test_another_topic_of_the_same_name_is_never_read() -> None:
    service = ScriptedService([9], topic_id="new")
    driver = opened(service, fail_on_data_loss=False)
    for call in (
        lambda: driver.next_end(at(3), limited=False),
        lambda: driver.tasks(at(3), at(9)),
        lambda: driver.tasks(at(3), at(9, topic_id="new")),
    ):
        with pytest.raises(FencelogError, match=f"with id {T}, now its id is new"):
            call()
    assert service.cursors == []


def test_a_stream_whose_last_topic_was_deleted_waits_for_others_or_ends() -> None:
    service = ScriptedService([])
    with pytest.raises(FencelogError, match="topic default/t of the stream was deleted"):
        opened(service).next_end(at(3), limited=False)
    assert opened(service, fail_on_data_loss=False).next_end(at(3), limited=False) == at(3)


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_the_predecessor_of_a_topic_is_taken_for_no_successor(fail_on_data_loss: bool) -> None:
    """A broker that lags behind knows the topic that had the name before: the query ended, and was
    to be given a new checkpoint."""
    service = ScriptedService([9], shown=[20], shown_id="old")
    driver = opened(service, fail_on_data_loss=fail_on_data_loss)
    assert driver.next_end(at(3), limited=False) == at(9)
    assert rows(driver, at(3), at(9)) == [(0, 3, 9)]
    assert rows(opened(service), StreamPosition({}, {}), at(9)) == [(0, 0, 9)]


def test_the_cursor_follows_what_was_processed_at_intervals() -> None:
    service = ScriptedService([5])
    driver = opened(service)
    start = driver.begin()
    driver.next_end(start, limited=False)
    driver.acknowledge(at(2))
    assert service.cursors == [("etl", at(0))]  # too soon after the first one
    service.clock_s += CURSOR_INTERVAL_S
    driver.acknowledge(at(3))
    assert service.cursors == [("etl", at(0)), ("etl", at(3))]


def test_the_cursor_is_moved_to_a_fixed_end_at_once() -> None:
    service = ScriptedService([5])
    driver = opened(service)
    driver.fix_end()
    end = driver.next_end(at(0), limited=False)
    assert driver.next_end(end, limited=False) == end
    assert service.cursors[-1] == ("etl", at(5))


def test_no_subscription_has_no_cursor() -> None:
    service = ScriptedService([5])
    driver = opened(service, replace(FOLLOW, subscription=None))
    driver.acknowledge(driver.begin())
    assert service.cursors == []


def test_progress_tells_how_far_behind_the_stream_is() -> None:
    service = ScriptedService([50, 50])
    driver = opened(service, limits=TriggerLimits(max_offsets=10))
    assert driver.progress() is None
    driver.next_end(at(0, 0), limited=True)
    progress = driver.progress()
    assert progress == at(50, 50).members() | {"messagesBehind": 90}


def test_spark_that_tells_no_start_gets_the_ends() -> None:
    """PySpark before 4.2."""
    service = ScriptedService([5, 3])
    driver = opened(service)
    assert driver.last_end() == at(5, 3)
    assert service.looks == [None]
    service.lengths = [7, 3]
    assert driver.last_end() == at(7, 3)
    assert service.looks[-1] == at(5, 3)
    assert rows(driver, at(5, 3), at(7, 3)) == [(0, 5, 7)]
    with pytest.raises(FencelogError, match=r"PySpark before 4\.2 does not support limits"):
        opened(service, limits=TriggerLimits(max_bytes=9)).last_end()


def test_an_end_below_the_start_is_a_loss_though_there_is_nothing_to_read() -> None:
    """The end that Spark before 4.2 is given of the log of a backup: without a word the query would
    go on from there, with other messages under offsets that it has read."""
    service = ScriptedService([3])
    driver = opened(service)
    end = driver.last_end()
    assert end == at(3)
    with pytest.raises(FencelogError, match="up to offset 5, it ends at 3") as error:
        driver.tasks(at(5), end)
    assert error.value.code is ErrorCode.OFFSET_BEYOND_TAIL
    assert opened(service, fail_on_data_loss=False).tasks(at(5), end) == []


def test_the_end_of_another_topic_is_refused_though_there_is_nothing_to_read() -> None:
    """The place that Spark before 4.2 is given for a checkpoint of another topic."""
    driver = opened(ScriptedService([0]))
    other = StreamPosition({"default/other": "id"}, {"default/other": {0: 7}})
    with pytest.raises(FencelogError, match="the checkpoint is of topic default/other"):
        driver.tasks(other, at(0))
    with pytest.raises(FencelogError, match="now its id is new"):
        driver.tasks(at(0), at(0, topic_id="new"))
    assert driver.tasks(at(0), at(0)) == []


def test_a_micro_batch_that_is_planned_acknowledges_what_was_before_it() -> None:
    service = ScriptedService([9])
    opened(service).tasks(at(4), at(9))
    assert service.cursors == [("etl", at(4))]


def test_a_batch_that_is_repeated_reads_no_other_topic_that_appeared_in_it() -> None:
    """Its topic is in the end alone, was deleted since, and another one has its name."""
    service = ScriptedService([10], topic_id="new")
    start, end = StreamPosition({}, {}), at(10, topic_id="old")
    with pytest.raises(FencelogError, match="deleted and created again") as raised:
        opened(service).tasks(start, end)
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    assert opened(ScriptedService([10], topic_id="old")).tasks(start, end)


@pytest.mark.parametrize("end", [at(3), at(5)])
def test_a_first_batch_is_repeated_though_partitions_were_added_since(end: StreamPosition) -> None:
    """Spark has no start of it in the checkpoint, and asks where the query begins: by now that has
    a partition more than the end. It was taken for one that a broker does not show, and the query
    could not be started again."""
    service = ScriptedService([5, 4])
    driver = opened(service)
    start = driver.begin()
    assert start == at(0, 0)
    assert rows(driver, start, end) == [(0, 0, end.next_offset(T, 0))]
    assert driver.next_end(end, limited=False) == at(5, 4)
    assert rows(driver, end, at(5, 4))[-1] == (1, 0, 4)


def test_a_first_batch_that_ends_before_the_query_begins_by_now_has_no_rows() -> None:
    """As from ``latest`` on. The next one begins at its end, and so does the cursor: with PySpark
    before 4.2 the run may be over."""
    service = ScriptedService([9])
    service.starting = lambda: at(9)  # type: ignore[method-assign]  # of this service
    driver = opened(service)
    assert rows(driver, driver.begin(), at(5)) == []
    assert service.cursors == [("etl", at(9)), ("etl", at(5))]
    assert driver.next_end(at(5), limited=False) == at(9)
    assert rows(driver, at(5), at(9)) == [(0, 5, 9)]
