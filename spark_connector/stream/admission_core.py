"""The end of a micro-batch: limits of a trigger, shared in proportion to the backlogs.

Every partition with a backlog goes on in each micro-batch, as far as the limit allows, so that none
waits for a larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencelog.spark_connector.stream.backlog_core import Backlog
from fencelog.spark_connector.stream.position_core import StreamPosition

DEFAULT_MAX_DELAY_MS = 15 * 60 * 1000
"""The default of ``maxTriggerDelay``, Kafka's."""


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits of a micro-batch, None where there is none. With ``min_offsets`` it waits until
    there are as many messages, or ``max_delay_ms`` have passed since the last one."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_DELAY_MS

    def must_wait(self, waiting: Sequence[Backlog], *, since_last_ms: float) -> bool:
        """Tell whether there are too few messages for a micro-batch as yet."""
        messages = sum(backlog.messages for backlog in waiting)
        return messages < (self.min_offsets or 0) and since_last_ms < self.max_delay_ms


NO_LIMITS = TriggerLimits()


def advanced(
    start: StreamPosition, waiting: Sequence[Backlog], limits: TriggerLimits
) -> StreamPosition:
    """Return the end of the micro-batch that begins at ``start``: what waits, within the limits."""
    counts = [backlog.messages for backlog in waiting]
    if limits.max_bytes is not None:
        sizes = [backlog.size_bytes for backlog in waiting]
        shares = shared(limits.max_bytes, sizes)
        counts = [
            # A message that is larger than its share still has to be read at some time.
            max(1, backlog.messages_within(share)) if share else 0
            for backlog, share in zip(waiting, shares, strict=True)
        ]
    if limits.max_offsets is not None:
        counts = shared(limits.max_offsets, counts)
    ids = dict(start.ids)
    offsets = {topic: dict(partitions) for topic, partitions in start.offsets.items()}
    for backlog, count in zip(waiting, counts, strict=True):
        if count:
            answer = backlog.partition
            ids[answer.topic] = answer.topic_id
            offsets.setdefault(answer.topic, {})[answer.partition] = backlog.start + count
    return StreamPosition(ids, offsets)


def shared(limit: int, wanted: Sequence[int]) -> list[int]:
    """Return shares of ``limit`` in proportion to what is wanted, at least 1 where anything is.

    The sum is the limit, or all that is wanted if that is less. A limit below the number of
    claimants goes to the largest of them, 1 each; those that get nothing grow until they do.
    """
    if sum(wanted) <= limit:
        return list(wanted)
    largest = sorted(range(len(wanted)), key=lambda index: (-wanted[index], index))
    served = [index for index in largest if wanted[index]][:limit]
    shares = [0] * len(wanted)
    rest, claims = limit - len(served), sum(wanted[index] - 1 for index in served)
    for index in served:
        shares[index] = 1 + (rest * (wanted[index] - 1) // claims if rest else 0)
    left = limit - sum(shares)  # less than one for each: what the divisions have cut off
    for index in served[:left]:
        shares[index] += 1
    return shares
