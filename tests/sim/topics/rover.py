"""A consumer that roves: it takes ids from an owner whose seek is lost, and acknowledges by them
after the next owner's seek.

That owner is cut off from its bookies (``faults_of_rover``): its seek is never durable, and yet it
goes on from there and gives ids out, of messages that it still has in memory. Whatever the next
owner has found, and whatever seeks it takes, these ids say nothing there (invariant 19).

And a consumer that strays: it asks an owner that was replaced, and does not know it yet, for what
its successor has, and for a place that others have taken there (invariant 25).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Any

from fencelog.broker.broker import Broker
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_plan import ConsumerPlan
from tests.sim.topics.brokers import TOPIC, Unanswered, Unreached
from tests.sim.topics.consumers import Consumer, Work

LOST_S = 0.25
"""A seek that takes longer than this is taken for lost. It takes a few ms."""

TAKEOVER_S = 0.8
"""The time after which the next owner serves."""

STEP_S = 0.02
TRIES = 60

CUT_OFF_MS = 1_500
BEFORE_TAKEOVER_MS = 700
"""The time from cutting an owner off until another one takes over: the owner takes a seek
meanwhile."""
EACH_MS = 2_400
"""The time from cutting one owner off until the next one is."""

PULLS, SEEKS, ACKS, PLACES = 0.5, 0.6, 0.75, 0.85
"""The shares of a ``Stray``'s requests, each with those before it: the rest refuses or extends."""

FURTHER = "further-"
"""The beginning of the ids of cursors that belong to one consumer."""

SUBSCRIPTIONS = 2
"""The subscriptions that come before these."""


class Outcome(Enum):
    """The outcome of a seek."""

    DONE = auto()
    REFUSED = auto()
    LOST = auto()


def faults_of_rover(random: Random, brokers: int, length_ms: int) -> Iterator[Fault]:
    """All brokers but one are cut off from bookies, and then that one takes over; as often as there
    is time for it, by another one each time."""
    begin_ms = random.randint(100, max(101, min(EACH_MS, length_ms - CUT_OFF_MS)))
    next_owner = random.randint(1, brokers)
    while True:
        for number in range(1, brokers + 1):
            if number != next_owner:
                start = Moment("start", 0, begin_ms)
                yield Fault(start, "cut off", f"k{number}", CUT_OFF_MS, 0.5)
        later = Moment("start", 0, begin_ms + BEFORE_TAKEOVER_MS)
        yield Fault(later, "believe", f"k{next_owner}", CUT_OFF_MS, 0.5)
        begin_ms += EACH_MS
        next_owner = next_owner % brokers + 1
        if begin_ms + CUT_OFF_MS > length_ms:
            return


class Rover(Consumer):
    """A consumer that alone seeks in its subscription."""

    async def consume(self, plan: ConsumerPlan) -> None:
        await asyncio.sleep(plan.starts_ms / 1000)
        while not self._clients.is_over.is_set():
            if await self._seek_near_the_end() is not Outcome.LOST:
                await asyncio.sleep(STEP_S)
                continue
            ids = await self._pull_where_it_was_lost(plan)
            if ids and await self._seek_elsewhere():
                await self._ask(partial(self._acknowledged, ids))

    async def _seek_near_the_end(self) -> Outcome:
        """An owner that has lost its bookies still has in memory what was appended last."""
        log = self._subscription.log
        offset = max(log.start_offset, log.known_end - self._chance.choice((2, 5, 10)))
        try:
            await self._request(partial(self._sought, offset))
        except Unanswered:
            return Outcome.LOST
        except (FencelogError, Unreached) as error:
            if isinstance(error, FencelogError) and error.code is ErrorCode.STATE_UNKNOWN:
                return Outcome.LOST
            self._machine = self._clients.directed(self._chance, error)
            return Outcome.REFUSED
        return Outcome.DONE

    async def _pull_where_it_was_lost(self, plan: ConsumerPlan) -> list[PulledMessage]:
        with suppress(FencelogError, Unreached, Unanswered):
            return list(await self._request(partial(self._pulled, plan.pulls)))
        return []

    async def _seek_elsewhere(self) -> bool:
        """Seek until the next owner confirms it, or the same one, if it is the next as well. A seek
        that would wait for the takeover is one more that the next owner takes."""
        await asyncio.sleep(TAKEOVER_S)
        previous = self._machine
        while self._machine is previous:
            self._machine = self._clients.some_broker(self._chance)
        for _ in range(TRIES):
            if self._clients.is_over.is_set():
                return False
            outcome = await self._seek_near_the_end()
            if outcome is Outcome.DONE:
                return True
            if outcome is Outcome.LOST:
                self._machine = self._clients.some_broker(self._chance)
            await asyncio.sleep(STEP_S)
        return False

    async def _request(self, work: Work) -> Any:
        """Ask an owner that knows the cursor without making sure of that first."""
        attend = partial(self._attend, work, makes_sure=False)
        return await self._machine.ask(attend, timeout_s=LOST_S)


class Stray(Consumer):
    """A consumer that goes to any broker which takes itself for the owner, for each request. It
    acknowledges nothing that this owner has delivered itself: that would have to be durable, and
    would tell it at once that it was replaced."""

    async def consume(self, plan: ConsumerPlan) -> None:
        await asyncio.sleep(plan.starts_ms / 1000)
        while not self._clients.is_over.is_set():
            await asyncio.sleep(self._chance.uniform(0, 0.01))
            self._machine = self._clients.some_broker(self._chance)
            if self._machine.broker is None or not _serves(self._machine.broker):
                continue
            what = self._chance.random()
            if what < PULLS or not self._hoard:
                pulled = await self.pull(plan.pulls)
                self._hoard = [*self._hoard[-4:], *([pulled] if pulled else [])]
            elif what < SEEKS:
                await self.seek(self._subscription.log.known_end)
            elif what < ACKS:
                await self._ask(partial(self._acknowledged_elsewhere, self._newest()))
            elif what < PLACES:
                await self._ask(self._opened_or_dropped)
            elif self._chance.random() < 0.5:
                await self.refuse(self._newest())
            else:
                await self.extend(self._newest())

    def _newest(self) -> list[PulledMessage]:
        """Return what it got from the last of the owners."""
        given = self._subscription.given
        return max(self._hoard, key=lambda pulled: given[pulled[0].ack_id].epoch)

    async def _acknowledged_elsewhere(
        self, pulled: list[PulledMessage], instance: PartitionLog
    ) -> None:
        """Acknowledge what another owner than this one has delivered."""
        epoch = self._subscription.given[pulled[0].ack_id].epoch
        if epoch != instance.epoch:
            await self._acknowledged(pulled, instance)

    async def _opened_or_dropped(self, instance: PartitionLog) -> None:
        """Open a cursor of its own, or drop it: there is a place for one, and others want it. An
        owner that was replaced is asked only for what it refuses, see above."""
        cursors, log, own = self._at(instance), self._subscription.log, f"{FURTHER}{self._name}"
        there: list[str] = cursors.all()
        is_newest = instance.epoch == log.newest_epoch
        is_full = len(there) >= instance.subscriptions.policy.max_subscriptions
        if sum(not each.startswith(FURTHER) for each in there) < SUBSCRIPTIONS:
            return
        if own not in there and (is_newest or is_full):
            await cursors.open(SubscriptionInfo(own, own, SubscriptionConfig(), "earliest"))
        elif own in there and is_newest:
            log.state.may_be_dropped.add(own)
            await cursors.drop(own)


def _serves(broker: Broker) -> bool:
    return broker.open_log(TOPIC, 0) is not None
