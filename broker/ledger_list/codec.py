"""The ledger list's encoding: JSON, so that an operator can read the node with any ZooKeeper tool.

    {"v": 2, "epoch": 3, "token": "…", "owner": "broker-1", "last_publish_us": 17…, "start": 0,
     "segments": [
        {"ledger": 12, "epoch": 2, "created_us": 17…, "base": 0,
         "sealed": {"entries": 5, "messages": 900, "size": 91234, "last_publish_us": 17…,
                    "sealed_us": 17…, "producers": 1}},
        {"ledger": 15, "epoch": 3, "created_us": 17…, "base": 900}],
     "state": 14,
     "compacted": {"ledgers": [13], "end": 900, "messages": 20, "size": 4321, "created_us": 17…},
     "commits": {"query-1": {"batch": 7, "offset": 120, "messages": 300, "committed_us": 17…,
                             "partitions": 4}},
     "takeovers": [[2, "broker-2", 17…], [3, "broker-1", 17…]]}

``base`` is null while the previous ledger is not sealed; ``producers`` is left out where an entry
names none; so are ``state``, ``compacted``, ``commits`` and ``takeovers`` (the epoch, its owner and
when it began) where there are none. A segment that a
commit has added has ``"adopted": 1``, the last commit of a committer that has ended ``"ends": 1``,
one whose batch is appended ``"by_appends": 1``.
``"terminated": true`` marks a log that is never appended to again, ``"deleted": true`` a deleted
one.
"""

from __future__ import annotations

import json
from typing import Any

from fencelog.broker.ledger_list.ledger_list import (
    Commit,
    Compacted,
    LedgerList,
    Sealed,
    Segment,
    Takeover,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_METADATA_BYTES

FORMAT_VERSION = 2


def encode_ledger_list(ledger_list: LedgerList) -> bytes:
    """Encode the ledger list. Raises FencelogError(BAD_REQUEST) when the list has outgrown a
    metadata node."""
    fields: dict[str, Any] = {
        "v": FORMAT_VERSION,
        "epoch": ledger_list.epoch,
        "token": ledger_list.token,
        "owner": ledger_list.owner,
        "last_publish_us": ledger_list.last_publish_us,
        "start": ledger_list.start_offset,
        "segments": [_segment_to_json(segment) for segment in ledger_list.segments],
    }
    if ledger_list.state_ledger is not None:
        fields["state"] = ledger_list.state_ledger
    if ledger_list.compacted is not None:
        fields["compacted"] = _compacted_to_json(ledger_list.compacted)
    if ledger_list.commits:
        fields["commits"] = {
            committer: _commit_to_json(commit) for committer, commit in ledger_list.commits.items()
        }
    if ledger_list.takeovers:
        fields["takeovers"] = [
            [each.epoch, each.broker_id, each.taken_us] for each in ledger_list.takeovers
        ]
    fields.update({flag: True for flag in _FLAGS if getattr(ledger_list, flag)})
    data = json.dumps(fields, separators=(",", ":")).encode()
    if len(data) > MAX_METADATA_BYTES:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"a list of {len(ledger_list.segments)} ledgers takes {len(data)} bytes of metadata",
        )
    return data


def decode_ledger_list(data: bytes) -> LedgerList:
    """Decode a ledger list. Raises FencelogError(CORRUPT)."""
    try:
        fields = json.loads(data)
        if fields["v"] != FORMAT_VERSION:
            raise ValueError(f"version {fields['v']}")
        return LedgerList(
            epoch=int(fields["epoch"]),
            token=str(fields["token"]),
            owner=str(fields["owner"]),
            segments=tuple(_segment_from_json(segment) for segment in fields["segments"]),
            last_publish_us=int(fields["last_publish_us"]),
            start_offset=int(fields["start"]),
            state_ledger=int(fields["state"]) if "state" in fields else None,
            compacted=_compacted_from_json(fields["compacted"]) if "compacted" in fields else None,
            commits={
                str(committer): _commit_from_json(commit)
                for committer, commit in fields.get("commits", {}).items()
            },
            takeovers=tuple(
                Takeover(int(epoch), str(broker_id), int(taken_us))
                for epoch, broker_id, taken_us in fields.get("takeovers", ())
            ),
            terminated=bool(fields.get("terminated", False)),
            deleted=bool(fields.get("deleted", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"list of ledgers is not valid: {error}") from error


def _segment_to_json(segment: Segment) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "ledger": segment.ledger_id,
        "epoch": segment.epoch,
        "created_us": segment.created_us,
        "base": segment.base_offset,
    }
    if segment.is_adopted:
        fields["adopted"] = 1
    sealed = segment.sealed
    if sealed is not None:
        fields["sealed"] = {name: getattr(sealed, name) for name in _SEALED}
        if sealed.has_producers:
            fields["sealed"]["producers"] = 1
    return fields


def _segment_from_json(fields: Any) -> Segment:
    base = fields["base"]
    return Segment(
        ledger_id=int(fields["ledger"]),
        epoch=int(fields["epoch"]),
        created_us=int(fields["created_us"]),
        base_offset=None if base is None else int(base),
        sealed=_sealed_from_json(fields["sealed"]) if "sealed" in fields else None,
        is_adopted=bool(fields.get("adopted", 0)),
    )


def _sealed_from_json(fields: Any) -> Sealed:
    numbers = {name: int(fields[name]) for name in _SEALED}
    return Sealed(**numbers, has_producers=bool(fields.get("producers", 0)))


def _compacted_to_json(compacted: Compacted) -> dict[str, Any]:
    return {
        "ledgers": list(compacted.ledgers),
        "end": compacted.end_offset,
        "messages": compacted.messages,
        "size": compacted.size,
        "created_us": compacted.created_us,
    }


def _compacted_from_json(fields: Any) -> Compacted:
    return Compacted(
        ledgers=tuple(map(int, fields["ledgers"])),
        end_offset=int(fields["end"]),
        messages=int(fields["messages"]),
        size=int(fields["size"]),
        created_us=int(fields["created_us"]),
    )


def _commit_to_json(commit: Commit) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(commit, name) for name in _COMMIT}
    return fields | {name: 1 for name in _COMMIT_FLAGS if getattr(commit, name)}


def _commit_from_json(fields: Any) -> Commit:
    numbers = {name: int(fields[name]) for name in _COMMIT}
    ends, by_appends = (bool(fields.get(name, 0)) for name in _COMMIT_FLAGS)
    return Commit(**numbers, ends=ends, by_appends=by_appends)


_SEALED = ("entries", "messages", "size", "last_publish_us", "sealed_us")
_COMMIT = ("batch", "offset", "messages", "committed_us", "partitions")
_COMMIT_FLAGS = ("ends", "by_appends")
_FLAGS = ("terminated", "deleted")
