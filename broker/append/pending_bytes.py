"""Limits of the bytes of appends in flight, in one partition and in its broker."""

from __future__ import annotations

from fencelog.broker.append.rates import PublishLimits
from fencelog.broker.limits import MAX_BROKER_PENDING_BYTES, MAX_PARTITION_PENDING_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError


class PendingBytes:
    """The bytes of all appends that wait in one broker; shared by its partitions."""

    def __init__(self, limit: int = MAX_BROKER_PENDING_BYTES) -> None:
        self.limit = limit
        self.total = 0


class PendingBytesLimit:
    """The limit of one partition. ``limit``: in bytes; ``limits``: rates and quotas, None if there
    are none. An append larger than the limit is admitted when no other is in flight."""

    __slots__ = ("_broker", "limit", "limits", "partition", "pending_bytes")

    def __init__(self, partition: int, broker: PendingBytes) -> None:
        self.partition = partition
        self.pending_bytes = 0
        self.limit = MAX_PARTITION_PENDING_BYTES
        self.limits: PublishLimits | None = None
        self._broker = broker

    def admit(self, size: int, count: int) -> None:
        """Count an append of ``count`` messages. Raises FencelogError: OVERLOADED, RATE_LIMITED,
        BACKLOG_QUOTA_EXCEEDED."""
        pending, broker = self.pending_bytes, self._broker
        if pending + size > self.limit and pending:
            raise _overloaded(pending, f"partition {self.partition}")
        if broker.total + size > broker.limit:
            raise _overloaded(broker.total, "this broker")
        if self.limits is not None:
            self.limits.admit(count, size)
        self.pending_bytes = pending + size
        broker.total += size

    def count(self, size: int) -> None:
        """Add ``size`` bytes, which may be negative, to the bytes that wait."""
        self.pending_bytes += size
        self._broker.total += size


def _overloaded(waiting: int, where: str) -> FencelogError:
    return FencelogError(ErrorCode.OVERLOADED, f"{waiting} bytes of appends wait in {where}")
