"""Ack ids: which message was handed out when, as text that its consumer gives back.

``PARTITION-EPOCH-GENERATION-OFFSET-DELIVERY-CHECK``: the owner's epoch, the generation of the
cursor (a seek raises it), the number of the pull within the owner's time, and a CRC32C over all of
it and the subscription's id, so that a mutilated id, or another subscription's, acknowledges
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c

_PARTS = 6
_MAX_DIGITS = 9
"""Of a partition's number, so that text from outside never becomes a huge one."""


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
        body, _, check = text.rpartition("-")
        try:
            if f"{crc32c(body.encode(), seed):08x}" != check:
                raise ValueError
            parsed.append(AckId(*map(int, body.split("-"))))
        except (ValueError, TypeError):
            raise _bad(text, "is none, or was not given by this subscription") from None
    return parsed


def partition_of_ack_id(text: str) -> int:
    """The partition whose owner gave it out. Raises FencelogError(BAD_REQUEST)."""
    parts = text.split("-")
    if len(parts) != _PARTS or not (parts[0].isascii() and parts[0].isdigit()):
        raise _bad(text, "is none")
    return int(parts[0][:_MAX_DIGITS])


def _bad(text: str, what: str) -> FencelogError:
    shown = text.encode(errors="replace").decode()[:100]
    return FencelogError(ErrorCode.BAD_REQUEST, f"ack id {shown!r} {what}", field="ack_ids")
