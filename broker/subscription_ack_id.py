"""Ack ids: which message was handed out when, as text that its consumer gives back.

``PARTITION-EPOCH-GENERATION-OFFSET-DELIVERY-CHECK``: the owner's epoch, the generation of the
cursor (a seek raises it), the number of the pull within the owner's time, and a CRC32C over all of
it and the subscription's id, so that a mutilated id, or another subscription's, acknowledges
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fencelog.ledgers.digest import crc32c
from fencelog.ledgers.errors import ErrorCode, FencelogError

_MAX_LENGTH = 128


class AckId(NamedTuple):
    partition: int
    epoch: int
    generation: int
    offset: int
    delivery: int


def ack_id_maker(
    subscription_id: str, *, partition: int, epoch: int, generation: int, delivery: int
) -> Callable[[int], str]:
    """Makes the ids of one pull, of an offset each."""
    head = f"{partition}-{epoch}-{generation}-"
    seed = crc32c(head.encode(), crc32c(subscription_id.encode()))

    def make(offset: int) -> str:
        tail = f"{offset}-{delivery}"
        return f"{head}{tail}-{crc32c(tail.encode(), seed):08x}"

    return make


def parse_ack_id(text: str, subscription_id: str) -> AckId:
    """Raises FencelogError(BAD_REQUEST): it is none, or another subscription's."""
    body, _, check = text.rpartition("-")
    fields = _fields(text)
    if f"{crc32c(body.encode(), crc32c(subscription_id.encode())):08x}" != check:
        raise _bad(text, "is damaged, or was not given by this subscription")
    return AckId(*fields)


def partition_of_ack_id(text: str) -> int:
    """The partition whose owner gave it out. Raises FencelogError(BAD_REQUEST)."""
    return _fields(text)[0]


def _fields(text: str) -> list[int]:
    parts = text.split("-")
    if len(parts) == 6 and len(text) <= _MAX_LENGTH and text.isascii():
        numbers = parts[:5]
        if all(map(str.isdigit, numbers)):
            return [int(number) for number in numbers]
    raise _bad(text, "is none")


def _bad(text: str, what: str) -> FencelogError:
    return FencelogError(
        ErrorCode.BAD_REQUEST, f"ack id {text[:_MAX_LENGTH]!r} {what}", field="ack_ids"
    )
