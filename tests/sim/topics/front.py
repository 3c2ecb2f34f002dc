"""The front door of a broker: the real endpoints for appends and subscriptions, the real search for
the owner and the real forwarding, over the simulated HTTP of ``topics/http.py`` and
the links of ``network/broker_links.py``.

What an owner takes through it is noted where it is taken. A request that is sent once is taken
again only if whoever took it before has let it go for certain, and may be refused only then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.targets import Endpoint
from fencelog.api.http.waits import Waits
from fencelog.api.produce.batch import ProduceBatch
from fencelog.api.produce.once import Once
from fencelog.api.produce.single import Produce
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.routing.partitioner import RoundRobin
from fencelog.api.routing.served_link import LinkHost
from fencelog.api.server.app import Application, Handler
from fencelog.api.server.health import Health
from fencelog.api.subscriptions.app import build_subscriptions
from fencelog.api.subscriptions.dead_letters import (
    Appending,
    DeadLetterTopics,
    TopicDeadLetters,
)
from fencelog.broker.append.conditions import AppendConditions, AppendFuture, AppendResult
from fencelog.broker.broker import Broker
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.errors import Effects, FencelogError
from fencelog.ledgers.record_batch import Message, decode_batch
from tests.sim.engine.process import Process
from tests.sim.letters.history import LetterHistory
from tests.sim.network.broker_links import ServedLinks, SimLinks, noted
from tests.sim.oracle.call_history import CALL, CallHistory
from tests.sim.oracle.log_history import AGAIN, LogHistory, Sent, payload_of
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.topics.brokers import TOPIC
from tests.sim.topics.calls.called_subscriptions import CalledSubscriptions
from tests.sim.topics.clients import answered
from tests.sim.topics.http import IS_FORWARDED, Door, Http

More = Callable[[Broker, Forwarder, Waits, BodyReader], Mapping[Endpoint, dict[str, Handler]]]


class Taken:
    """The appends over HTTP that owners hold, or have answered."""

    def __init__(self, logs: list[LogHistory]) -> None:
        self.logs = logs
        self.calls: CallHistory | None = None
        self.subscriptions: list[SubscriptionHistory] = []
        """By partition, where there are calls of one."""
        self.more: More | None = None
        """Makes the further endpoints of a broker, where there are some."""
        self.letters: LetterHistory | None = None
        """Where dead letters are replayed."""
        self.held: Counter[Sent] = Counter()
        """How often an owner took it that has not let it go for certain."""

    def take(self, log: LogHistory, payload: bytes, instance: Any, future: AppendFuture) -> None:
        sent = log.sent[payload]
        if is_sent_once(sent) and self.held[sent]:
            log.violate(
                21, f"{payload!r} is passed on again, and may have been appended before that"
            )
        if is_sent_once(sent) and not sent.may_be_there:
            log.violate(21, f"{payload!r} is taken by an owner after it was refused")
        self.held[sent] += 1
        if future.done():  # a duplicate: its answer may be on its way before a callback is called
            self._ended(log, sent, instance, future)
        else:
            future.add_done_callback(partial(self._ended, log, sent, instance))

    def _ended(self, log: LogHistory, sent: Sent, instance: Any, future: AppendFuture) -> None:
        if future.cancelled():
            return
        error = cast("FencelogError | None", future.exception())
        if error is None:
            answered(log, sent, instance, future)
        elif error.code.effects is Effects.NONE:
            self.held[sent] -= 1

    def told(self, log: LogHistory, sent: Sent, error: FencelogError) -> None:
        """Its client got this answer."""
        log.refused(sent, error)
        if error.code.effects is Effects.NONE and is_sent_once(sent) and self.held[sent]:
            log.violate(
                21, f"{sent.payloads[0]!r} is refused ({error.code.slug}), an owner has taken it"
            )


def is_sent_once(sent: Sent) -> bool:
    """Tell whether an append is never sent again, having neither a number nor a key."""
    return sent.conditions.sequences is None


class _TakingBroker:
    """The broker as its endpoints see it."""

    def __init__(self, broker: Broker, taken: Taken) -> None:
        self._broker = broker
        self._taken = taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def partition(self, topic: TopicName, partition: int) -> _TakingLog | _LetterLog:
        return self._observed(topic, await self._broker.partition(topic, partition))

    def open_log(self, topic: TopicName, partition: int) -> _TakingLog | _LetterLog | None:
        instance = self._broker.open_log(topic, partition)
        return None if instance is None else self._observed(topic, instance)

    def _observed(self, topic: TopicName, instance: PartitionLog) -> _TakingLog | _LetterLog:
        taken = self._taken
        if taken.letters is not None and topic != TOPIC:
            return _LetterLog(instance, taken.letters)
        return _TakingLog(instance, taken, taken.logs[instance.partition])


class _LetterLog:
    """A log of dead letters as the endpoints see it."""

    def __init__(self, instance: PartitionLog, letters: LetterHistory) -> None:
        self._instance = instance
        self._letters = letters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    def append_message(self, message: Message, *conditions: Any) -> AppendFuture:
        future = self._instance.append_message(message, *conditions)
        self._letters.forwarding(message, future)
        return future

    def append_batch(self, batch: bytes, *rest: Any) -> AppendFuture:
        future = self._instance.append_batch(batch, *rest)
        self._letters.forwarding(decode_batch(batch)[0], future)
        return future


class _TakingLog:
    """An open log as the endpoints see it."""

    def __init__(self, instance: PartitionLog, taken: Taken, log: LogHistory) -> None:
        self._instance = instance
        self._taken = taken
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    @property
    def subscriptions(self) -> Any:
        taken, instance = self._taken, self._instance
        if taken.calls is None:
            return instance.subscriptions
        history = taken.subscriptions[instance.partition]
        return CalledSubscriptions(instance, history, taken.calls)

    def append_message(self, message: Message, *conditions: Any) -> AppendFuture:
        future = self._instance.append_message(message, *conditions)
        self._took(message, conditions, future)
        return future

    def append_batch(self, batch: bytes, *rest: Any) -> AppendFuture:
        future = self._instance.append_batch(batch, *rest)
        self._took(decode_batch(batch)[0], rest[1:], future)
        return future

    def _took(self, message: Message, conditions: Sequence[Any], future: AppendFuture) -> None:
        letters, payload = self._taken.letters, payload_of(message)
        if letters is not None and payload.startswith(AGAIN):
            letters.returning(self._log, message, conditions[0], self._instance, future)
        else:
            self._taken.take(self._log, payload, self._instance, future)


class _OwnWay(Once):
    """The way of a dead letter is no part of the request that has found that it failed so often,
    nor forwarded, if that request was."""

    async def route(
        self, topic: TopicInfo, conditions: AppendConditions, place: int
    ) -> AppendResult | tuple[int, AppendConditions]:
        CALL.set(None)
        IS_FORWARDED.set(False)
        return await super().route(topic, conditions, place)


class Front:
    """The front doors of all brokers."""

    def __init__(self, http: Http, taken: Taken) -> None:
        self.http = http
        self.taken = taken
        self._doors: dict[Broker, Door] = {}
        self._letters: dict[Broker, DeadLetterTopics] = {}

    async def open(self, broker: Broker, process: Process) -> Door:
        """The process of the broker serves from here on."""
        links = SimLinks(self.http, self.taken.logs[0].history)

        async def close() -> None:
            await served.close()
            await links.close()

        door = Door(process, partial(self._application, broker, links), close)
        config = broker.config
        app = noted(door.serve, self.http)

        def append(frame: bytes) -> AppendFuture:
            made: Any = door.app()
            future: AppendFuture = made.append_for_peer(frame)
            return future

        served = ServedLinks(LinkHost(app, append, config.url, config.broker_id))
        await served.open()
        self._doors[broker] = door
        process.on_death(partial(self.http.died, door))
        return door

    def _application(self, broker: Broker, links: SimLinks) -> Application:
        app, self._letters[broker] = _application(broker, self.taken, links)
        app.request_ids = self.http.request_ids  # of the history's own chance
        return app

    def dead_letters(self, broker: Broker) -> TopicDeadLetters:
        """Return the way of the topic's dead letters from this broker."""
        self._doors[broker].app()
        topic = broker.known(TOPIC)
        assert topic is not None
        return self._letters[broker].of(topic)


def _application(
    broker: Broker, taken: Taken, links: SimLinks
) -> tuple[Application, DeadLetterTopics]:
    """Build the application as ``build_app`` does, without all that is neither an append nor, where
    there are calls, of subscriptions."""
    taking: Any = _TakingBroker(broker, taken)
    metrics, waits, round_robin, bodies = ApiMetrics(), Waits(), RoundRobin(), BodyReader()
    forwarder = Forwarder(links)
    ownership = OwnerProxy(taking, forwarder, waits)
    once = Once(taking, ownership, forwarder, bodies)
    way = _OwnWay(taking, ownership, forwarder, bodies)
    letters = DeadLetterTopics(taking, Appending(ownership, forwarder), way)
    produce = Produce(taking, ownership, round_robin, once, bodies, metrics)
    batch = ProduceBatch(taking, ownership, forwarder, round_robin, once, bodies, metrics)
    endpoints: dict[Endpoint, dict[str, Handler]] = {
        Endpoint.PRODUCE: {"POST": produce.post},
        Endpoint.PRODUCE_BATCH: {"POST": batch.post},
    }
    unused: Any = None
    if taken.calls is not None:
        _, served = build_subscriptions(taking, ownership, forwarder, waits, bodies, metrics, way)
        endpoints |= served
    if taken.more is not None:
        endpoints |= taken.more(broker, forwarder, waits, bodies)
    pages = Health(taking.check_ready).pages()
    return Application(endpoints, pages, unused, links, waits, metrics, produce, bodies), letters
