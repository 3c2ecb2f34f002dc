"""The chain: the list of ledgers that make up one partition's log, and its legal changes.

A chain is an immutable value in one metadata node, changed only by compare-and-set under a fresh
token. What must hold of every chain, and is checked at every change:

* offsets are dense: a segment's base is its predecessor's base and messages together;
* only the last two segments may be unsealed (a roll lists its successor before the old ledger is
  closed, and no second roll begins before that), so fencing two ledgers is enough at takeover;
* the epoch grows with every takeover and with nothing else.

An empty ledger is dropped only at a takeover, when its metadata says CLOSED with no entry: "not
found" and "no answer" prove nothing (apache/pulsar#26074).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from fencelog.ledgers.errors import check

MAX_UNSEALED = 2

MAX_SEGMENTS = 4000
"""Ledgers of one log; above it none is rolled. One takes up to 200 bytes of a metadata node, which
holds 900 KiB: room is left for the ledgers that takeovers and failures add."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What is known for ever of a ledger that is closed. ``size`` in payload bytes."""

    entries: int
    messages: int
    size: int
    last_publish_us: int
    sealed_us: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One ledger of the log. ``base_offset`` is None until the predecessor is sealed."""

    ledger_id: int
    created_us: int
    base_offset: int | None
    sealed: Sealed | None = None

    @property
    def end_offset(self) -> int | None:
        if self.sealed is None or self.base_offset is None:
            return None
        return self.base_offset + self.sealed.messages


@dataclass(frozen=True, slots=True)
class Chain:
    """``token`` names the change that wrote this value; ``deleted`` chains stay deleted."""

    epoch: int = 0
    token: str = ""
    segments: tuple[Segment, ...] = ()
    last_publish_us: int = 0
    deleted: bool = False

    @property
    def to_recover(self) -> tuple[Segment, ...]:
        """Every segment not marked sealed, and in any case the last two (seed 001)."""
        tail = len(self.segments) - MAX_UNSEALED
        return tuple(s for n, s in enumerate(self.segments) if n >= tail or s.sealed is None)

    @property
    def is_rolling(self) -> bool:
        """Whether an old ledger still waits to be sealed."""
        return any(segment.sealed is None for segment in self.segments[:-1])

    def taken_over(self, sealed: Mapping[int, Sealed], *, ledger_id: int, created_us: int) -> Chain:
        """A new owner's first step: all ledgers sealed, the empty ones dropped, its own added."""
        segments = self.segments
        for segment in segments:
            if segment.sealed is None:
                segments = _sealed(segments, segment.ledger_id, sealed[segment.ledger_id])
        base = segments[-1].end_offset if segments else 0
        kept = tuple(s for s in segments if s.sealed is not None and s.sealed.entries > 0)
        newest = max((s.last_publish_us for s in sealed.values()), default=0)
        return _checked(
            replace(
                self,
                epoch=self.epoch + 1,
                segments=(*kept, Segment(ledger_id, created_us, base)),
                last_publish_us=max(self.last_publish_us, newest),
            )
        )

    def with_next(self, *, ledger_id: int, created_us: int) -> Chain:
        """A roll's first step. The base is known if the last ledger is sealed already."""
        check(not self.is_rolling, "a second roll before the first is finished")
        following = Segment(ledger_id, created_us, self.segments[-1].end_offset)
        return _checked(replace(self, segments=(*self.segments, following)))

    def with_sealed(self, ledger_id: int, sealed: Sealed) -> Chain:
        """A ledger was closed: its size is known, and its successor's base with it."""
        return _checked(
            replace(
                self,
                segments=_sealed(self.segments, ledger_id, sealed),
                last_publish_us=max(self.last_publish_us, sealed.last_publish_us),
            )
        )

    def as_deleted(self) -> Chain:
        """Nobody may change or take over this chain any more."""
        return replace(self, deleted=True)


def _sealed(segments: tuple[Segment, ...], ledger_id: int, sealed: Sealed) -> tuple[Segment, ...]:
    changed = list(segments)
    (position,) = (n for n, segment in enumerate(segments) if segment.ledger_id == ledger_id)
    segment = replace(changed[position], sealed=sealed)
    changed[position] = segment
    if position + 1 < len(changed):
        changed[position + 1] = replace(changed[position + 1], base_offset=segment.end_offset)
    return tuple(changed)


def _checked(chain: Chain) -> Chain:
    segments = chain.segments
    check(not chain.deleted, "a deleted chain is not changed")
    check(len({s.ledger_id for s in segments}) == len(segments), "a ledger is listed twice")
    check(segments[0].base_offset is not None, "the log has no beginning")
    for before, after in pairwise(segments):
        check(before.end_offset == after.base_offset, f"gap before ledger {after.ledger_id}")
    old = segments[:-MAX_UNSEALED]
    check(all(segment.sealed is not None for segment in old), "an old ledger is not sealed")
    return chain
