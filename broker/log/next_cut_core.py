"""The ledger that retention deletes next, and what it waits for: an explanation of the decisions of
``retention_core`` for people, on values alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.log.retention_core import Extent, extents, trimmable
from fencelog.broker.policy import Policy


class Holder(StrEnum):
    """The reason why the oldest ledger is kept."""

    NOTHING = "nothing"
    """No reason: the next check deletes it."""
    LAST = "last"
    """The log needs it: it is the only one, or not closed."""
    SETTINGS = "settings"
    """No bound of age or size: everything is kept."""
    RETENTION = "retention"
    """The ledger is neither old enough nor followed by enough bytes."""
    COMPACTION = "compaction"
    """The compacted view does not contain it yet."""
    SUBSCRIPTION = "subscription"
    """A durable subscription has not acknowledged all of it."""


@dataclass(frozen=True, slots=True)
class NextCut:
    """The next cut. ``to_offset``: where the log begins after it; ``due_us``: when the ledger is
    old enough; ``bytes_to_come``: what has to be appended before it is followed by enough. Each
    None: not known, or there is no such bound."""

    held_by: Holder
    ledger_id: int | None = None
    to_offset: int | None = None
    due_us: int | None = None
    bytes_to_come: int | None = None


def next_cut(
    ledger_list: LedgerList,
    written: Extent | None,
    policy: Policy,
    *,
    now_us: int,
    unacknowledged: int | None,
) -> NextCut:
    """Return the next cut of a log. ``unacknowledged``: as for ``trimmable``."""
    segments = ledger_list.segments
    first = segments[0] if segments else None
    is_needed = len(segments) == 1 and not ledger_list.terminated
    if first is None or first.sealed is None or first.end_offset is None or is_needed:
        return NextCut(Holder.LAST)
    ledger_id, end = first.ledger_id, first.end_offset

    def gone(by: Policy, unacknowledged: int | None) -> bool:
        found = trimmable(ledger_list, written, by, now_us=now_us, unacknowledged=unacknowledged)
        return ledger_id in found

    if gone(policy, unacknowledged):
        return NextCut(Holder.NOTHING, ledger_id, end)
    if policy.retention_ms is None and policy.retention_bytes is None:
        return NextCut(Holder.SETTINGS, ledger_id, end)
    if gone(policy, None):
        return NextCut(Holder.SUBSCRIPTION, ledger_id, end)
    due_us = bytes_to_come = None
    if policy.retention_ms is not None:
        due_us = first.sealed.last_publish_us + policy.retention_ms * 1000
    if policy.retention_bytes is not None:
        after = sum(part.size for part in extents(ledger_list, written)) - first.sealed.size
        bytes_to_come = max(0, policy.retention_bytes - after)
    if bytes_to_come == 0 or (due_us is not None and due_us < now_us):
        return NextCut(Holder.COMPACTION, ledger_id, end)
    return NextCut(Holder.RETENTION, ledger_id, end, due_us, bytes_to_come)
