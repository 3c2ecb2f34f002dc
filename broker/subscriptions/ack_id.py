"""Ack ids: the identity of a delivery of a message, as text that its consumer gives back.

``PARTITION-EPOCH-GENERATION-OFFSET-DELIVERY-CHECK``: the owner's epoch, the generation of the
cursor (a seek raises it), the number of the pull within the owner's epoch, and a CRC32C over all of
it and the subscription's id, so that a damaged id, or that of another subscription, acknowledges
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c

_PARTS = 6
_MAX_DIGITS = 9
"""The digits of a partition's number, so that text from outside never becomes a huge number."""


class AckId(NamedTuple):
    partition: int
    epoch: int
    generation: int
    offset: int
    delivery: int


def ack_id_maker(
    subscription_id: str, *, partition: int, epoch: int, generation: int, delivery: int
) -> Callable[[int], str]:
    """Return a function that makes the ids of one pull, from an offset each."""
    head = f"{partition}-{epoch}-{generation}-"
    seed = crc32c(head.encode(), crc32c(subscription_id.encode()))

    def make(offset: int) -> str:
        tail = f"{offset}-{delivery}"
        return f"{head}{tail}-{crc32c(tail.encode(), seed):08x}"

    return make


def parse_ack_ids(texts: Iterable[str], subscription_id: str) -> list[AckId]:
    """Parse ack ids. Raises FencelogError(BAD_REQUEST) if one of them is not valid, or belongs to
    another subscription."""
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
    """Return the partition whose owner issued the id. Raises FencelogError(BAD_REQUEST)."""
    parts = text.split("-")
    if len(parts) != _PARTS or not (parts[0].isascii() and parts[0].isdigit()):
        raise _bad(text, "is none")
    return int(parts[0][:_MAX_DIGITS])


def _bad(text: str, what: str) -> FencelogError:
    shown = text.encode(errors="replace").decode()[:100]
    return FencelogError(ErrorCode.BAD_REQUEST, f"ack id {shown!r} {what}", field="ack_ids")
