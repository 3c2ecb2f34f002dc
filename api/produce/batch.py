"""The endpoint that appends many messages: ``POST …/messages:batch`` in four media types.

A batch that goes to one partition is one entry there: all of it is written or nothing. Without
``?partition=`` or ``?key=``, messages with keys, those of a record batch too, go to their keys'
partitions and the others stay together; the messages for one partition are written as a whole.
When only some partitions could be written the answer is a problem with ``appended`` and ``failed``,
never a 201.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fencelog.api.http.asgi import BATCH, JSON, NDJSON, TEXT, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.json_messages import Columns
from fencelog.api.http.message_headers import refuse_metadata
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.problems import problem
from fencelog.api.http.request_ids import current_contexts, note_acknowledged
from fencelog.api.http.targets import Target
from fencelog.api.produce.append_headers import (
    ROUTED_BY,
    appended_status,
    check_partition_is_certain,
    read_conditions,
    routed_by,
    routed_query,
)
from fencelog.api.produce.batch_bodies import parse_json, parse_ndjson, parse_text
from fencelog.api.produce.once import Once
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.routing.partitioner import (
    RoundRobin,
    group_by_partition,
    named_partition,
    partition_of_key,
)
from fencelog.broker.append.conditions import FORGOTTEN, AppendResult
from fencelog.broker.append.once import is_routed_by_key, place_of
from fencelog.broker.limits import MAX_BODY_BYTES
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.record_batch import (
    CODEC_NONE,
    HAS_EVENT_TIME,
    HAS_HEADERS,
    encode_columns,
    has_keys,
    open_batch,
)
from fencelog.ledgers.record_batch.check import check_batch

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

PARAMETERS = frozenset(("partition", "key", ROUTED_BY))

_PARSERS: Mapping[bytes, Callable[[bytes], Columns]] = {
    JSON: parse_json,
    NDJSON: parse_ndjson,
    TEXT: parse_text,
}
_CHARSETS = (b"", b"utf-8", b"utf8", b"us-ascii")
_TAKEN = ", ".join(media.decode() for media in (*_PARSERS, BATCH))


class Part(msgspec.Struct, frozen=True):
    """The messages that one partition took: ``count`` from ``offset`` on (None: of a duplicate
    whose offset is not remembered)."""

    partition: int
    offset: int | None
    count: int


class AppendedBatch(msgspec.Struct):
    """The number of messages that are durable, and the part of each partition."""

    count: int
    appended: list[Part]


class ProduceBatch:
    """The endpoint for batches."""

    def __init__(
        self,
        broker: Broker,
        ownership: OwnerProxy,
        forwarder: Forwarder,
        round_robin: RoundRobin,
        once: Once,
        bodies: BodyReader,
        metrics: ApiMetrics,
    ) -> None:
        self._broker = broker
        self._ownership = ownership
        self._forwarder = forwarder
        self._round_robin = round_robin
        self._once = once
        self._bodies = bodies
        self._metrics = metrics

    async def post(self, exchange: Exchange, target: Target) -> None:
        """Answer 201 with one element of ``appended`` for each partition that took messages; 200 if
        an earlier request had written them, which this one repeats.

        Raises FencelogError: with ``side_effects`` "none" nothing of the batch was written.
        """
        started_us = self._broker.host.now_us()
        media_type = _media_type(exchange)
        refuse_metadata(exchange.headers)
        query = exchange.query(PARAMETERS)
        body = await self._bodies.read(exchange, MAX_BODY_BYTES)
        topic = target.topic
        info = await self._broker.topic(topic)
        count = info.config.partitions
        partition = _chosen_partition(query, count, topic)
        conditions = read_conditions(exchange.headers)
        if conditions is not None:
            named = "partition" in query
            check_partition_is_certain(
                conditions, partition=named, key="key" in query, partitions=count
            )
            conditions = conditions._replace(routed_by=routed_by(query))
            if not named and is_routed_by_key(conditions):
                batch = _one_batch(media_type, body, is_keyed="key" in query or count == 1)
                conditions = conditions.of(batch)
                place = place_of(conditions, _key(query))
                routed = await self._once.route(info, conditions, place)
                if isinstance(routed, AppendResult):
                    await self._answer(exchange, [_part(routed)], len(body), started_us, routed)
                    return
                partition, conditions = routed
        if partition is None:
            partition = self._round_robin.next(topic, count)
            if count > 1 and (media_type != BATCH or has_keys(body)):
                columns, codec = _parsed(media_type, body)
                groups = group_by_partition(columns.keys or (), count, partition)
                if len(groups) > 1:
                    parts = await self._scatter(exchange, topic, columns, groups, codec)
                    await self._answer(exchange, parts, len(body), started_us)
                    return
                partition = next(iter(groups), partition)

        async def append(log: PartitionLog) -> None:
            await self._once.check(topic, conditions)
            batch = body
            if media_type != BATCH:
                batch = encode_columns(*_PARSERS[media_type](body))
            checked = check_batch(batch)
            held = None if conditions is None else conditions.of(batch)
            future = log.append_batch(batch, checked, held)
            log.follow(future, current_contexts())
            appended = await future
            await self._answer(exchange, [_part(appended)], len(body), started_us, appended)

        # All of it to one partition; another owner gets the body as it came.
        passed = routed_query(partition, conditions)
        await self._ownership.serve(exchange, topic, partition, append, query=passed, body=body)

    async def _scatter(
        self,
        exchange: Exchange,
        topic: TopicName,
        columns: Columns,
        groups: Mapping[int, Sequence[int]],
        codec: int,
    ) -> list[Part]:
        """Append each partition's messages to it, at the same time."""
        # Every group is encoded and checked before the first one is appended: a message over a
        # limit must leave nothing written.
        batches = {
            partition: encode_columns(*columns.take(rows), codec=codec)
            for partition, rows in groups.items()
        }
        infos = {partition: check_batch(batch) for partition, batch in batches.items()}

        async def append(partition: int, batch: bytes) -> Part:
            async def local(log: PartitionLog) -> Part:
                future = log.append_batch(batch, infos[partition])
                log.follow(future, current_contexts())
                return _part(await future)

            async def remote(url: str) -> Part:
                path = str(exchange.path)
                answer = await self._forwarder.append_batch(url, path, partition, batch)
                return Part(answer.partition, answer.offset, answer.count)

            return await self._ownership.at_owner(exchange, topic, partition, local, remote)

        results = await asyncio.gather(
            *(append(partition, batch) for partition, batch in sorted(batches.items())),
            return_exceptions=True,
        )
        return _all_or_problem(sorted(batches), results, exchange.path)

    async def _answer(
        self,
        exchange: Exchange,
        parts: list[Part],
        body_bytes: int,
        started_us: int,
        appended: AppendResult | None = None,
    ) -> None:
        """Answer with all parts; ``appended``: the only one, done by this broker."""
        acknowledged_us = 0 if appended is None else appended.acknowledged_us
        note_acknowledged(acknowledged_us)
        is_duplicate = appended is not None and appended.duplicate
        count = sum(part.count for part in parts)
        answer = msgspec.json.encode(AppendedBatch(count, parts))
        status, headers = appended_status(is_duplicate)
        await exchange.respond(status, JSON, answer, headers)
        if is_duplicate:
            return
        now_us = self._broker.host.now_us()
        self._metrics.appended(count, body_bytes, now_us - started_us)
        if acknowledged_us:
            self._broker.metrics.reply_time.observe_us(now_us - acknowledged_us)


def _parsed(media_type: bytes, body: bytes) -> tuple[Columns, int]:
    """Return the messages of a batch, and the codec of its parts."""
    if media_type != BATCH:
        return _PARSERS[media_type](body), CODEC_NONE
    info, view = open_batch(body)
    columns = Columns(
        view.values(),
        view.keys(),
        view.event_time_list() if info.columns & HAS_EVENT_TIME else None,
        view.headers() if info.columns & HAS_HEADERS else None,
    )
    return columns, info.codec


def _part(appended: AppendResult) -> Part:
    offset = None if appended.offset == FORGOTTEN else appended.offset
    return Part(appended.partition, offset, appended.count)


def _media_type(exchange: Exchange) -> bytes:
    if exchange.header(b"content-encoding") is not None:
        raise FencelogError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding is not supported")
    media_type = exchange.media_type()
    if media_type not in _PARSERS and media_type != BATCH:
        given = media_type.decode("latin-1") or "none"
        raise FencelogError(
            ErrorCode.UNSUPPORTED_MEDIA_TYPE, f"Content-Type is {given}; taken are {_TAKEN}"
        )
    charset = exchange.charset()
    if charset not in _CHARSETS:
        raise FencelogError(
            ErrorCode.UNSUPPORTED_MEDIA_TYPE,
            f"charset is {charset[:40].decode('latin-1')}; a batch is UTF-8",
        )
    return media_type


def _chosen_partition(query: dict[str, str], count: int, topic: TopicName) -> int | None:
    """Return the partition that the query names or implies, for the whole batch."""
    if "partition" in query:
        if "key" in query:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, "partition and key cannot both choose", parameter="key"
            )
        return named_partition(query["partition"], count, topic)
    key = _key(query)
    return None if key is None else partition_of_key(key, count)


def _key(query: Mapping[str, str]) -> bytes | None:
    return query["key"].encode("utf-8", "surrogateescape") if "key" in query else None


def _one_batch(media_type: bytes, body: bytes, *, is_keyed: bool) -> bytes:
    """Return the record batch of messages that go to one partition together. Raises
    FencelogError(BAD_REQUEST) if they have keys of their own, and none for all (``is_keyed``)."""
    batch = body if media_type == BATCH else encode_columns(*_PARSERS[media_type](body))
    if not is_keyed and has_keys(batch):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            "the topic has several partitions, and the messages have keys: Idempotency-Key needs "
            "?partition=, or ?key= for all of them",
        )
    return batch


def _all_or_problem(
    partitions: list[int], results: list[Part | BaseException], instance: str
) -> list[Part]:
    """Return the parts, if every partition took its own.

    If none did, and certainly so, the first error stands for all of them; otherwise the outcome is
    a mixed one, which APPEND_UNKNOWN with its details says.
    """
    parts = [result for result in results if isinstance(result, Part)]
    errors: dict[int, FencelogError] = {}
    for partition, result in zip(partitions, results, strict=True):
        if isinstance(result, FencelogError):
            errors[partition] = result
        elif isinstance(result, BaseException):
            raise result
    if not errors:
        return parts
    if not parts and all(error.code.effects is Effects.NONE for error in errors.values()):
        raise next(iter(errors.values()))
    failed: list[dict[str, Any]] = [
        {"partition": partition, **problem(error, instance)} for partition, error in errors.items()
    ]
    raise FencelogError(
        ErrorCode.APPEND_UNKNOWN,
        f"{len(parts)} of {len(partitions)} partitions took their messages",
        appended=[msgspec.to_builtins(part) for part in parts],
        failed=failed,
    )
