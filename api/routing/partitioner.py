"""The choice of a message's partition: the one that was named, its key's, or the next in turn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c

_MAX_REMEMBERED = 4096


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the CRC32C of the key, modulo the number of partitions: the same for every client and
    broker."""
    return crc32c(key) % partitions


def named_partition(text: str, partitions: int, topic: TopicName) -> int:
    """Return the partition of a ``?partition=``. Raises FencelogError: BAD_REQUEST, NOT_FOUND."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"partition {text[:40]!r} is no number", parameter="partition"
        )
    if int(text) >= partitions:
        raise FencelogError(
            ErrorCode.NOT_FOUND, f"topic {topic} has {partitions} partitions, no {int(text)}"
        )
    return int(text)


class RoundRobin:
    """A round robin over the partitions of each topic (or whatever ``topic`` is), one for each
    request: a request stays whole."""

    def __init__(self) -> None:
        self._next: dict[Hashable, int] = {}

    def next(self, topic: Hashable, partitions: int) -> int:
        if partitions == 1:
            return 0
        turn = self._next.get(topic, 0)
        if turn == 0 and len(self._next) >= _MAX_REMEMBERED:
            self._next.clear()
        self._next[topic] = turn + 1
        return turn % partitions

    def take_back(self, topic: Hashable) -> None:
        """Take back the last turn, which was not used: the next request gets it."""
        turn = self._next.get(topic, 0)
        if turn:
            self._next[topic] = turn - 1


def group_by_partition(
    keys: Sequence[bytes | None], partitions: int, unkeyed: int
) -> dict[int, list[int]]:
    """Return the positions of a batch's messages by partition, in order; those without a key go
    together."""
    groups: dict[int, list[int]] = {}
    for position, key in enumerate(keys):
        partition = unkeyed if key is None else crc32c(key) % partitions
        groups.setdefault(partition, []).append(position)
    return groups
