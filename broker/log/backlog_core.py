"""What subscriptions leave behind: how much it is, and where a quota wants them. Values alone.

Sizes are known of whole ledgers; within one, bytes are taken to be spread evenly over its messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelog.broker.log.retention_core import Extent
from fencelog.broker.policy import Policy


def bytes_from(parts: Sequence[Extent], offset: int) -> int:
    """Payload bytes of the messages from ``offset`` on."""
    total = 0
    for part in parts:
        if offset <= part.base_offset:
            total += part.size
        elif offset < part.end_offset:
            messages = part.end_offset - part.base_offset
            total += part.size * (part.end_offset - offset) // messages
    return total


def quota_bound(parts: Sequence[Extent], policy: Policy, *, too_old_below: int | None) -> int:
    """Where the slowest subscription has to be at least so that its backlog is within the quota; 0:
    anywhere. ``too_old_below``: below it all messages are older than ``backlog_quota_ms``."""
    bound = 0
    if policy.backlog_quota_ms is not None and too_old_below is not None:
        bound = too_old_below
    if policy.backlog_quota_bytes is not None:
        bound = max(bound, _within(parts, policy.backlog_quota_bytes))
    return bound


def _within(parts: Sequence[Extent], quota: int) -> int:
    """The lowest offset from which on there are at most ``quota`` bytes."""
    room = quota
    for part in reversed(parts):
        if part.size > room:
            messages = part.end_offset - part.base_offset
            return part.end_offset - room * messages // part.size
        room -= part.size
    return 0
