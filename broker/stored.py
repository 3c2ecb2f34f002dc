"""What a read hands out: batches as they are stored, never taken apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StoredBatch:
    """One entry's record batch (``ledgers.record_batch``), as its writer made it.

    ``base_offset`` is the offset of its first message; ``publish_time_us`` since 1970 UTC.
    """

    base_offset: int
    count: int
    publish_time_us: int
    batch: memoryview

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Batches without a gap. The first may begin before the offset that was asked for, the last
    may reach past the message limit: the caller cuts them. ``next_offset`` follows the last one;
    ``tail_offset`` is where the log ended at that moment."""

    entries: list[StoredBatch]
    next_offset: int
    tail_offset: int
