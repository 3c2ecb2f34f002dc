"""The oracle of dead letters: what it says of letters that are lost, doubled or invented."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.api.subscriptions.dead_letters import dead_letter, replayed
from fencelog.broker.append.conditions import NO_CONDITIONS, AppendFuture, AppendResult, Repeated
from fencelog.broker.names import TopicName
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.sim.letters.history import LetterHistory
from tests.sim.oracle.history import History
from tests.sim.oracle.log_history import AGAIN, LogHistory, Sent
from tests.sim.oracle.subscription_history import SubscriptionHistory

LOST = FencelogError(ErrorCode.APPEND_UNKNOWN, "lost")


class World:
    """Two partitions. In the first one message 7, which is b"v", has failed as often as it may."""

    def __init__(self) -> None:
        self.logs = [LogHistory(History(), partition) for partition in range(2)]
        info = SubscriptionInfo("s", "00", SubscriptionConfig(max_deliveries=1))
        subscriptions = [SubscriptionHistory(log, info) for log in self.logs]
        self.origin = subscriptions[0]
        self.origin.desperate.add(7)
        self.logs[0].messages[7] = b"v"
        self.letters = LetterHistory(subscriptions, self._answered)

    @staticmethod
    def _answered(log: LogHistory, sent: Sent, instance: Any, future: AppendFuture) -> None:
        """Leave it to others."""

    def letter(self, offset: int = 7, value: bytes = b"v", partition: int = 0) -> Message:
        message = PulledMessage(offset, 0, Message(value), "id", 1)
        return dead_letter(TopicName("sim", "topic"), "s", partition, message)

    def forward(self, letter: Message, place: int | FencelogError, *, again: bool = False) -> None:
        """Have it taken by an owner, which answers this."""
        future: AppendFuture = asyncio.get_running_loop().create_future()
        if isinstance(place, FencelogError):
            future.set_exception(place)
            future.exception()
        else:
            result = Repeated if again else AppendResult
            future.set_result(result(0, place, 1, 0))
        self.letters.forwarding(letter, future)

    def send_back(self, letter: Message, partition: int = 0, name: str = "s") -> None:
        future: AppendFuture = asyncio.get_running_loop().create_future()
        log = self.logs[partition]
        self.letters.returning(log, replayed(letter, name), NO_CONDITIONS, object(), future)

    @property
    def violations(self) -> list[str]:
        return [text for log in self.logs for text in log.history.violations]


async def test_a_letter_that_goes_and_comes_back_is_right() -> None:
    world = World()
    letter = world.letter()
    world.forward(letter, LOST)
    assert world.origin.forwarded == set()  # it may not be passed over yet
    world.forward(letter, 3)
    world.forward(letter, 3, again=True)
    assert world.origin.forwarded == {7}
    world.send_back(letter)
    world.letters.check_topic([(3, letter)])
    world.logs[0].places[AGAIN + b"v"] = 9
    world.letters.check_replayed()
    assert world.violations == []


async def test_a_letter_that_nobody_was_told_of_may_be_there() -> None:
    world = World()
    world.forward(world.letter(), LOST)
    world.letters.check_topic([(3, world.letter())])
    assert world.violations == []


@pytest.mark.parametrize(
    ("letter", "says"),
    [
        ({"offset": 6}, "has not failed so often"),
        ({"partition": 1}, "has not failed so often"),
        ({"value": b"w"}, "another message is there"),
    ],
)
async def test_only_what_has_failed_is_forwarded(letter: dict[str, Any], says: str) -> None:
    world = World()
    world.forward(world.letter(**letter), 3)
    assert any(says in text for text in world.violations)


async def test_a_letter_is_there_once_at_its_offset() -> None:
    twice, told, lost, foreign = World(), World(), World(), World()
    for world in (twice, told, lost):
        world.forward(world.letter(), 3)
    twice.letters.check_topic([(3, twice.letter()), (4, twice.letter())])
    assert "is at 3, and at 4" in twice.violations[0]
    told.forward(told.letter(), 4)
    assert "is at 3, and at 4" in told.violations[0]
    lost.letters.check_topic([])
    assert "was acknowledged at 3, and is at None" in lost.violations[0]
    foreign.letters.check_topic([(3, foreign.letter())])
    assert "nobody has forwarded it" in foreign.violations[0]


async def test_what_a_replay_has_come_past_is_back() -> None:
    world = World()
    world.forward(world.letter(), 3)
    world.letters.check_topic([(3, world.letter())])
    world.letters.check_replayed()
    assert "was replayed, it says, and is not back" in world.violations[0]


@pytest.mark.parametrize("how", [{"partition": 1}, {"name": "t"}])
async def test_a_letter_comes_back_where_it_was_for_its_subscription(how: dict[str, Any]) -> None:
    world = World()
    world.forward(world.letter(), 3)
    world.send_back(world.letter(), **how)
    assert "comes back" in world.violations[0]


async def test_nothing_comes_back_that_has_not_gone() -> None:
    world = World()
    world.send_back(world.letter())
    assert "it is a dead letter of None" in world.violations[0]
