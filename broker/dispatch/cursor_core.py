"""Cursors: the acknowledgements of a partition's subscriptions, the part that must be durable.
Pure.

A section of the partition's state (``state_core``). Its events:

    ["cursor", id, acked_to, generation, lost]    there is a cursor; it begins here
    ["ack", id, [[first, end], …]]                these messages are acknowledged
    ["seek", id, offset, generation]              it continues here, whatever was acknowledged
    ["failures", id, [[first, end, n], …]]        these messages failed n times
    ["trimmed", id, offset]                       retention removed the messages below
    ["cursor_dropped", id]                        the cursor is deleted

An event of a missing cursor has no effect: the cursor was dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from fencelog.broker.dispatch.ack_ranges import AckRanges
from fencelog.broker.ledger_list.state_core import Event

RANGES_AN_EVENT = 1000
"""The ranges in one event of a snapshot: some 20 KB."""

GENERATIONS_AN_EPOCH = 1 << 32
"""The generations reserved for an epoch: more seeks than one owner ever takes."""


@dataclass(slots=True, eq=False)
class Cursor:
    """The position of one subscription. ``generation`` is raised by each seek
    (``next_generation``); ``failures``: how often messages that are not acknowledged were refused
    or ran out of their lease; ``lost``: how many unacknowledged messages retention removed."""

    acks: AckRanges
    generation: int = 0
    lost: int = 0
    failures: dict[int, int] = field(default_factory=dict)
    confirmed_to: int = 0
    """The durable part of ``acks.acked_to``, which retention may rely on."""

    def add(self, first: int, end: int) -> int:
        """Acknowledge messages; return how many of them were not acknowledged before."""
        for offset in within(self.failures, first, end):
            del self.failures[offset]
        return self.acks.add(first, end)


class Cursors:
    """The cursors of one partition, by subscription id."""

    kinds = ("cursor", "ack", "seek", "failures", "trimmed", "cursor_dropped")

    def __init__(self) -> None:
        self.by_id: dict[str, Cursor] = {}

    def apply(self, event: Event) -> None:
        """Apply an event, see ``state_core.Section``."""
        match event:
            case ["cursor", str(name), int(acked_to), int(generation), int(lost)]:
                cursor = Cursor(AckRanges(acked_to), generation, lost, confirmed_to=acked_to)
                self.by_id.setdefault(name, cursor)
            case ["cursor_dropped", str(name)]:
                self.by_id.pop(name, None)
            case [kind, str(name), *rest]:
                cursor_there = self.by_id.get(name)
                if cursor_there is not None:
                    _change(cursor_there, kind, rest)
            case _:
                raise ValueError("no event of a cursor")

    def snapshot(self) -> Iterator[Event]:
        """Yield the events of a snapshot, see ``state_core.Section``."""
        for name, cursor in self.by_id.items():
            yield ["cursor", name, cursor.acks.acked_to, cursor.generation, cursor.lost]
            for ranges in _chunks(cursor.acks):
                yield ["ack", name, ranges]
            for failures in _chunks(failure_ranges(cursor.failures, sorted(cursor.failures))):
                yield ["failures", name, failures]


def next_generation(generation: int, epoch: int) -> int:
    """Return the generation of a cursor after one more seek by the owner of this epoch.

    Generations of different owners never coincide: a seek that an owner accepted, and that did not
    become durable before that of the next owner, must not make its ack ids look like those of the
    next owner.
    """
    return max(generation + 1, epoch * GENERATIONS_AN_EPOCH)


def failure_ranges(failures: dict[int, int], offsets: Iterable[int]) -> list[list[int]]:
    """Return how often these messages, in order, failed, as ``[[first, end, n], …]``."""
    ranges: list[list[int]] = []
    for offset in offsets:
        count = failures[offset]
        if ranges and ranges[-1][1] == offset and ranges[-1][2] == count:
            ranges[-1][1] += 1
        else:
            ranges.append([offset, offset + 1, count])
    return ranges


def within(known: dict[int, Any] | set[int], first: int, end: int) -> list[int]:
    """Return the known offsets within a range, by iterating over the smaller of the two."""
    if end - first <= len(known):
        return [offset for offset in range(first, end) if offset in known]
    return [offset for offset in known if first <= offset < end]


def _change(cursor: Cursor, kind: str, rest: list[Any]) -> None:
    match kind, rest:
        case "ack", [list(ranges)]:
            for first, end in ranges:
                cursor.add(first, end)
        case "seek", [int(offset), int(generation)]:
            if generation > cursor.generation:
                cursor.generation = generation
                cursor.acks = AckRanges(offset)
                cursor.failures = {}
                cursor.confirmed_to = min(cursor.confirmed_to, offset)
        case "failures", [list(failures)]:
            for first, end, count in failures:
                for low, high in cursor.acks.unacked(first, end):
                    cursor.failures.update(dict.fromkeys(range(low, high), count))
        case "trimmed", [int(offset)]:
            cursor.lost += cursor.add(cursor.acks.acked_to, offset)
        case _:
            raise ValueError(f"no event of a cursor: {kind}")


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, RANGES_AN_EVENT)):
        yield chunk
