"""What a subscription leaves behind: how much, how old, and what to do about it. Values alone.

Sizes and times are known of whole ledgers. Within one, bytes are taken to be spread evenly over its
messages, and a message counts as old as the newest of its ledger: nothing is called old that is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelog.broker.policy import Policy
from fencelog.broker.retention_core import Extent


def bytes_from(parts: Sequence[Extent], offset: int) -> int:
    """Payload bytes of the messages from ``offset`` on."""
    total = 0
    for part in parts:
        messages = part.end_offset - part.base_offset
        if offset <= part.base_offset:
            total += part.size
        elif offset < part.end_offset:
            total += part.size * (part.end_offset - offset) // messages
    return total


def published_before(parts: Sequence[Extent], time_us: int) -> int | None:
    """An offset below which all messages were published before ``time_us``; None: there is none
    that is known to be."""
    end = None
    for part in parts:
        if part.last_publish_us >= time_us:
            break
        end = part.end_offset
    return end


def expired_below(parts: Sequence[Extent], policy: Policy, now_us: int) -> int | None:
    """Below this offset every message counts as acknowledged (time to live)."""
    if policy.ttl_ms is None:
        return None
    return published_before(parts, now_us - policy.ttl_ms * 1000)


def quota_below(parts: Sequence[Extent], policy: Policy, now_us: int) -> int | None:
    """Where the slowest subscription has to be at least so that its backlog is within the quota;
    None: anywhere."""
    bounds = []
    if policy.backlog_quota_ms is not None:
        bounds.append(published_before(parts, now_us - policy.backlog_quota_ms * 1000))
    if policy.backlog_quota_bytes is not None:
        bounds.append(_within(parts, policy.backlog_quota_bytes))
    return max((bound for bound in bounds if bound is not None), default=None)


def is_over_quota(slowest: int | None, bound: int | None) -> bool:
    """``slowest``: the subscription's position; ``bound``: of ``quota_below``."""
    return slowest is not None and bound is not None and slowest < bound


def _within(parts: Sequence[Extent], quota: int) -> int | None:
    """The lowest offset from which on there are at most ``quota`` bytes."""
    room = quota
    for part in reversed(parts):
        if part.size > room:
            messages = part.end_offset - part.base_offset
            return part.end_offset - room * messages // part.size
        room -= part.size
    return None
