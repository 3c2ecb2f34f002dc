"""Ack ids: which message was handed out when, as text that its consumer gives back.

``PARTITION-EPOCH-GENERATION-OFFSET-DELIVERY-CHECK``: the owner's epoch, the generation of the
cursor (a seek raises it), the number of the pull within the owner's time, and a CRC32C over all of
it and the subscription's id, so that a mutilated id, or another subscription's, acknowledges
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def parse_ack_ids(texts: Iterable[str], subscription_id: str) -> list[AckId]:
    """Raises FencelogError(BAD_REQUEST): one of them is none, or another subscription's."""
    seed = crc32c(subscription_id.encode())
    parsed: list[AckId] = []
    for text in texts:
        numbers = _numbers(text)
        body, _, check = text.rpartition("-")
        if f"{crc32c(body.encode(), seed):08x}" != check:
            raise _bad(text, "is damaged, or was not given by this subscription")
        parsed.append(AckId._make(numbers))
    return parsed


def partition_of_ack_id(text: str) -> int:
    """The partition whose owner gave it out. Raises FencelogError(BAD_REQUEST)."""
    return _numbers(text)[0]


def _numbers(text: str) -> list[int]:
    parts = text.split("-")
    if len(parts) == 6 and len(text) <= _MAX_LENGTH and text.isascii():
        del parts[5]
        if all(map(str.isdigit, parts)):
            return list(map(int, parts))
    raise _bad(text, "is none")


def _bad(text: str, what: str) -> FencelogError:
    return FencelogError(
        ErrorCode.BAD_REQUEST, f"ack id {text[:_MAX_LENGTH]!r} {what}", field="ack_ids"
    )
