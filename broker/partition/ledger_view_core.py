"""The ledgers of a partition as people see them: a window of the ledger list, what is older and
newer in sums, and the takeovers between them. Decisions on values alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fencelog.broker.ledger_list.ledger_list import LedgerList, Segment


@dataclass(frozen=True, slots=True)
class OpenPart:
    """The ledger that is written: its last acknowledged entry, and the bytes up to there."""

    ledger_id: int
    last_confirmed: int
    size: int


def window(
    ledger_list: LedgerList, *, tail_offset: int, limit: int, before: int | None
) -> tuple[Sequence[Segment], Sequence[Segment], Sequence[Segment]]:
    """Return the ledgers in three parts: older ones, at most ``limit`` of those that begin below
    ``before`` (None: the newest), newer ones."""
    segments = ledger_list.segments
    end = len(segments)
    if before is not None:
        end = bisect_left(segments, before, key=lambda each: _base(each, tail_offset))
        end = max(end, min(1, len(segments)))
    start = max(0, end - limit)
    return segments[:start], segments[start:end], segments[end:]


def describe_ledgers(
    ledger_list: LedgerList,
    written: OpenPart | None,
    *,
    tail_offset: int,
    limit: int,
    before: int | None,
) -> dict[str, Any]:
    """Return the chain, JSON-compatible: ``segments``, what is ``older`` and ``newer``, and the
    ``takeovers`` that began an epoch of a shown ledger or a later one, each with its predecessor
    ``from``, if that is still known."""
    older, shown, newer = window(ledger_list, tail_offset=tail_offset, limit=limit, before=before)
    first_epoch = shown[0].epoch if shown else 0
    takeovers = [
        {**asdict(each), "from": None if before is None else before.broker_id}
        for before, each in zip((None, *ledger_list.takeovers), ledger_list.takeovers, strict=False)
        if each.epoch >= first_epoch
    ]
    return {
        "ledgers": len(ledger_list.segments),
        "older": _folded(older, tail_offset),
        "segments": [_segment(each, written, tail_offset) for each in shown],
        "newer": _folded(newer, tail_offset),
        "takeovers": takeovers,
    }


def _base(segment: Segment, tail_offset: int) -> int:
    """Return where a ledger begins; one that waits for the previous one's
    end begins at the tail."""
    return tail_offset if segment.base_offset is None else segment.base_offset


def _end(segment: Segment, tail_offset: int) -> int:
    return tail_offset if segment.end_offset is None else segment.end_offset


def _folded(segments: Sequence[Segment], tail_offset: int) -> dict[str, Any] | None:
    if not segments:
        return None
    return {
        "ledgers": len(segments),
        "epochs": len({each.epoch for each in segments}),
        "from_offset": _base(segments[0], tail_offset),
        "to_offset": _end(segments[-1], tail_offset),
        "created_us": segments[0].created_us,
    }


def _segment(segment: Segment, written: OpenPart | None, tail_offset: int) -> dict[str, Any]:
    sealed = segment.sealed
    base, end = _base(segment, tail_offset), _end(segment, tail_offset)
    fields: dict[str, Any] = {
        "ledger_id": segment.ledger_id,
        "epoch": segment.epoch,
        "created_us": segment.created_us,
        "base_offset": base,
        "end_offset": end,
        "is_closed": sealed is not None,
        "is_written": written is not None and written.ledger_id == segment.ledger_id,
        "is_adopted": segment.is_adopted,
        "entries": None,
        "size": None,
        "last_publish_us": None,
    }
    if sealed is not None:
        fields |= {
            "entries": sealed.entries,
            "size": sealed.size,
            "last_publish_us": sealed.last_publish_us,
        }
    elif written is not None and written.ledger_id == segment.ledger_id:
        fields |= {"entries": written.last_confirmed + 1, "size": written.size}
    return fields
