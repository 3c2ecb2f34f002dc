"""What a partition remembers of its producers: which sequences and keys are in the log, and where.

Two things are kept apart. *Settled* is what is in the log, and nothing else: it is rebuilt at a
takeover from a snapshot and the entry headers after it, to the same value. *Pushed* is what was
admitted and is on its way: it decides whether the next append follows, and falls back to what is
certain when appends are given up (a table that remembers attempts drops the retries of those that
failed: apache/pulsar 5218, 5271, 5322). Nothing is answered on the strength of what is pushed:
who repeats it shares its outcome.

For each producer and epoch sequences are gapless from 0; a higher epoch ends the lower ones.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencelog.broker.append.terms import FORGOTTEN, Tracked
from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.limits import (
    KEPT_RUNS,
    MAX_IDEMPOTENCY_KEYS,
    MAX_REPLAY_BYTES,
    MAX_REPLAY_ENTRIES,
    MAX_REPLAY_RUNS,
)
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RUN_KEY, RUN_SEQUENCE, ProducerRun

ROWS_PER_EVENT = 500
"""Producers or keys in one event of the state log: some 100 KiB."""


class Kept(NamedTuple):
    """Messages in the log; ``sequence`` (0 for a key) and ``offset`` of the first."""

    sequence: int
    offset: int
    rows: int
    publish_time_us: int


@dataclass(slots=True)
class Producer:
    """``kept``: its epoch's latest runs, the newest last; never empty."""

    epoch: int
    next_sequence: int
    kept: tuple[Kept, ...]

    @property
    def end_offset(self) -> int:
        return self.kept[-1].offset + self.kept[-1].rows


class ProducerTable:
    """The producers of one partition; a section of its state.

    ``end_offset``: everything of producers below it is settled here, so a rebuilding goes on from
    there. ``policy`` may be replaced at any time.
    """

    kinds = ("producers",)

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.end_offset = 0
        self._producers: OrderedDict[bytes, Producer] = OrderedDict()
        self._keys: OrderedDict[bytes, Kept] = OrderedDict()
        self._pushed: dict[bytes, deque[Tracked]] = {}
        self._pushed_keys: dict[bytes, Tracked] = {}
        self._changed: set[bytes] = set()
        self._changed_keys: set[bytes] = set()
        self._untold = _Untold()

    # -- for appends -----------------------------------------------------------------------------

    def find(self, run: ProducerRun, *, now_us: int) -> Kept | Tracked | None:
        """What is known of an append: where it is in the log, with which append on its way it ends,
        or None: it is new and may be pushed.

        Raises FencelogError: SEQUENCE_MISMATCH (``expected_sequence``: everything below is in the
        log), PRODUCER_FENCED.
        """
        if run.kind == RUN_KEY:
            kept = self._keys.get(run.id)
            window_us = self.policy.idempotency_window_ms * 1000
            if kept is not None and now_us < kept.publish_time_us + window_us:
                return kept
            return self._pushed_keys.get(run.id)
        known = self._producers.get(run.id)
        pushed = self._pushed.get(run.id, ())
        epoch = pushed[-1].run.epoch if pushed else -1 if known is None else known.epoch
        if run.epoch < epoch:
            raise FencelogError(
                ErrorCode.PRODUCER_FENCED,
                f"the producer's epoch is {epoch}, not {run.epoch}",
                epoch=epoch,
            )
        same = known is not None and known.epoch == run.epoch
        settled = known.next_sequence if known is not None and same else 0
        following = settled
        if pushed and run.epoch == epoch:
            following = _end(pushed[-1].run)
        if run.sequence == following:
            return None
        if _end(run) > following:
            raise FencelogError(
                ErrorCode.SEQUENCE_MISMATCH,
                f"messages {run.sequence} to {_end(run) - 1} of the producer do not begin where "
                f"those in the log end, at {settled}",
                expected_sequence=settled,
            )
        if known is not None and _end(run) <= settled:
            return _original(known, run)
        return next(t for t in pushed if t.run.epoch == epoch and _end(t.run) >= _end(run))

    def push(self, tracked: Tracked) -> None:
        """An append that ``find`` knew nothing of is on its way."""
        run = tracked.run
        if run.kind == RUN_KEY:
            self._pushed_keys[run.id] = tracked
        else:
            self._pushed.setdefault(run.id, deque()).append(tracked)

    def push_again(self, tracked: Iterable[Tracked]) -> None:
        """These, in their order, and no others are still on their way."""
        self._pushed.clear()
        self._pushed_keys.clear()
        for each in tracked:
            self.push(each)

    def last_pushed(self, producer: bytes) -> Tracked | None:
        """The producer's latest append that is on its way."""
        pushed = self._pushed.get(producer)
        return pushed[-1] if pushed else None

    def get(self, producer: bytes) -> Producer | None:
        """What is settled of a producer."""
        return self._producers.get(producer)

    @property
    def count(self) -> int:
        """Producers that are remembered."""
        return len(self._producers)

    # -- what is in the log ----------------------------------------------------------------------

    def settle(
        self, runs: Sequence[ProducerRun], offset: int, publish_time_us: int, size: int
    ) -> None:
        """An entry with these runs, of ``size`` bytes, is in the log from ``offset`` on. Called in
        the order of the log; what a snapshot told already changes nothing."""
        self._untold.add(len(runs), size)
        for run in runs:
            kept = Kept(run.sequence, offset, run.rows, publish_time_us)
            if run.kind == RUN_SEQUENCE:
                self._settle_sequence(run, kept)
            elif run.kind == RUN_KEY:
                self._settle_key(run.id, kept)
            offset += run.rows
        self.end_offset = max(self.end_offset, offset)

    def _settle_sequence(self, run: ProducerRun, kept: Kept) -> None:
        known = self._producers.get(run.id)
        if known is None or known.epoch != run.epoch:
            before: tuple[Kept, ...] = ()
        else:
            before = known.kept[1 - KEPT_RUNS :]
        if known is None or known.end_offset <= kept.offset:
            self._producers[run.id] = Producer(run.epoch, _end(run), (*before, kept))
            self._producers.move_to_end(run.id)
            self._changed.add(run.id)
            self._forget_silent()
        pushed = self._pushed.get(run.id)
        if pushed is not None:
            while pushed and (pushed[0].run.epoch, _end(pushed[0].run)) <= (run.epoch, _end(run)):
                pushed.popleft()
            if not pushed:
                del self._pushed[run.id]

    def _settle_key(self, key: bytes, kept: Kept) -> None:
        known = self._keys.get(key)
        if known is None or known.offset < kept.offset:
            self._remember_key(key, kept)
            self._changed_keys.add(key)
        self._pushed_keys.pop(key, None)

    def _remember_key(self, key: bytes, kept: Kept) -> None:
        self._keys[key] = kept
        self._keys.move_to_end(key)
        self._forget_old(kept.publish_time_us)

    def _forget_silent(self) -> None:
        while len(self._producers) > self.policy.max_producers:
            self._changed.discard(self._producers.popitem(last=False)[0])

    def _forget_old(self, now_us: int) -> None:
        oldest_us = now_us - self.policy.idempotency_window_ms * 1000
        while len(self._keys) > MAX_IDEMPOTENCY_KEYS or (
            next(iter(self._keys.values())).publish_time_us < oldest_us
        ):
            self._changed_keys.discard(self._keys.popitem(last=False)[0])

    # -- the section -----------------------------------------------------------------------------

    @property
    def is_change_due(self) -> bool:
        """Whether the state log should be told, so that a takeover has little to read."""
        return self._untold.is_much

    def changes(self) -> Iterator[Event]:
        """Events that say what was settled since the last time. ``end_offset`` comes with the last
        one: if the others alone are known, entries are read that had been told already."""
        producers = [(id_, p) for id_, p in self._producers.items() if id_ in self._changed]
        keys = [(key, k) for key, k in self._keys.items() if key in self._changed_keys]
        self._changed.clear()
        self._changed_keys.clear()
        self._untold = _Untold()
        return self._events(producers, keys)

    def snapshot(self) -> Iterator[Event]:
        if self.end_offset == 0:
            return iter(())
        return self._events(list(self._producers.items()), list(self._keys.items()))

    def apply(self, event: Event) -> None:
        _, producers, keys, end_offset = event
        for name, epoch, next_sequence, kept in producers:
            id_ = bytes.fromhex(name)
            runs = tuple(Kept(*run) for run in kept)
            self._producers[id_] = Producer(epoch, next_sequence, runs)
            self._producers.move_to_end(id_)
            self._forget_silent()
        for name, kept in keys:
            self._remember_key(bytes.fromhex(name), Kept(*kept))
        if end_offset is not None:
            self.end_offset = end_offset

    def _events(
        self, producers: list[tuple[bytes, Producer]], keys: list[tuple[bytes, Kept]]
    ) -> Iterator[Event]:
        for part in _parts(producers):
            yield [
                "producers",
                [[id_.hex(), p.epoch, p.next_sequence, p.kept] for id_, p in part],
                [],
                None,
            ]
        for keys_part in _parts(keys):
            yield ["producers", [], [[key.hex(), kept] for key, kept in keys_part], None]
        yield ["producers", [], [], self.end_offset]


@dataclass(slots=True)
class _Untold:
    """What was settled since the state log was told."""

    entries: int = 0
    runs: int = 0
    size: int = 0

    def add(self, runs: int, size: int) -> None:
        self.entries += 1
        self.runs += runs
        self.size += size

    @property
    def is_much(self) -> bool:
        return (
            self.entries >= MAX_REPLAY_ENTRIES
            or self.size >= MAX_REPLAY_BYTES
            or self.runs >= MAX_REPLAY_RUNS
        )


def _end(run: ProducerRun) -> int:
    return run.sequence + run.rows


def _original(known: Producer, run: ProducerRun) -> Kept:
    for kept in known.kept:
        if kept.sequence <= run.sequence and _end(run) <= kept.sequence + kept.rows:
            offset = kept.offset + run.sequence - kept.sequence
            return Kept(run.sequence, offset, run.rows, kept.publish_time_us)
    return Kept(run.sequence, FORGOTTEN, run.rows, FORGOTTEN)


def _parts(items: list[tuple[bytes, Any]]) -> Iterator[list[tuple[bytes, Any]]]:
    for start in range(0, len(items), ROWS_PER_EVENT):
        yield items[start : start + ROWS_PER_EVENT]
