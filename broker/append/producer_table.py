"""The table of a partition's producers: which sequences and keys are in the log, and at which
offsets.

Two things are kept apart. *Settled* is what is in the log, and nothing else: it is rebuilt at a
takeover from a snapshot and the entry headers after it, to the same value. *Tracked* is what was
admitted and is in flight: it decides whether the next append follows, and falls back to what is
certain when appends are given up (a table that remembers attempts drops the retries of those that
failed: apache/pulsar 5218, 5271, 5322). No append is answered on the strength of a tracked one: an
append that repeats it shares its outcome.

For each producer and epoch sequences are gapless from 0; a higher epoch ends the lower ones.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencelog.broker.append.conditions import FORGOTTEN, Tracked
from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.limits import (
    MAX_IDEMPOTENCY_KEYS,
    MAX_REPLAY_BYTES,
    MAX_REPLAY_ENTRIES,
    MAX_REPLAY_RANGES,
    RECENT_APPENDS,
)
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_KEY, RANGE_SEQUENCE, SequenceRange

ROWS_PER_EVENT = 500
"""Producers or keys in one event of the state log: some 100 KiB."""


class RecentAppend(NamedTuple):
    """Messages in the log; ``sequence`` (0 for a key) and ``offset`` are those of the first.
    ``contents``: the digest of what one append contained, in hexadecimal; empty if it is
    unknown."""

    sequence: int
    offset: int
    rows: int
    publish_time_us: int
    contents: str = ""


@dataclass(slots=True)
class ProducerState:
    """The settled state of one producer. ``recent``: the latest appends of its epoch, the newest
    last; never empty."""

    epoch: int
    next_sequence: int
    recent: tuple[RecentAppend, ...]

    @property
    def end_offset(self) -> int:
        return self.recent[-1].offset + self.recent[-1].rows


class ProducerTable:
    """The producers of one partition; a section of its state.

    ``end_offset``: everything of producers below it is settled here, so a rebuild continues from
    there. ``policy`` may be replaced at any time.
    """

    kinds = ("producers",)

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.end_offset = 0
        self._producers: OrderedDict[bytes, ProducerState] = OrderedDict()
        self._keys: OrderedDict[bytes, RecentAppend] = OrderedDict()
        self._in_flight: dict[bytes, deque[Tracked]] = {}
        self._in_flight_keys: dict[bytes, Tracked] = {}
        self._changed: dict[bytes, None] = {}
        self._changed_keys: dict[bytes, None] = {}
        self._unpersisted = _Unpersisted()

    # -- for appends -----------------------------------------------------------------------------

    def find(self, sequences: SequenceRange, *, now_us: int) -> RecentAppend | Tracked | None:
        """Return what is known of an append: its position in the log, or the append in flight with
        which it ends, or None: it is new and may be tracked.

        Raises FencelogError: SEQUENCE_MISMATCH (``expected_sequence``: everything below is in the
        log), PRODUCER_FENCED.
        """
        if sequences.kind == RANGE_KEY:
            recent = self._keys.get(sequences.id)
            window_us = self.policy.idempotency_window_ms * 1000
            if recent is not None and now_us < recent.publish_time_us + window_us:
                return recent
            return self._in_flight_keys.get(sequences.id)
        known = self._producers.get(sequences.id)
        in_flight = self._in_flight.get(sequences.id, ())
        epoch = in_flight[-1].sequences.epoch if in_flight else -1 if known is None else known.epoch
        if sequences.epoch < epoch:
            raise FencelogError(
                ErrorCode.PRODUCER_FENCED,
                f"the producer's epoch is {epoch}, not {sequences.epoch}",
                epoch=epoch,
            )
        same = known is not None and known.epoch == sequences.epoch
        settled = known.next_sequence if known is not None and same else 0
        following = settled
        if in_flight and sequences.epoch == epoch:
            following = _end(in_flight[-1].sequences)
        if sequences.sequence == following:
            return None
        if _end(sequences) > following:
            raise FencelogError(
                ErrorCode.SEQUENCE_MISMATCH,
                f"messages {sequences.sequence} to {_end(sequences) - 1} of the producer do "
                f"not begin where those in the log end, at {settled}",
                expected_sequence=settled,
            )
        if known is not None and _end(sequences) <= settled:
            return _original(known, sequences)
        return next(
            t
            for t in in_flight
            if t.sequences.epoch == epoch and _end(t.sequences) >= _end(sequences)
        )

    def track(self, tracked: Tracked) -> None:
        """Note that an append for which ``find`` returned None is in flight."""
        sequences = tracked.sequences
        if sequences.kind == RANGE_KEY:
            self._in_flight_keys[sequences.id] = tracked
        else:
            self._in_flight.setdefault(sequences.id, deque()).append(tracked)

    def retrack(self, tracked: Iterable[Tracked]) -> None:
        """Replace the appends in flight by these, in their order: no others are in flight any
        more."""
        self._in_flight.clear()
        self._in_flight_keys.clear()
        for each in tracked:
            self.track(each)

    def last_tracked(self, producer: bytes) -> Tracked | None:
        """Return the producer's latest append in flight."""
        in_flight = self._in_flight.get(producer)
        return in_flight[-1] if in_flight else None

    def get(self, producer: bytes) -> ProducerState | None:
        """Return the settled state of a producer."""
        return self._producers.get(producer)

    @property
    def count(self) -> int:
        """The number of producers that are remembered."""
        return len(self._producers)

    # -- what is in the log ----------------------------------------------------------------------

    def commit(
        self, ranges: Sequence[SequenceRange], offset: int, publish_time_us: int, size: int
    ) -> None:
        """Note that an entry with these ranges, of ``size`` bytes, is in the log from ``offset``
        on. Called in the order of the log; ranges that a snapshot contained change nothing."""
        self._unpersisted.add(len(ranges), size)
        for sequences in ranges:
            contents = sequences.contents.hex()
            recent = RecentAppend(
                sequences.sequence, offset, sequences.rows, publish_time_us, contents
            )
            if sequences.kind == RANGE_SEQUENCE:
                self._commit_sequence(sequences, recent)
            elif sequences.kind == RANGE_KEY:
                self._commit_key(sequences.id, recent)
            offset += sequences.rows
        self.end_offset = max(self.end_offset, offset)

    def _commit_sequence(self, sequences: SequenceRange, recent: RecentAppend) -> None:
        known = self._producers.get(sequences.id)
        if known is None or known.epoch != sequences.epoch:
            before: tuple[RecentAppend, ...] = ()
        else:
            before = known.recent[1 - RECENT_APPENDS :]
        if known is None or known.end_offset <= recent.offset:
            self._producers[sequences.id] = ProducerState(
                sequences.epoch, _end(sequences), (*before, recent)
            )
            self._changed[sequences.id] = None
        # Also where it was known already: of events that were cut off a takeover has what was
        # written later, and reads what was written before that.
        self._producers.move_to_end(sequences.id)
        self._forget_silent()
        in_flight = self._in_flight.get(sequences.id)
        if in_flight is not None:
            while in_flight and (in_flight[0].sequences.epoch, _end(in_flight[0].sequences)) <= (
                sequences.epoch,
                _end(sequences),
            ):
                in_flight.popleft()
            if not in_flight:
                del self._in_flight[sequences.id]

    def _commit_key(self, key: bytes, recent: RecentAppend) -> None:
        known = self._keys.get(key)
        if known is None or known.offset < recent.offset:
            known = recent
            self._changed_keys[key] = None
        self._remember_key(key, known)
        self._in_flight_keys.pop(key, None)

    def _remember_key(self, key: bytes, recent: RecentAppend) -> None:
        self._keys[key] = recent
        self._keys.move_to_end(key)
        self._forget_old(recent.publish_time_us)

    def _forget_silent(self) -> None:
        while len(self._producers) > self.policy.max_producers:
            self._changed.pop(self._producers.popitem(last=False)[0], None)

    def _forget_old(self, now_us: int) -> None:
        oldest_us = now_us - self.policy.idempotency_window_ms * 1000
        while len(self._keys) > MAX_IDEMPOTENCY_KEYS or (
            next(iter(self._keys.values())).publish_time_us < oldest_us
        ):
            self._changed_keys.pop(self._keys.popitem(last=False)[0], None)

    # -- the section -----------------------------------------------------------------------------

    @property
    def is_change_due(self) -> bool:
        """Tell whether changes should be written to the state log, so that a takeover has little to
        read."""
        return self._unpersisted.is_much

    def changes(self) -> Iterator[Event]:
        """Return the events for all that was settled since the last call. ``end_offset`` comes with
        the last event: if only the others are known, a takeover reads entries again that were
        recorded already."""
        producers = [(id_, p) for id_, p in self._producers.items() if id_ in self._changed]
        keys = [(key, k) for key, k in self._keys.items() if key in self._changed_keys]
        self._changed.clear()
        self._changed_keys.clear()
        self._unpersisted = _Unpersisted()
        return self._events(producers, keys)

    def snapshot(self) -> Iterator[Event]:
        if self.end_offset == 0:
            return iter(())
        return self._events(list(self._producers.items()), list(self._keys.items()))

    def apply(self, event: Event) -> None:
        _, producers, keys, end_offset = event
        for name, epoch, next_sequence, recent in producers:
            id_ = bytes.fromhex(name)
            ranges = tuple(RecentAppend(*sequences) for sequences in recent)
            self._producers[id_] = ProducerState(epoch, next_sequence, ranges)
            self._producers.move_to_end(id_)
            self._forget_silent()
        for name, recent in keys:
            self._remember_key(bytes.fromhex(name), RecentAppend(*recent))
        if end_offset is not None:
            self.end_offset = end_offset

    def _events(
        self, producers: list[tuple[bytes, ProducerState]], keys: list[tuple[bytes, RecentAppend]]
    ) -> Iterator[Event]:
        for part in _parts(producers):
            yield [
                "producers",
                [[id_.hex(), p.epoch, p.next_sequence, p.recent] for id_, p in part],
                [],
                None,
            ]
        for keys_part in _parts(keys):
            yield ["producers", [], [[key.hex(), recent] for key, recent in keys_part], None]
        yield ["producers", [], [], self.end_offset]


@dataclass(slots=True)
class _Unpersisted:
    """The amount that was settled since the last events for the state log."""

    entries: int = 0
    ranges: int = 0
    size: int = 0

    def add(self, ranges: int, size: int) -> None:
        self.entries += 1
        self.ranges += ranges
        self.size += size

    @property
    def is_much(self) -> bool:
        return (
            self.entries >= MAX_REPLAY_ENTRIES
            or self.size >= MAX_REPLAY_BYTES
            or self.ranges >= MAX_REPLAY_RANGES
        )


def _end(sequences: SequenceRange) -> int:
    return sequences.sequence + sequences.rows


def _original(known: ProducerState, sequences: SequenceRange) -> RecentAppend:
    for recent in known.recent:
        if (
            recent.sequence <= sequences.sequence
            and _end(sequences) <= recent.sequence + recent.rows
        ):
            offset = recent.offset + sequences.sequence - recent.sequence
            contents = recent.contents if sequences.rows == recent.rows else ""
            return RecentAppend(
                sequences.sequence, offset, sequences.rows, recent.publish_time_us, contents
            )
    return RecentAppend(sequences.sequence, FORGOTTEN, sequences.rows, FORGOTTEN)


def _parts(items: list[tuple[bytes, Any]]) -> Iterator[list[tuple[bytes, Any]]]:
    for start in range(0, len(items), ROWS_PER_EVENT):
        yield items[start : start + ROWS_PER_EVENT]
