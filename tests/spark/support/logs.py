"""Partitions as the Spark connector sees them, without a service."""

from __future__ import annotations

from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.spark_connector.planning.segments import LedgerSegment, PartitionSegments

BOOKIES = {"b1": "127.0.0.1:11", "b2": "127.0.0.1:12", "b3": "127.0.0.1:13"}


def segments(
    *shapes: tuple[int, int],
    topic: str = "default/t",
    partition: int = 0,
    earliest: int = 0,
    first: int = 0,
    topic_id: str = "",
) -> PartitionSegments:
    """A partition of ledgers, each given as (messages, bytes), the first one at offset ``first``;
    an entry holds one message. The id of a topic is its name unless another one is given."""
    found = []
    offset = first
    for number, (messages, size) in enumerate(shapes):
        ledger = new_metadata(
            100 * partition + number,
            ensemble=tuple(BOOKIES),
            write_quorum=3,
            ack_quorum=2,
            token="t",
        )
        found.append(LedgerSegment(ledger, offset, messages, 0, messages - 1, size))
        offset += messages
    return PartitionSegments(
        topic, partition, earliest, offset, tuple(found), BOOKIES, topic_id or topic
    )
