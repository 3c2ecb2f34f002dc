"""The backlog of subscriptions: its size and age, and the offset that a quota demands. Pure
decisions.

Sizes are known for whole ledgers; within one, bytes are assumed to be spread evenly over its
messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelog.broker.log.retention_core import Extent
from fencelog.broker.policy import Policy


def bytes_from(parts: Sequence[Extent], offset: int) -> int:
    """Return the payload bytes of the messages from ``offset`` on."""
    total = 0
    for part in parts:
        if offset <= part.base_offset:
            total += part.size
        elif offset < part.end_offset:
            messages = part.end_offset - part.base_offset
            total += part.size * (part.end_offset - offset) // messages
    return total


def published_about_us(parts: Sequence[Extent], offset: int, *, began_us: int) -> int | None:
    """Return about when the message at ``offset`` was published, None if there is no message:
    within a ledger, messages are assumed to be spread evenly over its time. ``began_us``: when the
    first ledger was begun."""
    for part in parts:
        if part.base_offset <= offset < part.end_offset:
            messages = part.end_offset - part.base_offset
            share = max(0, part.last_publish_us - began_us) * (offset - part.base_offset)
            return min(began_us, part.last_publish_us) + share // messages
        began_us = max(began_us, part.last_publish_us)
    return None


def quota_bound(parts: Sequence[Extent], policy: Policy, *, too_old_below: int | None) -> int:
    """Return the offset that the slowest subscription must have reached for its backlog to be
    within the quota; 0: any offset will do. ``too_old_below``: all messages below this offset are
    older than ``backlog_quota_ms``."""
    bound = 0
    if policy.backlog_quota_ms is not None and too_old_below is not None:
        bound = too_old_below
    if policy.backlog_quota_bytes is not None:
        bound = max(bound, _within(parts, policy.backlog_quota_bytes))
    return bound


def _within(parts: Sequence[Extent], quota: int) -> int:
    """Return the lowest offset from which on there are at most ``quota`` bytes."""
    capacity = quota
    for part in reversed(parts):
        if part.size > capacity:
            messages = part.end_offset - part.base_offset
            return part.end_offset - capacity * messages // part.size
        capacity -= part.size
    return 0
