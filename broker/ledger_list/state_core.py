"""The state of a partition besides its messages: cursors, producers, tokens; and its encoding.

The state is made of sections. Each is rebuilt from *events*, JSON lists ``[kind, …]``, and can
write itself as a list of events from nothing (its snapshot): the state log holds both in the same
form, one event a line, so that reading it is applying it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from fencelog.broker.limits import STATE_ENTRY_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError

Event = list[Any]


class Section(Protocol):
    """One part of the state. ``kinds``: the kinds of its events."""

    @property
    def kinds(self) -> Collection[str]: ...

    def apply(self, event: Event) -> None:
        """Change as the event says. An event that the state contains already changes nothing.
        Raises LookupError, TypeError or ValueError if it is not valid."""

    def snapshot(self) -> Iterable[Event]:
        """Return events that turn an empty section into this one."""


class PartitionState:
    """The sections of one partition together."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._sections = tuple(sections)
        self.is_rewound = False
        """The state log says more than this, of messages that the log does not have. It has to be
        written anew before the log gets others at their offsets."""

    def apply(self, event: Event) -> None:
        """Apply an event to its section. Raises FencelogError(CORRUPT): the state log passed its
        digests, so it was written so."""
        try:
            kind = event[0]
            section = next((each for each in self._sections if kind in each.kinds), None)
            if section is None:
                raise LookupError(kind)
            section.apply(event)
        except (LookupError, TypeError, ValueError) as error:
            shown = str(event)[:200]
            raise FencelogError(
                ErrorCode.CORRUPT, f"state event {shown} is not valid: {error!r}"
            ) from error

    def snapshot(self) -> Iterator[Event]:
        """Return the snapshots of all sections, in their order."""
        for section in self._sections:
            yield from section.snapshot()


def encode_events(events: Iterable[Event]) -> Iterator[tuple[int, bytes]]:
    """Return (number of events, bytes) of one or more entries, each about STATE_ENTRY_BYTES at
    most."""
    lines: list[bytes] = []
    size = 0
    for event in events:
        line = msgspec.json.encode(event)
        if lines and size + len(line) > STATE_ENTRY_BYTES:
            yield len(lines), b"\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield len(lines), b"\n".join(lines)


def decode_events(data: bytes | memoryview) -> list[Event]:
    """Decode the events of an entry. Raises FencelogError(CORRUPT)."""
    try:
        return [msgspec.json.decode(line, type=Event) for line in bytes(data).split(b"\n")]
    except msgspec.MsgspecError as error:
        raise FencelogError(ErrorCode.CORRUPT, f"state events are not valid: {error}") from error
