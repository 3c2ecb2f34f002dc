"""Figures about one bookie since its start, as plain numbers, which its shards add to.

What has a state instead of a count (limbo, disks, garbage, the scrubber) is in the answer to
``status`` (``engine/admin.py``).
"""

from __future__ import annotations

from fencelog.ledgers.metrics import Histogram
from fencelog.ledgers.spans import Spans


class BookieCounts:
    """The figures of one bookie."""

    __slots__ = (
        "disk_reads",
        "flush_time",
        "flushed_bytes",
        "handed_over_us",
        "journal_time",
        "journaled_bytes",
        "journaled_records",
        "placed_reads",
        "read_cache_hits",
        "spans",
        "sync_time",
        "write_cache_hits",
    )

    def __init__(self) -> None:
        self.journaled_records = 0
        self.journaled_bytes = 0
        self.journal_time = Histogram()
        """The time from the first record of a group until the group was handed to an I/O thread."""
        self.sync_time = Histogram()
        """The time from there until the group was written and synced."""
        self.handed_over_us = 0
        """The time at which the group that is being answered was handed to an I/O thread."""
        self.spans: Spans | None = None
        """The taker of the spans of sampled adds."""
        self.flush_time = Histogram()
        self.flushed_bytes = 0
        """Bytes of runs that flushes have moved to entry logs."""
        self.write_cache_hits = 0
        self.read_cache_hits = 0
        self.disk_reads = 0
        self.placed_reads = 0
        """Reads answered with places in entry logs, which the clients read."""
