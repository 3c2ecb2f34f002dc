"""The parameters of the requests on plain ASGI, and the parts of all paths, as types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from fencelog.api.http.json_render import ValueForm
from fencelog.api.http.message_headers import DELIVER_AT, EVENT_TIME, KEY, KEY_BASE64
from fencelog.api.http.read_request import NamedPosition
from fencelog.api.routing.forward import OWNER_HEADER
from fencelog.api.subscriptions.requests import Consumer, LeaseMs, Offset, Partition, WaitSeconds
from fencelog.broker.limits import (
    MAX_CHOSEN_EPOCH,
    MAX_DELIVERY_DELAY_MS,
    MAX_FENCING_TOKEN_BYTES,
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_PARTITIONS,
    MAX_READ_MESSAGES,
    MAX_VIEWED_LEDGERS,
)
from fencelog.broker.names import NAME_PATTERN
from fencelog.ledgers.limits import MAX_READ_BYTES

Shape = Any
"""A type that msgspec knows, or a JSON schema for what has no type: raw bytes."""

Name = Annotated[str, Meta(pattern=f"^{NAME_PATTERN}$")]
BookieName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][\w.:-]*$")]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Base64 = Annotated[str, Meta(extra_json_schema={"format": "byte"})]

PLACES: Mapping[str, Shape] = {
    "bookie_id": BookieName,
    "broker_id": str,
    "ledger_id": Offset,
    "namespace": Name,
    "offset": Offset,
    "partition": Partition,
    "producer": Name,
    "committer": Name,
    "subscription": Name,
    "topic": Name,
}
"""The parts of paths."""

QUERY: Mapping[str, tuple[Shape, str]] = {
    "as": (ValueForm, "How values are shown in JSON"),
    "before": (Offset, "The ledgers that begin below this offset; by default the newest"),
    "confirmed": (bool, "Whether the owner verifies first that no other broker has replaced it"),
    "consumer": (Consumer, "Who asks"),
    "delay_ms": (
        Annotated[int, Meta(ge=0, le=MAX_DELIVERY_DELAY_MS)],
        "Subscriptions hand it out so much later",
    ),
    "epoch": (Offset, "The epoch of the claim"),
    "from": (Offset | NamedPosition, "Where to begin; by default at the earliest"),
    "from_offset": (Offset, "Leave out the ledgers before it"),
    "from_time": (Offset, "Instead: the first message published at or after it"),
    "key": (str, "The key, percent-encoded: its partition takes the message, or the whole batch"),
    "lease_ms": (LeaseMs, "How long each message is leased"),
    "ledgers": (Annotated[int, Meta(ge=1, le=MAX_VIEWED_LEDGERS)], "Ledgers at most"),
    "limit": (Annotated[int, Meta(ge=1, le=MAX_READ_MESSAGES)], "Messages at most"),
    "max_bytes": (Annotated[int, Meta(ge=1, le=MAX_READ_BYTES)], "Stored bytes at most"),
    "partition": (Partition, "This partition only"),
    "refresh": (Offset, "A ledger whose metadata the owner reads anew"),
    "routed_by": (
        Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)],
        "From another broker: the number of partitions it chose among",
    ),
    "time": (Offset, "Which offset is the first that was published at or after it?"),
    "topic_id": (str, "Only of the topic with this id, not of a later one of that name"),
    "view": (Literal["log", "compacted"], "compacted: the newest of every key"),
    "wait": (WaitSeconds, "Seconds to wait at the tail"),
}
"""The query parameters by name."""

REQUIRED = frozenset(("epoch",))
"""The query parameters without a default."""

LAST_EVENT_ID = b"last-event-id"
IF_NONE_MATCH = b"if-none-match"
PREFER = frozenset((b"prefer",))
OWNER = {OWNER_HEADER.decode().title(): str}
MESSAGE_HEADERS = frozenset((KEY, KEY_BASE64, EVENT_TIME, DELIVER_AT))
HEADERS: Mapping[bytes, tuple[Shape, str]] = {
    KEY: (str, "The message's key"),
    KEY_BASE64: (Base64, "The key in base64, instead of `Fencelog-Key`"),
    EVENT_TIME: (Int64, "µs since 1970 UTC"),
    DELIVER_AT: (Offset, "Subscriptions hand it out then; µs since 1970 UTC"),
    b"prefer": (str, "`redirect`: to the owner, with 307, instead of being forwarded to it"),
    IF_NONE_MATCH: (str, "The `ETag` that the client has"),
    LAST_EVENT_ID: (Offset, "Event streams go on after this offset"),
    b"producer-id": (Name, "Who appends; the append is written once"),
    b"producer-epoch": (
        Annotated[int, Meta(ge=0, le=MAX_CHOSEN_EPOCH)],
        "Which instance of it; a higher one ends the lower ones",
    ),
    b"producer-seq": (Offset, "The number of the first message, without a gap from 0"),
    b"idempotency-key": (
        Annotated[str, Meta(min_length=1, max_length=MAX_IDEMPOTENCY_KEY_BYTES)],
        "The append is written once",
    ),
    b"if-offset": (Offset, "Only if the first message gets this offset"),
    b"fencing-token": (
        Annotated[str, Meta(max_length=MAX_FENCING_TOKEN_BYTES)],
        "Only while this is the partition's",
    ),
}
"""The header parameters by name."""
