"""Appends that wait to be sent, in order: whole batches, and groups of single messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from fencelog.broker.append.conditions import AppendFuture, Tracked
from fencelog.broker.append.pending import PendingEntry, WaitingGroup
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.record_batch import Message


class AppendQueue:
    """The queue of one pipeline. ``items`` are in the order of sending. ``gathering``: the last
    one, if messages may still join it."""

    __slots__ = ("_end_offset", "_now_us", "gathering", "items")

    def __init__(self, offset: int, now_us: Callable[[], int]) -> None:
        """Begin empty. ``offset``: the offset that the first append gets."""
        self._now_us = now_us
        self.items: deque[PendingEntry | WaitingGroup] | tuple[()] = ()
        self.gathering: WaitingGroup | None = None
        self._end_offset = offset

    @property
    def next_offset(self) -> int:
        """The offset that an append gets that is added now, if none before it is given up."""
        group = self.gathering
        return self._end_offset + (0 if group is None else group.count)

    def add_message(
        self, message: Message, size: int, future: AppendFuture, tracked: Tracked | None
    ) -> None:
        group = self.gathering
        if group is None or group.is_full or group.is_full_of_ranges:
            group = self.new_group()
        group.add(message, size, future)
        if tracked is not None:
            group.track(tracked)

    def add_entry(self, entry: PendingEntry) -> None:
        if self.gathering is not None:
            self._end_group(self.gathering)
        entry.queued_us = self._now_us()
        self._waiting().append(entry)
        self._end_offset += entry.count

    def new_group(self) -> WaitingGroup:
        """Begin a group for the messages from now on."""
        if self.gathering is not None:
            self._end_group(self.gathering)
        group = self.gathering = WaitingGroup(self._now_us())
        self._waiting().append(group)
        return group

    def take_first(self) -> PendingEntry | WaitingGroup:
        """Remove the first item, which exists, and return it."""
        items = self._waiting()
        first = items.popleft()
        if not items:
            self.items = ()
        return first

    def build(self, group: WaitingGroup) -> PendingEntry:
        """Build the entry of the first group, which was taken from ``items``."""
        entry = group.build()
        if group is self.gathering:
            self._end_offset += entry.count
            self.gathering = None
        return entry

    def put_back(self, entry: PendingEntry) -> None:
        """Put an entry that was taken back in the first place."""
        self._waiting().appendleft(entry)

    def give_up(self, error: FencelogError) -> int:
        """Fail and forget all appends; return their size in bytes. ``recount`` must follow."""
        for item in self.items:
            item.fail(error)
        size = sum(item.size for item in self.items)
        self.items = ()
        self.gathering = None
        return size

    def recount(self, offset: int) -> None:
        """Count offsets again after appends have vanished: the first item gets ``offset``."""
        count = sum(item.count for item in self.items)
        self._end_offset = offset + count - (self.gathering.count if self.gathering else 0)

    @property
    def tracked(self) -> Iterable[Tracked]:
        """The appends of producers, in order."""
        return tracked_of(self.items)

    def _waiting(self) -> deque[PendingEntry | WaitingGroup]:
        """Return the items, to be changed. There is a deque only while there are some: an empty one
        takes 700 bytes, in every idle partition."""
        items = self.items
        if isinstance(items, tuple):
            items = self.items = deque()
        return items

    def _end_group(self, group: WaitingGroup) -> None:
        self._end_offset += group.count
        self.gathering = None


def tracked_of(items: Iterable[PendingEntry | WaitingGroup]) -> Iterator[Tracked]:
    """Return the appends of producers in these items, in order."""
    for item in items:
        if item.ranges is not None:
            yield from item.ranges.tracked
