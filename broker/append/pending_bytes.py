"""Room for appends on their way, in one partition and in its broker, and what else limits them."""

from __future__ import annotations

from fencelog.broker.append.pending import PendingBytes
from fencelog.broker.append.rates import PublishLimits
from fencelog.broker.limits import MAX_PARTITION_PENDING_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError


class PendingBytesLimit:
    """Of one partition. ``limit`` in bytes; ``limits``: rates and quotas, None while there are
    none. An append larger than the limit gets in where no other is on its way."""

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
        """So many bytes more, or fewer, wait."""
        self.pending_bytes += size
        self._broker.total += size


def _overloaded(waiting: int, where: str) -> FencelogError:
    return FencelogError(ErrorCode.OVERLOADED, f"{waiting} bytes of appends wait in {where}")
