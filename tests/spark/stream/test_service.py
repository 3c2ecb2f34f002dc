"""The requests of a stream to the service: for how long they are repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.service import TopicRanges
from fencelog.spark_connector.stream import service as service_module
from fencelog.spark_connector.stream.position_core import StreamPosition
from fencelog.spark_connector.stream.service import TopicFollower

T = "default/t"
OPTIONS = ReadOptions(("http://127.0.0.1:1",), (T,))
PATTERN = replace(OPTIONS, topics=(), topics_pattern="default/.*")


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_start_during_a_takeover_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch, is_reached: bool
) -> None:
    """A service that cannot be reached is another thing."""
    monkeypatch.setattr(service_module, "FIRST_ANSWER_S", 0.2)
    asked: list[None] = []

    async def answering(servers: Any) -> Any:
        if not is_reached:
            raise FencelogError(ErrorCode.NO_OWNER, "no server answers")
        return tuple(servers)

    async def taken_over(*_: Any) -> TopicRanges:
        asked.append(None)
        if len(asked) < 5:  # 0.75 s later
            raise FencelogError(ErrorCode.NO_OWNER, "the partition is being taken over")
        return TopicRanges([], {})

    monkeypatch.setattr(service_module, "servers_that_answer", answering)
    monkeypatch.setattr(service_module, "fetch_with", taken_over)
    follower = TopicFollower(OPTIONS)
    try:
        if is_reached:
            assert follower.starting() == StreamPosition({}, {})
        else:
            with pytest.raises(FencelogError, match="no server answers"):
                follower.starting()
            assert asked == []
    finally:
        follower.close()


# -- partitions that are not known everywhere yet --------------------------------------------------


@dataclass
class Brokers:
    """The client of a service with one topic. ``listed``: the numbers of partitions that the asked
    broker names, and ``owned`` those of which it finds an owner, look by look, the last for good.
    ``lags``: it knows nothing of the topic unless it has to confirm that.
    """

    listed: list[int]
    owned: list[int] = field(default_factory=lambda: [9])
    topic_id: str = "id"
    lags: bool = False
    looks: int = 0
    confirmed: int = 0
    asked: list[int] = field(default_factory=list)

    async def topic(self, name: str, *, confirmed: bool = False) -> dict[str, Any]:
        self.confirmed += confirmed
        if not self._is_there(confirmed):
            raise FencelogError(ErrorCode.TOPIC_NOT_FOUND, "there is no topic")
        self.looks += 1
        return {"namespace": "default", "topic": "t", "partitions": self._last(self.listed)}

    async def topics(self, *, confirmed: bool = False) -> list[dict[str, Any]]:
        other = {"namespace": "default", "topic": "a", "partitions": 1}
        is_there = self._is_there(confirmed)
        return [other, *([await self.topic(T, confirmed=confirmed)] if is_there else [])]

    async def segments(self, topic: str, partition: int, **_: Any) -> dict[str, Any]:
        if topic == T:
            self.asked.append(partition)
            if partition >= self._last(self.owned):
                is_there = self._last(self.owned) > 0
                code = ErrorCode.NOT_FOUND if is_there else ErrorCode.TOPIC_NOT_FOUND
                raise FencelogError(code, f"{topic} has not {partition}")
        id_ = self.topic_id if topic == T else topic
        ends = {"earliest_offset": 0, "end_offset": 7}
        return {"topic_id": id_, "partition": partition, "segments": [], "bookies": {}} | ends

    async def close(self) -> None: ...

    def _is_there(self, confirmed: bool) -> bool:
        is_known = confirmed or not self.lags
        return is_known and self.listed[min(self.looks, len(self.listed) - 1)] > 0

    def _last(self, numbers: list[int]) -> int:
        return numbers[min(max(self.looks - 1, 0), len(numbers) - 1)]


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``follow(brokers, options)``: what it finds where a position has two partitions."""
    opened: list[TopicFollower] = []

    async def answering(servers: Any) -> Any:
        return tuple(servers)

    def followed(brokers: Brokers, options: ReadOptions, *, outage_s: float = 60.0) -> list[Any]:
        monkeypatch.setattr(service_module, "FencelogClient", lambda _: brokers)
        monkeypatch.setattr(service_module, "OUTAGE_S", outage_s)
        follower = TopicFollower(options)
        opened.append(follower)
        known = StreamPosition({T: "id"}, {T: {0: 5, 1: 3}})
        found = follower.segments(None, known=known)
        return [(each.partition, each.topic_id) for each in found if each.topic == T]

    monkeypatch.setattr(service_module, "servers_that_answer", answering)
    yield followed
    for follower in opened:
        follower.close()


@pytest.mark.parametrize("options", [OPTIONS, PATTERN])
def test_partitions_that_the_position_has_are_asked_for(follow: Any, options: ReadOptions) -> None:
    """The asked broker lags behind, the owner of the second one does not."""
    assert follow(Brokers([1]), options) == [(0, "id"), (1, "id")]
    assert follow(Brokers([3]), options) == [(0, "id"), (1, "id"), (2, "id")]


@pytest.mark.parametrize("options", [OPTIONS, PATTERN])
@pytest.mark.parametrize("listed", [1, 2])
def test_a_partition_that_nobody_has_as_yet_is_looked_for_anew(
    follow: Any, options: ReadOptions, listed: int
) -> None:
    brokers = Brokers([listed], [1, 1, 2])
    assert follow(brokers, options) == [(0, "id"), (1, "id")]
    assert brokers.looks == 3
    assert brokers.asked == [0, 1] * 3
    with pytest.raises(FencelogError, match="partition 1 of default/t") as raised:
        follow(Brokers([listed], [1]), options, outage_s=0.0)
    assert raised.value.code is ErrorCode.READ_UNKNOWN


def test_another_topic_with_fewer_partitions_is_told_at_once(follow: Any) -> None:
    """Its answers name another id, which the driver refuses."""
    brokers = Brokers([1], [1], topic_id="new")
    assert follow(brokers, OPTIONS) == [(0, "new")]
    assert brokers.looks == 1


def test_a_topic_of_a_pattern_that_was_deleted_is_left_out_once_it_is_listed_no_more(
    follow: Any,
) -> None:
    assert follow(Brokers([2, 0], [0]), PATTERN) == []
    with pytest.raises(FencelogError, match="partition 0 of default/t was deleted, or") as raised:
        follow(Brokers([2], [0]), PATTERN, outage_s=0.0)
    assert raised.value.code is ErrorCode.READ_UNKNOWN
    with pytest.raises(FencelogError, match="there is no topic"):
        follow(Brokers([0]), OPTIONS)


@pytest.mark.parametrize("options", [OPTIONS, PATTERN])
def test_a_topic_that_a_broker_does_not_know_yet_is_not_deleted(
    follow: Any, options: ReadOptions
) -> None:
    """The query ended with its deletion, or a run with availableNow before the topic's end."""
    brokers = Brokers([2], lags=True)
    assert follow(brokers, options) == [(0, "id"), (1, "id")]
    assert (brokers.looks, brokers.confirmed) == (1, 1)


def test_a_topic_whose_owner_is_not_known_yet_is_asked_for_again(follow: Any) -> None:
    brokers = Brokers([2], [0, 2])
    assert follow(brokers, OPTIONS) == [(0, "id"), (1, "id")]
    assert brokers.looks == 2


def test_the_last_topic_of_a_pattern_may_be_deleted(follow: Any) -> None:
    """The query ended whatever failOnDataLoss was, and did not name the topic."""
    assert follow(Brokers([0]), replace(PATTERN, topics_pattern="default/t")) == []


def test_a_topic_that_was_deleted_is_confirmed_to_be_once(
    monkeypatch: pytest.MonkeyPatch, follow: Any
) -> None:
    """With failOnDataLoss=false the position keeps it, and each trigger looks at the topics."""
    monkeypatch.setattr(service_module, "TOPICS_INTERVAL_S", 0.0)
    listings: list[bool] = []

    class Counted(Brokers):
        async def topics(self, *, confirmed: bool = False) -> list[dict[str, Any]]:
            listings.append(confirmed)
            return await super().topics(confirmed=confirmed)

    brokers = Counted([0])
    follow(brokers, PATTERN)
    assert listings == [False, True]
    follower = TopicFollower(PATTERN)
    try:
        for _ in range(3):
            follower.segments(None, known=StreamPosition({T: "id"}, {T: {0: 5}}))
    finally:
        follower.close()
    assert listings[2:] == [False, True, False, False]


@pytest.mark.parametrize("options", [OPTIONS, PATTERN])
def test_where_ends_are_confirmed_the_partitions_are_too(
    monkeypatch: pytest.MonkeyPatch, follow: Any, options: ReadOptions
) -> None:
    """Nothing is known, so a partition that is missing would not be missed. Looks at the topics
    that are made for that do not wait for the next one that is due."""
    brokers = Brokers([2])
    follow(brokers, options)
    assert (brokers.looks, brokers.confirmed) == (1, 0)
    follower = TopicFollower(options)
    try:
        for looks in (2, 3):
            follower.segments(None, confirmed=True)
            assert (brokers.looks, brokers.confirmed) == (looks, looks - 1)
    finally:
        follower.close()


# -- the cursor ------------------------------------------------------------------------------------


class Cursors(Brokers):
    """The same, with a subscription. ``refusals``: of the next moves; ``settings``: None if there
    is no subscription."""

    refusals: list[ErrorCode]
    moves: list[dict[int, int]]
    settings: dict[str, Any] | None
    created: list[dict[str, Any]]

    async def subscription(self, topic: str, name: str) -> dict[str, Any]:
        if self.settings is None:
            raise FencelogError(ErrorCode.SUBSCRIPTION_NOT_FOUND, "there is none")
        return self.settings

    async def create_subscription(self, topic: str, name: str, **settings: Any) -> dict[str, Any]:
        self.created.append(settings)
        self.settings = {"durable": True} | settings
        return self.settings

    async def seek(self, topic: str, name: str, *, offsets: dict[int, int]) -> None:
        if self.refusals:
            raise FencelogError(self.refusals.pop(0), "the topic has 1 partitions, no 1")
        self.moves.append(offsets)


def test_a_cursor_that_a_broker_does_not_know_yet_is_moved_later(
    monkeypatch: pytest.MonkeyPatch, follow: Any
) -> None:
    """A partition that was just added used to end the query."""
    brokers = Cursors([2])
    brokers.refusals, brokers.moves = [ErrorCode.NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND], []
    brokers.settings = {"durable": True}
    follow(brokers, OPTIONS)
    follower = TopicFollower(OPTIONS)
    position = StreamPosition({T: "id"}, {T: {0: 5, 1: 3}})
    try:
        for moves in ([], [], [{0: 5, 1: 3}], [{0: 5, 1: 3}]):
            follower.move_cursor("etl", position)
            assert brokers.moves == moves
    finally:
        follower.close()


def test_a_subscription_that_keeps_no_message_is_refused_before_it_is_moved(
    monkeypatch: pytest.MonkeyPatch, follow: Any
) -> None:
    brokers = Cursors([2])
    brokers.refusals, brokers.moves, brokers.created = [], [], []
    brokers.settings = {"durable": False}
    follow(brokers, OPTIONS)
    follower = TopicFollower(OPTIONS)
    position = StreamPosition({T: "id"}, {T: {0: 5, 1: 3}})
    try:
        with pytest.raises(FencelogError, match="is not durable") as raised:
            follower.move_cursor("etl", position)
        assert raised.value.code is ErrorCode.BAD_REQUEST
        assert brokers.moves == []
        brokers.settings = None
        follower.move_cursor("etl", position)
        assert brokers.created == [{"type": "exclusive", "start": "earliest"}]
        assert brokers.moves == [{0: 5, 1: 3}]
    finally:
        follower.close()
