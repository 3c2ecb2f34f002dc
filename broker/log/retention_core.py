"""The choice of what a log may delete: decisions, on values alone.

Space is freed a ledger at a time, from the beginning, of sealed ledgers only. A ledger may be
deleted when all its messages are unreadable already, or have expired, or are followed by as many
bytes as are kept; and, unless the policy says otherwise, no durable subscription still has to see
one of them. If the policy wants a compacted view, the view must contain the messages first:
otherwise it would lose them for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencelog.broker.ledger_list.ledger_list import LedgerList, Segment
from fencelog.broker.policy import Policy


@dataclass(frozen=True, slots=True)
class Extent:
    """A stretch of a log: a sealed ledger, or the acknowledged part of the current one. ``size`` is
    in payload bytes; ``last_publish_us`` is that of its newest message."""

    base_offset: int
    end_offset: int
    size: int
    last_publish_us: int


def extents(ledger_list: LedgerList, written: Extent | None) -> list[Extent]:
    """Return the extents of the ledger list's sealed ledgers and of the one that is written (None:
    the log is terminated).

    A ledger that is being closed while messages continue in the next one is left out for that
    moment.
    """
    sealed = [part for part in map(_extent, ledger_list.segments) if part is not None]
    return sealed if written is None else [*sealed, written]


def trimmable(
    ledger_list: LedgerList,
    written: Extent | None,
    policy: Policy,
    *,
    now_us: int,
    unacknowledged: int | None,
) -> Sequence[int]:
    """Return the ledgers that may be deleted now, oldest first. ``unacknowledged``: the lowest
    offset that a durable subscription still has to see, None if there is no subscription.

    The last ledger stays, whatever it contains, unless the log is terminated.
    """
    after = 0
    if policy.retention_bytes is not None:
        after = sum(part.size for part in extents(ledger_list, written))
    gone = []
    candidates = ledger_list.segments if ledger_list.terminated else ledger_list.segments[:-1]
    for segment in candidates:
        part = _extent(segment)
        if part is None:
            break
        after -= part.size
        if part.end_offset > ledger_list.start_offset:
            if not _is_over(part, after, policy, now_us):
                break
            if not _is_compacted(ledger_list, part.end_offset, policy):
                break
            if _is_unacknowledged(part.end_offset, unacknowledged, policy):
                break
        gone.append(segment.ledger_id)
    return gone


def is_roll_wanted(
    ledger_list: LedgerList,
    written: Extent | None,
    policy: Policy,
    *,
    now_us: int,
    unacknowledged: int | None,
) -> bool:
    """Tell whether the current ledger should be followed by another, so that it can be deleted: all
    its messages may be deleted, or it alone holds as much as is kept."""
    if written is None or written.end_offset == written.base_offset:
        return False
    if written.end_offset <= ledger_list.start_offset:
        return True
    if _is_unacknowledged(written.end_offset, unacknowledged, policy):
        return False
    if not _is_compacted(ledger_list, written.base_offset + 1, policy):
        return False  # once for each compaction: the next one has the rest of it
    too_large = policy.retention_bytes is not None and written.size >= policy.retention_bytes
    return too_large or _is_expired(written, policy, now_us)


def start_after_trim(wanted: int, tail: int, *, unacknowledged: int | None, policy: Policy) -> int:
    """Return where a log begins after a request to drop everything below ``wanted``."""
    if unacknowledged is None or policy.trim_unacknowledged:
        return min(wanted, tail)
    return min(wanted, tail, unacknowledged)


def _is_over(part: Extent, bytes_after: int, policy: Policy, now_us: int) -> bool:
    is_beyond = policy.retention_bytes is not None and bytes_after >= policy.retention_bytes
    return is_beyond or _is_expired(part, policy, now_us)


def _is_expired(part: Extent, policy: Policy, now_us: int) -> bool:
    if policy.retention_ms is None:
        return False
    return part.last_publish_us < now_us - policy.retention_ms * 1000


def _is_unacknowledged(end_offset: int, unacknowledged: int | None, policy: Policy) -> bool:
    return (
        unacknowledged is not None
        and not policy.trim_unacknowledged
        and end_offset > unacknowledged
    )


def _is_compacted(ledger_list: LedgerList, end_offset: int, policy: Policy) -> bool:
    """Tell whether the compacted view covers everything below an offset, if there should be a
    view."""
    horizon = 0 if ledger_list.compacted is None else ledger_list.compacted.end_offset
    return policy.compaction_ms is None or end_offset <= horizon


def _extent(segment: Segment) -> Extent | None:
    if segment.sealed is None or segment.end_offset is None:
        return None
    return Extent(
        segment.end_offset - segment.sealed.messages,
        segment.end_offset,
        segment.sealed.size,
        segment.sealed.last_publish_us,
    )
