"""The head of a single post: what its headers and query say of the message, and its form on a link
from a broker to the partition's owner."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from fencelog.api.http.asgi import RawHeaders, parse_number, parse_query
from fencelog.api.http.message_headers import (
    INT64_MAX,
    INT64_MIN,
    METADATA_HEADERS,
    deliver_at_header,
    metadata_of,
    scan_headers,
)
from fencelog.api.produce.append_headers import (
    CONDITION_HEADERS,
    MAX_NUMBER,
    ROUTED_BY,
    conditions_of,
    routed_by,
)
from fencelog.api.routing.link_frames import decode_with_head, encode_with_head
from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.limits import MAX_DELIVERY_DELAY_MS
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format.entry_header import RANGE_KEY, RANGE_SEQUENCE, producer_digest
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts, check_contexts
from fencelog.ledgers.host import Host
from fencelog.ledgers.record_batch import Message, message_digest

PARAMETERS = frozenset(("partition", "key", "delay_ms", ROUTED_BY))

_PRODUCER_BYTES = len(producer_digest(b""))

_SCANNED = METADATA_HEADERS | CONDITION_HEADERS


@dataclass(slots=True)
class Post:
    """The properties of a message in the head of its single post."""

    topic: TopicName
    partition: str | None
    key: bytes | None
    event_time: int | None
    headers: tuple[tuple[str, bytes], ...]
    delay_ms: int | None
    conditions: AppendConditions | None

    def message(self, body: bytes, host: Host) -> Message:
        """Return the message as it is appended now. Its delay counts from here, by the host's
        clock."""
        headers = self.headers
        if self.delay_ms is not None:
            due_us = host.now_us() + self.delay_ms * 1000
            headers = (*headers, deliver_at_header(b"%d" % due_us))
        return Message(body, self.key, self.event_time, headers)

    def conditions_of(self, body: bytes) -> AppendConditions | None:
        """Return the conditions of an append of this body. A delay counts as it was
        given: a repetition has another due time."""
        if self.conditions is None or self.conditions.sequences is None:
            return self.conditions
        headers = self.headers
        if self.delay_ms is not None:
            headers = (*headers, ("delay_ms", b"%d" % self.delay_ms))
        message = Message(body, self.key, self.event_time, headers)
        return self.conditions.with_contents(message_digest(message))


def read_post(headers: RawHeaders, raw_query: bytes, topic: TopicName) -> Post:
    """Parse the head of a single post. Raises FencelogError(BAD_REQUEST)."""
    query = parse_query(raw_query, PARAMETERS) if raw_query else {}
    given, others = scan_headers(headers, _SCANNED)
    key, event_time, message_headers = metadata_of(given, others)
    if "key" in query:
        if key is not None:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, "both Fencelog-Key and ?key= are given", parameter="key"
            )
        key = query["key"].encode("utf-8", "surrogateescape")
    delay_ms = None
    if "delay_ms" in query:
        delay_ms = parse_number("delay_ms", query["delay_ms"], low=0, high=MAX_DELIVERY_DELAY_MS)
    conditions = conditions_of(given)
    if conditions is not None and ROUTED_BY in query:
        conditions = conditions._replace(routed_by=routed_by(query))
    partition = query.get("partition")
    return Post(topic, partition, key, event_time, message_headers, delay_ms, conditions)


class _PostHead(msgspec.Struct, array_like=True):
    """The head of an APPEND (``routing/link_frames.py``)."""

    topic: TopicName
    partition: int
    key: bytes | None
    event_time: int | None
    headers: tuple[tuple[str, bytes], ...]
    delay_ms: int | None
    conditions: AppendConditions | None
    contexts: Contexts = NO_CONTEXTS


_head = msgspec.msgpack.Decoder(_PostHead)


def encode_post(
    post: Post, partition: int, body: bytes, contexts: Contexts = NO_CONTEXTS
) -> tuple[bytes, bytes]:
    """Return the body of an APPEND to a partition, for requests that can be followed. Raises
    UnicodeEncodeError, OverflowError for what has no such form."""
    head = (
        post.topic,
        partition,
        post.key,
        post.event_time,
        post.headers,
        post.delay_ms,
        post.conditions,
        *((contexts,) if contexts else ()),
    )
    return encode_with_head(head, body)


def decode_post(frame: bytes) -> tuple[Post, int, bytes, Contexts]:
    """Return post, partition, body and contexts of an APPEND. Raises ProtocolError."""
    head, body = decode_with_head(_head, frame)
    if not _is_valid(head):
        raise ProtocolError("the head of an append has numbers or digests that none can have")
    post = Post(
        head.topic,
        str(head.partition),
        head.key,
        head.event_time,
        head.headers,
        head.delay_ms,
        head.conditions,
    )
    if head.contexts:
        check_contexts(head.contexts)
    return post, head.partition, body, head.contexts


def _is_valid(head: _PostHead) -> bool:
    """Tell whether the times and the conditions of an APPEND may be some of a post: they get into
    the log as they are."""
    if head.event_time is not None and not INT64_MIN <= head.event_time <= INT64_MAX:
        return False
    if head.delay_ms is not None and not 0 <= head.delay_ms <= MAX_DELIVERY_DELAY_MS:
        return False
    sequences = None if head.conditions is None else head.conditions.sequences
    return sequences is None or (
        sequences.rows == 1
        and sequences.kind in (RANGE_SEQUENCE, RANGE_KEY)
        and len(sequences.id) == _PRODUCER_BYTES
        and min(sequences.epoch, sequences.sequence) >= 0
        and max(sequences.epoch, sequences.sequence) <= MAX_NUMBER
    )
