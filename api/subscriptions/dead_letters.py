"""Dead letters: messages that failed too often go to a topic of their own, with their origin.

The topic is named by the subscription, or ``TOPIC-SUBSCRIPTION-dead`` in the topic's namespace, and
is created when it is needed, with the source's replication. A message is appended there before it
is acknowledged in its own place, so it is never lost between them. Each append carries an
idempotency key made of its origin, so that a repeated one is written once as long as the key is
remembered, also if the topic gets more partitions in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from fencelog.api.http.asgi import BATCH
from fencelog.api.http.message_headers import IDEMPOTENCY_KEY
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.broker.append.conditions import AppendConditions, AppendResult
from fencelog.broker.names import TopicName
from fencelog.broker.registry.subscription_config import SubscriptionInfo
from fencelog.broker.registry.topics import TopicConfig, TopicInfo
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_KEY, SequenceRange, producer_digest
from fencelog.ledgers.limits import MAX_HEADER_BYTES, MAX_HEADERS
from fencelog.ledgers.record_batch import Message, check_batch, encode_batch

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

Headers = tuple[tuple[str, bytes], ...]

ORIGIN_TOPIC = "fencelog-origin-topic"
ORIGIN_PARTITION = "fencelog-origin-partition"
ORIGIN_OFFSET = "fencelog-origin-offset"
ORIGIN_ATTEMPTS = "fencelog-origin-attempts"
ORIGIN_SUBSCRIPTION = "fencelog-origin-subscription"
HEADERS_OMITTED = "fencelog-headers-omitted"
REPLAY_FOR = "fencelog-replay-for"
"""The header with the name of the only subscription that delivers the message."""

_ORIGIN = (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_ATTEMPTS, ORIGIN_SUBSCRIPTION)
_OURS = frozenset((*_ORIGIN, HEADERS_OMITTED, REPLAY_FOR))


class Appending:
    """Appends of this broker's own to any topic, wherever its owners are."""

    def __init__(self, ownership: OwnerProxy, forwarder: Forwarder) -> None:
        self._ownership = ownership
        self._forwarder = forwarder

    async def append(
        self,
        topic: TopicName,
        partition: int,
        message: Message,
        key: str,
        *,
        routed_by: int | None = None,
    ) -> None:
        """Append the message, once for all calls with the same ``key`` that fall in the topic's
        idempotency window: the key names the message's origin, so that what is under it is this
        message, perhaps with another number of attempts. ``routed_by``: the number of partitions
        among which this one was chosen, where it was. Raises FencelogError as an append does."""
        conditions = _keyed(key)._replace(routed_by=routed_by)

        async def local(log: PartitionLog) -> None:
            await log.append_message(message, conditions)

        async def remote(url: str) -> None:
            batch = encode_batch([message])
            await self._append_at(url, topic, partition, batch, key, routed_by=routed_by)

        try:
            await self._ownership.at_owner(None, topic, partition, local, remote)
        except FencelogError as error:
            if error.code is not ErrorCode.IDEMPOTENCY_KEY_REUSED:
                raise

    async def append_batch(self, topic: TopicName, partition: int, batch: bytes, key: str) -> None:
        """Append the record batch, once for all calls with the same ``key``, which is only ever
        used for it. Raises FencelogError as an append does."""
        info = check_batch(batch)
        conditions = _keyed(key).of(batch)

        async def local(log: PartitionLog) -> None:
            await log.append_batch(batch, info, conditions)

        async def remote(url: str) -> None:
            await self._append_at(url, topic, partition, batch, key)

        await self._ownership.at_owner(None, topic, partition, local, remote)

    async def _append_at(
        self,
        url: str,
        topic: TopicName,
        partition: int,
        batch: bytes,
        key: str,
        *,
        routed_by: int | None = None,
    ) -> None:
        routed = b"" if routed_by is None else b"&routed_by=%d" % routed_by
        await self._forwarder.ask(
            "POST",
            url,
            f"/v1/topics/{topic.namespace}/{topic.topic}/messages:batch",
            b"partition=%d%b" % (partition, routed),
            batch,
            lost=ErrorCode.APPEND_UNKNOWN,
            headers=[(b"content-type", BATCH), (IDEMPOTENCY_KEY, key.encode())],
        )


def _keyed(key: str) -> AppendConditions:
    return AppendConditions(SequenceRange(1, RANGE_KEY, producer_digest(key.encode())))


class KeyRouting(Protocol):
    """Finds appends under idempotency keys (``produce.once``)."""

    async def route(
        self, topic: TopicInfo, conditions: AppendConditions, place: int
    ) -> AppendResult | tuple[int, AppendConditions]: ...


async def ensured_topic(broker: Broker, name: TopicName, config: TopicConfig) -> TopicInfo:
    """Return the topic as it is, created with ``config`` if there is none. Raises FencelogError."""
    try:
        return await broker.topic(name)
    except FencelogError as error:
        if error.code is not ErrorCode.TOPIC_NOT_FOUND:
            raise
    try:
        await broker.topics.create(name, config)
    except FencelogError as refused:
        if refused.code is not ErrorCode.ALREADY_EXISTS:
            raise
    return await broker.topic(name)


class DeadLetterTopics:
    """The dead letter topics of this broker's partitions."""

    def __init__(self, broker: Broker, appending: Appending, once: KeyRouting) -> None:
        self._broker = broker
        self._appending = appending
        self._once = once

    def of(self, topic: TopicInfo) -> TopicDeadLetters:
        return TopicDeadLetters(self, topic)

    async def forward(
        self, topic: TopicInfo, info: SubscriptionInfo, partition: int, message: PulledMessage
    ) -> None:
        """Append the message to the dead letter topic, unless it is there already, perhaps in the
        partition that was chosen when the topic had fewer. Raises FencelogError."""
        name = dead_letter_topic(topic.name, info)
        target = await self._there(topic, name)
        dead = dead_letter(topic.name, info.name, partition, message)
        key = f"dead-letter/{info.subscription_id}/{partition}/{message.offset}"
        try:
            routed = await self._once.route(target, _keyed(key), partition)
        except FencelogError as error:
            if error.code is not ErrorCode.IDEMPOTENCY_KEY_REUSED:
                raise
            return  # it is there, with another number of attempts
        if not isinstance(routed, AppendResult):
            place, conditions = routed
            await self._appending.append(name, place, dead, key, routed_by=conditions.routed_by)

    async def _there(self, source: TopicInfo, name: TopicName) -> TopicInfo:
        """Return the dead letter topic, created if need be."""
        policy = source.policy
        replication = {
            "ensemble_size": policy.ensemble_size,
            "write_quorum": policy.write_quorum,
            "ack_quorum": policy.ack_quorum,
        }
        return await ensured_topic(self._broker, name, TopicConfig(1, replication))


class TopicDeadLetters:
    """The port of one topic's subscriptions (``subscription_answers.DeadLetters``)."""

    def __init__(self, topics: DeadLetterTopics, topic: TopicInfo) -> None:
        self._topics = topics
        self._topic = topic

    async def forward(self, info: SubscriptionInfo, partition: int, message: PulledMessage) -> None:
        """Append the message to the dead letter topic: see ``DeadLetterTopics.forward``."""
        await self._topics.forward(self._topic, info, partition, message)


def dead_letter_topic(source: TopicName, info: SubscriptionInfo) -> TopicName:
    """Return the name of the dead letter topic. Raises FencelogError(INVALID_NAME): the default
    name is too long."""
    if info.config.dead_letter_topic is not None:
        return TopicName.parse(info.config.dead_letter_topic)
    return TopicName.of(source.namespace, f"{source.topic}-{info.name}-dead")


def replay_name(subscription_id: str) -> str:
    """Return the name of the subscription of a dead letter topic that remembers what was
    replayed."""
    return f"replay-{subscription_id}"


def dead_letter(
    source: TopicName, subscription: str, partition: int, message: PulledMessage
) -> Message:
    """Return the message with its origin in its headers; of its own headers as many as fit, and how
    many were left out."""
    value, key, event_time, headers = message.message
    origin = (
        (ORIGIN_TOPIC, str(source).encode()),
        (ORIGIN_PARTITION, b"%d" % partition),
        (ORIGIN_OFFSET, b"%d" % message.offset),
        (ORIGIN_ATTEMPTS, b"%d" % message.attempt),
        (ORIGIN_SUBSCRIPTION, subscription.encode()),
    )
    own = without_ours(headers)
    kept = own
    while not _fits((*origin, *_omitted(len(own) - len(kept)), *kept)):
        kept = kept[:-1]
    return Message(value, key, event_time, (*origin, *_omitted(len(own) - len(kept)), *kept))


def replayed(message: Message, subscription: str) -> Message:
    """Return a dead letter as it is appended to its origin again, for one subscription only."""
    value, key, event_time, headers = message
    own = (*without_ours(headers), (REPLAY_FOR, subscription.encode()))
    return Message(value, key, event_time, own)


def without_ours(headers: Iterable[tuple[str, bytes]]) -> Headers:
    return tuple(header for header in headers if header[0] not in _OURS)


def _omitted(count: int) -> Headers:
    return ((HEADERS_OMITTED, b"%d" % count),) if count else ()


def _fits(headers: Headers) -> bool:
    size = sum(len(name.encode()) + len(value) for name, value in headers)
    return len(headers) <= MAX_HEADERS and size <= MAX_HEADER_BYTES
