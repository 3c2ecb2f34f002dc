"""The chain's encoding: JSON, so that an operator can read the node with any ZooKeeper tool.

    {"v": 1, "epoch": 3, "token": "…", "last_publish_us": 17…, "segments": [
        {"ledger": 12, "created_us": 17…, "base": 0,
         "sealed": {"entries": 5, "messages": 900, "size": 91234,
                    "last_publish_us": 17…, "sealed_us": 17…}},
        {"ledger": 15, "created_us": 17…, "base": 900}]}

``base`` is null while the former ledger is not sealed. ``"deleted": true`` marks a deleted log.
"""

from __future__ import annotations

import json
from typing import Any

from fencelog.broker.chain import Chain, Sealed, Segment
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_METADATA_BYTES

FORMAT_VERSION = 1


def encode_chain(chain: Chain) -> bytes:
    """Raises FencelogError(BAD_REQUEST) when the list has outgrown a metadata node."""
    fields: dict[str, Any] = {
        "v": FORMAT_VERSION,
        "epoch": chain.epoch,
        "token": chain.token,
        "last_publish_us": chain.last_publish_us,
        "segments": [_segment_to_json(segment) for segment in chain.segments],
    }
    if chain.deleted:
        fields["deleted"] = True
    data = json.dumps(fields, separators=(",", ":")).encode()
    if len(data) > MAX_METADATA_BYTES:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"a list of {len(chain.segments)} ledgers takes {len(data)} bytes of metadata",
        )
    return data


def decode_chain(data: bytes) -> Chain:
    """Raises FencelogError(CORRUPT)."""
    try:
        fields = json.loads(data)
        if fields["v"] != FORMAT_VERSION:
            raise ValueError(f"version {fields['v']}")
        return Chain(
            epoch=int(fields["epoch"]),
            token=str(fields["token"]),
            segments=tuple(_segment_from_json(segment) for segment in fields["segments"]),
            last_publish_us=int(fields["last_publish_us"]),
            deleted=bool(fields.get("deleted", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"list of ledgers is not valid: {error}") from error


def _segment_to_json(segment: Segment) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "ledger": segment.ledger_id,
        "created_us": segment.created_us,
        "base": segment.base_offset,
    }
    sealed = segment.sealed
    if sealed is not None:
        fields["sealed"] = {
            "entries": sealed.entries,
            "messages": sealed.messages,
            "size": sealed.size,
            "last_publish_us": sealed.last_publish_us,
            "sealed_us": sealed.sealed_us,
        }
    return fields


def _segment_from_json(fields: Any) -> Segment:
    sealed = fields.get("sealed")
    base = fields["base"]
    return Segment(
        ledger_id=int(fields["ledger"]),
        created_us=int(fields["created_us"]),
        base_offset=None if base is None else int(base),
        sealed=None if sealed is None else Sealed(**{k: int(sealed[k]) for k in _SEALED}),
    )


_SEALED = ("entries", "messages", "size", "last_publish_us", "sealed_us")
