"""Figures about one broker since its start, as plain numbers.

They are of the process, not of a partition: a partition comes and goes, and a count that falls
with it would look like a restart. What is counted for each batch costs a few integers and one look
at the clock.
"""

from __future__ import annotations

from fencelog.ledgers.metrics import Histogram
from fencelog.ledgers.spans import Spans


class BrokerCounts:
    """The figures of one broker, which all its partitions add to."""

    __slots__ = (
        "appended_bytes",
        "appended_entries",
        "appended_messages",
        "cached_reads",
        "dead_lettered_messages",
        "delivered_messages",
        "dropped_events",
        "fenced_ledgers",
        "ledger_list_conflicts",
        "ledger_reads",
        "ledger_time",
        "lost_partitions",
        "queue_time",
        "recorded_events",
        "redelivered_messages",
        "replaced_ledgers",
        "reply_time",
        "rolls",
        "spans",
        "takeover_time",
        "takeovers_failed",
        "trimmed_ledgers",
    )

    def __init__(self) -> None:
        self.appended_messages = 0
        self.appended_bytes = 0
        self.appended_entries = 0
        self.queue_time = Histogram()
        """The time from the first message of an entry until the entry was handed to a ledger."""
        self.ledger_time = Histogram()
        """The time from there until the entry was acknowledged by enough bookies."""
        self.reply_time = Histogram()
        """The time of one request from there until its answer was given to the network."""
        self.spans: Spans | None = None
        """The taker of the spans of sampled appends."""
        self.cached_reads = 0
        self.ledger_reads = 0
        self.takeover_time = Histogram()
        """The time of successful takeovers, from the claim of the node until the log served."""
        self.takeovers_failed = 0
        self.lost_partitions = 0
        self.rolls = 0
        self.replaced_ledgers = 0
        self.fenced_ledgers = 0
        self.ledger_list_conflicts = 0
        self.trimmed_ledgers = 0
        self.delivered_messages = 0
        self.redelivered_messages = 0
        self.dead_lettered_messages = 0
        self.recorded_events = 0
        """Events that are durable in the topic of events."""
        self.dropped_events = 0
        """Events that are not, or of which that is not known."""
