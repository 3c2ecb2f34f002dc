"""Leases: the consumer of each delivered message, and for how long. Pure; times in seconds of any
one clock.

A lease covers the messages of one pull. It ends message by message, when each is acknowledged or
given back, or for all the remaining ones when its time is over. The heap of times is cleaned up
lazily, so that the costs of a lease do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

_SPARE = 64
"""The number of ended leases that may stay in the heap, beside as many as there are live ones."""


@dataclass(slots=True, eq=False)
class Lease:
    """A group of messages that were delivered together. ``delivery`` numbers the pull."""

    consumer: str
    delivery: int
    granted: float
    expires: float
    offsets: list[int]
    left: int = 0
    """The number of messages that it still covers."""


class Leases:
    """All leases of one subscription."""

    def __init__(self) -> None:
        self.by_offset: dict[int, Lease] = {}
        self._heap: list[tuple[float, int, Lease]] = []
        self._pushed = 0
        self._ended = 0

    def __len__(self) -> int:
        """Return the number of messages that are with consumers."""
        return len(self.by_offset)

    def grant(
        self, consumer: str, delivery: int, offsets: list[int], *, granted: float, expires: float
    ) -> None:
        """Grant a lease of messages that are with no consumer."""
        self._cover(Lease(consumer, delivery, granted, expires, offsets))

    def end(self, offset: int) -> Lease | None:
        """End the lease of a message; return it, if there was one."""
        lease = self.by_offset.pop(offset, None)
        if lease is not None:
            self._leave(lease)
        return lease

    def extend(self, offsets: Iterable[int], expires: float) -> None:
        """Extend the leases of these messages, which are with consumers, to ``expires``."""
        moved: dict[tuple[str, int], Lease] = {}
        for offset in offsets:
            lease = self.by_offset[offset]
            self._leave(lease)
            longer = moved.get((lease.consumer, lease.delivery))
            if longer is None:
                longer = Lease(lease.consumer, lease.delivery, lease.granted, expires, [])
                moved[lease.consumer, lease.delivery] = longer
            longer.offsets.append(offset)
        for longer in moved.values():
            self._cover(longer)

    def take_expired(self, now: float) -> list[int]:
        """End expired leases; return their messages, in order."""
        expired: list[int] = []
        while self._heap and (self._heap[0][2].left == 0 or self._heap[0][0] <= now):
            lease = heappop(self._heap)[2]
            if lease.left == 0:
                self._ended -= 1
                continue
            for offset in lease.offsets:
                if self.by_offset.get(offset) is lease:
                    del self.by_offset[offset]
                    expired.append(offset)
            lease.left = 0
        expired.sort()
        return expired

    @property
    def next_expiry(self) -> float | None:
        while self._heap and self._heap[0][2].left == 0:
            heappop(self._heap)
            self._ended -= 1
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        """End all leases."""
        self.by_offset.clear()
        self._heap.clear()
        self._ended = 0

    def of(self, consumer: str) -> list[int]:
        """Return the messages that a consumer has, in order."""
        return sorted(
            offset for offset, lease in self.by_offset.items() if lease.consumer == consumer
        )

    def counts(self) -> dict[str, int]:
        """Return the number of messages of each consumer."""
        counts: dict[str, int] = {}
        for _, _, lease in self._heap:
            counts[lease.consumer] = counts.get(lease.consumer, 0) + lease.left
        return counts

    def oldest(self) -> float | None:
        """Return the time at which the oldest live lease was granted."""
        return min((lease.granted for _, _, lease in self._heap if lease.left), default=None)

    def _cover(self, lease: Lease) -> None:
        self.by_offset.update(dict.fromkeys(lease.offsets, lease))
        lease.left = len(lease.offsets)
        self._pushed += 1
        heappush(self._heap, (lease.expires, self._pushed, lease))

    def _leave(self, lease: Lease) -> None:
        lease.left -= 1
        if lease.left == 0:
            self._ended += 1
            if self._ended > _SPARE and self._ended * 2 > len(self._heap):
                self._heap = [item for item in self._heap if item[2].left]
                heapify(self._heap)
                self._ended = 0
