"""The choice of the messages that a compacted view keeps, without I/O.

A pass takes the messages of the previous view, and a part of the log that follows it. Of each key
the newest message stays; messages without a key stay. An empty value is a tombstone: it replaces
its key's message as any newer message does, and is removed in the next compaction, so that readers
of the view in between see it.

Only the keys of the new part are held in memory, as digests of 16 bytes. Where it has more than
``limit`` of them, the part ends before the first that does not fit, and another pass continues
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from fencelog.broker.compaction.compacted_entry import pack_compacted
from fencelog.broker.limits import COMPACTED_ENTRY_BYTES, COMPACTED_ENTRY_MESSAGES
from fencelog.ledgers.record_batch import Message


class NewestOffsets:
    """The offset of the newest message of every key in a part of the log."""

    def __init__(self, limit: int, *, tombstones_from: int) -> None:
        """Create an empty table. ``tombstones_from``: where the compaction began to which this part
        belongs."""
        self._limit = limit
        self._tombstones_from = tombstones_from
        self._newest: dict[bytes, int] = {}

    def add(self, first_offset: int, messages: Sequence[Message]) -> int | None:
        """Add the messages from ``first_offset`` on; return the offset at which the part has to
        end, if one more key would be too many."""
        newest = self._newest
        for offset, message in enumerate(messages, first_offset):
            if message.key is None:
                continue
            key = _digest(message.key)
            if len(newest) >= self._limit and key not in newest:
                return offset
            newest[key] = offset
        return None

    def keeps_previous(self, offset: int, message: Message) -> bool:
        """Tell whether a message of the previous view stays in it."""
        if message.key is None:
            return True
        if not message.value and offset < self._tombstones_from:
            return False
        return _digest(message.key) not in self._newest

    def keeps(self, offset: int, message: Message) -> bool:
        """Tell whether a message of the added part becomes part of the view."""
        return message.key is None or self._newest[_digest(message.key)] == offset


class ViewEntry:
    """The messages of the next entry of the view."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._messages: list[Message] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int, publish_time_us: int, message: Message) -> None:
        self._offsets.append(offset)
        self._times.append(publish_time_us)
        self._messages.append(message)
        headers = sum(len(name) + len(value) for name, value in message.headers)
        self._size += len(message.value) + len(message.key or b"") + headers

    @property
    def is_full(self) -> bool:
        return self._size >= COMPACTED_ENTRY_BYTES or len(self) >= COMPACTED_ENTRY_MESSAGES

    def pack(self) -> bytes:
        """Return the entry's payload."""
        return pack_compacted(self._offsets, self._times, self._messages)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
