"""Dead letters, and their replay: messages that failed too often go to a partition of their own.

That is the last partition of the same topic: what a partition's owner needs is the port
(``DeadLetters``), whichever log is behind it. Each append there, and each one back, carries an
idempotency key made of its origin, as the service's do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from fencelog.api.subscriptions.dead_letters import REPLAY_FOR, dead_letter
from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.broker import Broker
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.registry.subscription_config import SubscriptionInfo
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_KEY, SequenceRange, producer_digest
from fencelog.ledgers.record_batch import Message
from tests.sim.oracle.log_history import LogHistory, Sent
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.plan.topic_plan import ConsumerPlan
from tests.sim.topics.brokers import TOPIC, BrokerMachine, Unanswered, Unreached
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients
from tests.sim.topics.consumers import Consumer


class Keyed:
    """Appends single messages to one log, each once by its key, wherever the owner is."""

    def __init__(self, log: LogHistory, brokers: Mapping[str, BrokerMachine]) -> None:
        self._log = log
        self._brokers = brokers
        self._sent: dict[str, Sent] = {}

    async def append(self, message: Message, key: str) -> None:
        """Forward a message. Raises FencelogError: it may have been appended."""
        conditions = AppendConditions(SequenceRange(1, RANGE_KEY, producer_digest(key.encode())))
        if key not in self._sent:
            self._sent[key] = self._log.new(message.value, is_batch=False, conditions=conditions)
        work = partial(self._append, self._sent[key], message, conditions)
        error: FencelogError | None = None
        names = [*self._brokers]
        for _ in range(3):
            try:
                return await self._brokers[names[0]].ask(work)
            except NotOwner as elsewhere:
                names = [elsewhere.url.removeprefix("http://")]
                error = elsewhere
            except (Unreached, Unanswered) as lost:
                raise FencelogError(ErrorCode.APPEND_UNKNOWN, "no answer") from lost
        raise error or FencelogError(ErrorCode.NO_OWNER, "no owner has the dead letters")

    async def _append(
        self, sent: Sent, message: Message, conditions: AppendConditions, broker: Broker
    ) -> None:
        instance = await broker.partition(TOPIC, self._log.partition)
        self._log.attempted(sent)
        try:
            told = await instance.append_message(message, conditions)
        except FencelogError as error:
            self._log.refused(sent, error)
            raise
        self._log.acknowledged(sent, told, instance, instance.epoch)


class Letters:
    """Implements ``DeadLetters`` for one subscription."""

    def __init__(self, subscription: SubscriptionHistory, keyed: Keyed) -> None:
        self._subscription = subscription
        self._keyed = keyed

    async def forward(self, info: SubscriptionInfo, partition: int, message: PulledMessage) -> None:
        subscription = self._subscription
        if message.offset not in subscription.desperate:
            subscription.violate(18, f"{message.offset} is forwarded, and has not failed so often")
        dead = dead_letter(TOPIC, info.name, partition, message)
        key = f"dead-letter/{info.subscription_id}/{partition}/{message.offset}"
        await self._keyed.append(dead, key)
        subscription.log.counts["buried"] += 1
        subscription.forwarded.add(message.offset)


class Replayer:
    """Sends dead letters back to where they came from, for their subscription alone. How far it has
    come is a subscription of the dead letters."""

    def __init__(
        self,
        machine: str,
        letters: SubscriptionHistory,
        origin: SubscriptionHistory,
        brokers: Mapping[str, BrokerMachine],
        clients: Clients,
    ) -> None:
        self._letters = Consumer(machine, letters, clients, clients.chance(machine))
        self._origin = origin
        self._keyed = Keyed(origin.log, brokers)
        self._clients = clients

    async def replay(self, plan: ConsumerPlan) -> None:
        await asyncio.sleep(plan.starts_ms / 1000)
        while not self._clients.is_over.is_set():
            pulled = await self._letters.pull(plan.pulls)
            done = [message for message in pulled if await self._send_back(message)]
            await self._letters.acknowledge(done)
            await asyncio.sleep(plan.thinks_ms / 1000)

    async def _send_back(self, letter: PulledMessage) -> bool:
        """Tell whether it is back, or is none of this subscription's."""
        value, name = letter.message.value, self._origin.info.name
        if letter.message.headers == () or value.startswith(b"again/"):
            return True
        log = self._origin.log
        back = Message(b"again/" + value, headers=((REPLAY_FOR, name.encode()),))
        log.only_for[back.value] = name
        try:
            await self._keyed.append(back, f"replay/{letter.offset}")
        except FencelogError:
            await asyncio.sleep(RETRY_PAUSE_S)
            return False
        log.counts["replayed"] += 1
        return True
