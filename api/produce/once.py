"""Appends under an idempotency key that name no partition: the first one is found again, whatever
number of partitions the topic had when it was written (``broker.append.once``).

``POST …/partitions/P:find-key`` is a request between brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from fencelog.api.http.asgi import JSON, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.targets import Endpoint, Target
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.requests import read_body
from fencelog.broker.append.conditions import AppendConditions, AppendResult, Repeated
from fencelog.broker.append.once import route_once
from fencelog.broker.names import TopicName
from fencelog.broker.partition.forwards import OwnerLost
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_KEY, SequenceRange
from fencelog.ledgers.record_batch import CONTENTS_BYTES

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

MAX_REQUEST_BYTES = 1024


class FindKeyRequest(Struct, forbid_unknown_fields=True):
    """A look for the append under an idempotency key. ``id`` and ``contents``: digests;
    ``topic_id`` and ``partitions``: what the topic has, as far as the broker that asks knows."""

    id: bytes
    contents: bytes
    topic_id: str
    partitions: int


class FoundAppend(Struct):
    partition: int
    offset: int
    count: int
    publish_time: int


class FindKeyAnswer(Struct):
    """The append that was found. Without one, none that was routed by a smaller number follows."""

    found: FoundAppend | None


class Once:
    """Routes appends under idempotency keys."""

    def __init__(
        self, broker: Broker, ownership: OwnerProxy, forwarder: Forwarder, bodies: BodyReader
    ) -> None:
        self._broker = broker
        self._ownership = ownership
        self._forwarder = forwarder
        self._bodies = bodies

    async def route(
        self, topic: TopicInfo, conditions: AppendConditions, place: int
    ) -> AppendResult | tuple[int, AppendConditions]:
        """Return the append that this one repeats, if it is in a previous partition, or else the
        partition and the conditions to append with. ``place``, modulo the number of partitions,
        chooses. Raises FencelogError: nothing was written."""

        async def find(partition: int, sequences: SequenceRange) -> AppendResult | None:
            request = FindKeyRequest(
                sequences.id, sequences.contents, topic.topic_id, topic.config.partitions
            )
            try:
                answer = await self._find(topic.name, partition, request)
            except FencelogError as error:
                if error.code.effects is not Effects.MAYBE:
                    raise
                raise FencelogError(
                    ErrorCode.NO_OWNER,
                    f"partition {partition} of {topic.name} does not tell whether it has the "
                    f"append: {error.detail}",
                ) from error
            found = answer.found
            if found is None:
                return None
            return Repeated(found.partition, found.offset, found.count, found.publish_time)

        return await route_once(
            topic, conditions, place, now_us=self._broker.host.now_us(), find=find
        )

    async def check(self, topic: TopicName, conditions: AppendConditions | None) -> None:
        """Check that an append that another broker has routed was routed by as many partitions as
        the topic has: that broker may know fewer, or a deleted topic of this name. Raises
        METADATA_CONFLICT."""
        routed_by = None if conditions is None else conditions.routed_by
        if routed_by is not None:
            info = await self._broker.topic(topic, routed_by - 1)
            if routed_by != info.config.partitions:
                raise _conflict(info, f"the partition was chosen among {routed_by}")

    async def find_key(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"found"}``. Raises IDEMPOTENCY_KEY_REUSED, STATE_UNKNOWN, …."""
        exchange.query(frozenset())
        body = await self._bodies.read(exchange, MAX_REQUEST_BYTES)
        request = read_body(exchange, body, FindKeyRequest)
        answer = await self._find(target.topic, target.partition, request, exchange)
        await exchange.respond(200, JSON, msgspec.json.encode(answer))

    async def _find(
        self,
        topic: TopicName,
        partition: int,
        request: FindKeyRequest,
        exchange: Exchange | None = None,
    ) -> FindKeyAnswer:
        sequences = SequenceRange(
            0, RANGE_KEY, _digest(request.id), contents=_digest(request.contents, empty=True)
        )

        async def local(log: PartitionLog) -> FindKeyAnswer:
            # The answer is a promise for good, so it is given only by the number of this topic.
            info = await self._broker.topic(topic, request.partitions - 1)
            if info.topic_id != request.topic_id or info.config.partitions < request.partitions:
                raise _conflict(info, f"a key was looked for among {request.partitions}")
            found = await log.access.find_key(sequences, request.partitions)
            if found is None:
                return FindKeyAnswer(None)
            place = (found.partition, found.offset, found.count, found.publish_time_us)
            return FindKeyAnswer(FoundAppend(*place))

        async def remote(url: str) -> FindKeyAnswer:
            verb = Endpoint.FIND_KEY.value
            path = f"/v1/topics/{topic.namespace}/{topic.topic}/partitions/{partition}:{verb}"
            body = msgspec.json.encode(request)
            unknown = ErrorCode.STATE_UNKNOWN
            answer = await self._forwarder.ask("POST", url, path, b"", body, lost=unknown)
            return msgspec.json.decode(answer, type=FindKeyAnswer)

        try:
            return await self._ownership.at_owner(exchange, topic, partition, local, remote)
        except OwnerLost as error:
            raise FencelogError(
                ErrorCode.NO_OWNER, f"the owner does not answer: {error}"
            ) from error


def _conflict(topic: TopicInfo, what: str) -> FencelogError:
    return FencelogError(
        ErrorCode.METADATA_CONFLICT,
        f"{what}; {topic.name} has {topic.config.partitions} partitions",
    )


def _digest(value: bytes, *, empty: bool = False) -> bytes:
    if len(value) != CONTENTS_BYTES and not (empty and not value):
        raise FencelogError(ErrorCode.BAD_REQUEST, f"a digest has {CONTENTS_BYTES} bytes")
    return value
