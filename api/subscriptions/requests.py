"""The bodies of requests to a subscription, and the answers that brokers give each other to them.

They are decoded by msgspec in C; messages and ack ids are never looked at one by one here.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from fencelog.api.http.asgi import JSON, Exchange
from fencelog.api.http.json_render import ValueForm
from fencelog.api.http.read_request import MAX_OFFSET
from fencelog.broker.limits import (
    MAX_ACK_IDS,
    MAX_CONSUMER_NAME_BYTES,
    MAX_LEASE_MS,
    MAX_NACK_DELAY_MS,
    MAX_PARTITIONS,
    MAX_PULL_MESSAGES,
    MAX_WAIT_MS,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_READ_BYTES, MIB

T = TypeVar("T", bound=Struct)

Offset = Annotated[int, Meta(ge=0, le=MAX_OFFSET)]
Partition = Annotated[int, Meta(ge=0, le=MAX_PARTITIONS - 1)]
LeaseMs = Annotated[int, Meta(ge=1, le=MAX_LEASE_MS)]
Consumer = Annotated[str, Meta(max_length=MAX_CONSUMER_NAME_BYTES)]
AckIds = Annotated[list[str], Meta(min_length=1, max_length=MAX_ACK_IDS)]
WaitSeconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_MS / 1000)]


class PartitionOffset(Struct, forbid_unknown_fields=True, frozen=True):
    partition: Partition
    offset: Offset


PartitionOffsets = Annotated[list[PartitionOffset], Meta(min_length=1, max_length=MAX_PARTITIONS)]


class PullRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """A pull: ``max`` messages and ``max_bytes`` at most; ``wait`` in seconds while there is
    none."""

    max: Annotated[int, Meta(ge=1, le=MAX_PULL_MESSAGES)] = 100
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_READ_BYTES)] = MIB
    wait: WaitSeconds = 0
    lease_ms: LeaseMs | None = None
    consumer: Consumer = ""
    value_form: ValueForm = field(name="as", default=ValueForm.TEXT)


class WaitRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """A wait request between brokers, for partitions that the other one owns."""

    partitions: Annotated[list[Partition], Meta(min_length=1, max_length=MAX_PARTITIONS)]
    wait: WaitSeconds = 0
    consumer: Consumer = ""


class LeaseRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """A request between brokers: the consumer holds the subscription for this long; ``renew``: only
    if it already does."""

    consumer: Consumer = ""
    lease_ms: LeaseMs | None = None
    renew: bool = False


class AckRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """An acknowledgement with exactly one of ``ack_ids`` and ``through``: everything up to these
    messages, included, named by an ack id for each partition."""

    ack_ids: AckIds | None = None
    through: Annotated[list[str], Meta(min_length=1, max_length=MAX_PARTITIONS)] | None = None
    consumer: Consumer = ""


class NackRequest(Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Messages that are given back: those of ``ack_ids``, or all that a ``consumer`` has. Exactly
    one of them. ``failed``: as failures, which are counted, and after a delay; otherwise unused,
    and at once. Brokers leave defaults out among themselves: while they are updated one by one, one
    that does not know ``failed`` yet takes every failure."""

    ack_ids: AckIds | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_NACK_DELAY_MS)] | None = None
    failed: bool = True
    consumer: Consumer | None = None


class ExtendRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """An extension of leases. ``consumer``: the one that extends; it stays the one consumer of an
    exclusive subscription."""

    ack_ids: AckIds
    lease_ms: LeaseMs
    consumer: Consumer = ""


class SeekRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """A seek with exactly one of its members. ``time`` in µs since 1970 UTC: the first message
    published then or later."""

    to: Literal["earliest", "latest"] | None = None
    time: Offset | None = None
    offsets: PartitionOffsets | None = None


class ReplayRequest(Struct, forbid_unknown_fields=True, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_PULL_MESSAGES)] = 1000


class CursorRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """A request between brokers about this very subscription, whichever one currently has its
    name."""

    subscription_id: str


class Pulled(Struct, frozen=True):
    """The messages as JSON, each as it is sent on."""

    messages: list[Raw]


class Ready(Struct, frozen=True):
    """The partitions that have messages, or that the broker asked does not own."""

    partitions: list[int]


class Acked(Struct, frozen=True):
    acked: int = 0
    stale: list[str] = []


class Stale(Struct, frozen=True):
    stale: list[str] = []


class FoundOffsets(Struct, frozen=True):
    offsets: list[PartitionOffset]


class Done(Struct, frozen=True):
    """The empty answer ``{}``."""


class Replayed(Struct, frozen=True):
    replayed: int


def read_body(exchange: Exchange, body: bytes, type_: type[T]) -> T:
    """Decode a body; an empty body is ``{}``. Raises FencelogError: BAD_REQUEST,
    UNSUPPORTED_MEDIA_TYPE."""
    if body and exchange.media_type() != JSON:
        given = exchange.media_type().decode("latin-1") or "none"
        raise FencelogError(
            ErrorCode.UNSUPPORTED_MEDIA_TYPE, f"Content-Type is {given}; taken is application/json"
        )
    try:
        return msgspec.json.decode(body or b"{}", type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"the body: {error}") from None


def only_one(request: Struct, *names: str) -> str:
    """Return the name of the one member that is given. Raises FencelogError(BAD_REQUEST)."""
    given = [name for name in names if getattr(request, name) is not None]
    if len(given) != 1:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"the body: exactly one of {', '.join(names)} must be given"
        )
    return given[0]
