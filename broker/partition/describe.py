"""A description of an open log's inside, for diagnosis: its ledgers, its appends in flight, and the
backlog of each subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fencelog.broker.append.admission import Admission
from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.ledger_list.ledger_list import LedgerList, Segment
from fencelog.broker.log.backlog_core import bytes_from
from fencelog.broker.log.retention_core import Extent
from fencelog.broker.subscriptions.subscriptions import Subscriptions


def describe_log(
    ledger_list: LedgerList,
    parts: Sequence[Extent],
    pipeline: AppendPipeline,
    admission: Admission,
    subscriptions: Subscriptions,
) -> dict[str, Any]:
    """Return the description, JSON-compatible. ``size``: payload bytes of the messages' ledgers;
    ``subscriptions``: by id, see ``Subscriptions.stats``."""
    cursors = {id_: subscriptions.stats(id_) for id_ in subscriptions.all()}
    for stats in cursors.values():
        stats["backlog_bytes"] = bytes_from(parts, stats["acked_to"])
    return {
        "epoch": ledger_list.epoch,
        "owner": ledger_list.owner,
        "earliest_offset": ledger_list.start_offset,
        "tail_offset": pipeline.tail_offset,
        "last_publish_us": pipeline.settled_publish_us,
        "terminated": ledger_list.terminated,
        "size": sum(part.size for part in parts),
        "segments": [_segment(segment) for segment in ledger_list.segments],
        "commits": {name: asdict(commit) for name, commit in ledger_list.commits.items()},
        "state_ledger": ledger_list.state_ledger,
        "compacted_ledgers": []
        if ledger_list.compacted is None
        else list(ledger_list.compacted.ledgers),
        "pending_bytes": pipeline.pending_bytes,
        "held": pipeline.mode.is_held,
        "over_backlog_quota": admission.is_over_quota,
        "subscriptions": cursors,
    }


def _segment(segment: Segment) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "ledger_id": segment.ledger_id,
        "epoch": segment.epoch,
        "created_us": segment.created_us,
        "base_offset": segment.base_offset,
        "sealed": segment.sealed is not None,
        "adopted": segment.is_adopted,
    }
    if segment.sealed is not None:
        fields |= {
            "messages": segment.sealed.messages,
            "entries": segment.sealed.entries,
            "size": segment.sealed.size,
            "last_publish_us": segment.sealed.last_publish_us,
        }
    return fields
