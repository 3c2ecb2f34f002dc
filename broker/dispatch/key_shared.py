"""Key-shared: as shared, but the messages of one key stay in order and with one consumer. Pure.

* A key belongs to the consumer that has messages of it, until it has none left.
* A message waits while an earlier one of its key waits or backs off, while another consumer has any
  of its key, and while any consumer has a later one of it (this one failed, that one did not); the
  messages of other keys are delivered meanwhile.
* A message with a time of delivery takes its place among those of its key at that time.
* Messages without a key are as in a shared subscription.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

from fencelog.broker.dispatch.consumers import ConsumerTable
from fencelog.broker.dispatch.cursor_core import Cursor, within
from fencelog.broker.dispatch.shared import SharedDispatch
from fencelog.broker.registry.subscription_config import SubscriptionConfig

_MAX_PLAIN_KEY = 64
"""The longest key that is remembered as it is; longer keys are remembered by their hash."""


@dataclass(slots=True, eq=False)
class _Key:
    """One key with messages that are with its ``holder`` (``out`` of them) or wait, in order."""

    name: bytes
    holder: str = ""
    out: int = 0
    latest: int = -1
    """The highest offset that was delivered to the holder."""
    waiting: list[int] = field(default_factory=list)
    listed: dict[bytes, _Key] | None = None
    """The list that holds the key, for the consumers that may receive its first waiting message."""


class KeySharedDispatch(SharedDispatch):
    def __init__(
        self, cursor: Cursor, config: SubscriptionConfig, consumers: ConsumerTable
    ) -> None:
        super().__init__(cursor, config, consumers)
        self._keys: dict[bytes, _Key] = {}
        self._name_of: dict[int, bytes] = {}
        self._free: dict[bytes, _Key] = {}
        self._bound: dict[str, dict[bytes, _Key]] = {}
        self._waiting_count = 0

    @property
    def held(self) -> int:
        return super().held + self._waiting_count

    def waiting(self, consumer: str, limit: int, now: float) -> list[int]:
        found = super().waiting(consumer, limit, now)
        most = len(found) + limit
        own = self._bound.get(consumer, {})
        for key in chain(own.values(), self._free.values()):
            for offset in key.waiting:
                if offset in self.delayed or len(found) == most:
                    break
                found.append(offset)
            if len(found) == most:
                break
        return sorted(found)[:limit]

    def take(self, consumer: str, offsets: list[int]) -> list[int]:
        plain = [offset for offset in offsets if offset not in self._name_of]
        taken = super().take(consumer, plain)
        for offset in offsets:
            name = self._name_of.get(offset)
            key = None if name is None else self._keys.get(name)
            if key is not None and self._may_take(key, consumer, offset):
                del key.waiting[0]
                self._waiting_count -= 1
                self._hand(key, consumer, offset)
                taken.append(offset)
        return sorted(taken)

    def _may_take(self, key: _Key, consumer: str, offset: int) -> bool:
        return (
            key.waiting[:1] == [offset]
            and offset not in self.delayed
            and (key.out == 0 or (key.holder == consumer and offset > key.latest))
        )

    def _offer(self, consumer: str, offset: int, key: bytes | None, due: float | None) -> bool:
        if key is None:
            return super()._offer(consumer, offset, key, due)
        name = key if len(key) <= _MAX_PLAIN_KEY else blake2b(key, digest_size=32).digest()
        self._name_of[offset] = name
        if due is not None:
            self._delay(offset, due)
            return False
        known = self._key(name)
        if not known.waiting and (known.out == 0 or known.holder == consumer):
            self._hand(known, consumer, offset)
            return True
        self._wait(offset)
        return False

    def acked(self, first: int, end: int) -> None:
        super().acked(first, end)
        for offset in within(self._name_of, first, end):
            key = self._key(self._name_of.pop(offset))
            place = bisect_left(key.waiting, offset)
            if key.waiting[place : place + 1] == [offset]:
                del key.waiting[place]
                self._waiting_count -= 1
            self._list(key)

    def _returned(self, offsets: list[int]) -> None:
        for offset in offsets:
            name = self._name_of.get(offset)
            if name is not None:
                key = self._keys[name]
                key.out -= 1
                self._list(key)

    def _again(self, offsets: list[int]) -> None:
        super()._again([offset for offset in offsets if offset not in self._name_of])
        for offset in offsets:
            if offset in self._name_of:
                self._wait(offset)

    def _back_off(self, offset: int, due: float) -> None:
        super()._back_off(offset, due)
        if offset in self._name_of:
            self._wait(offset)

    def _has_waiting(self, consumer: str, now: float) -> bool:
        return bool(self._free) or consumer in self._bound or super()._has_waiting(consumer, now)

    # -- keys ------------------------------------------------------------------------------------

    def _key(self, name: bytes) -> _Key:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key(name)
        return key

    def _hand(self, key: _Key, consumer: str, offset: int) -> None:
        key.latest = max(key.latest, offset) if key.out else offset
        key.holder = consumer
        key.out += 1
        self._list(key)

    def _wait(self, offset: int) -> None:
        """Put the message in its place among those of its key, unless it is there already."""
        key = self._key(self._name_of[offset])
        place = bisect_left(key.waiting, offset)
        if key.waiting[place : place + 1] != [offset]:
            key.waiting.insert(place, offset)
            self._waiting_count += 1
        self._list(key)

    def _list(self, key: _Key) -> None:
        """Put a key that has changed into the list where it can be found, if any."""
        place: dict[bytes, _Key] | None = None
        if key.waiting and key.waiting[0] not in self.delayed:
            if key.out == 0:
                place = self._free
            elif key.waiting[0] > key.latest:
                place = self._bound.setdefault(key.holder, {})
        previous = key.listed
        if place is not previous:
            if previous is not None:
                del previous[key.name]
                if not previous and previous is not self._free:
                    del self._bound[key.holder]
            if place is not None:
                place[key.name] = key
            key.listed = place
        if not key.waiting and not key.out:
            self._keys.pop(key.name, None)
