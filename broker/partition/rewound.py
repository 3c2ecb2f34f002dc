"""The events of a state log within a log that ends before what they know.

A metadata store that was restored from a backup names the state ledger of that time. It may have
been written for longer than the ledgers of messages that the backup names, since these roll without
it. What it says of messages in later ledgers, which are lost to the topic, is not true any more:
their offsets are given again, to messages that nobody has acknowledged, and their producers may
send them again.
"""

from __future__ import annotations

from typing import Any

from fencelog.broker.ledger_list.state_core import Event


def rewound(event: Event, log_end: int) -> Event:
    """Return what is left of an event in a log that ends at ``log_end``: the same object if all of
    it is. An event that is not valid stays as it is: whoever applies it refuses it."""
    try:
        return _cut(event, log_end)
    except (LookupError, TypeError, ValueError):
        return event


def _cut(event: Event, log_end: int) -> Event:
    match event:
        case ["cursor", name, int(acked_to), generation, lost] if acked_to > log_end:
            return ["cursor", name, log_end, generation, lost]
        case ["seek", name, int(offset), generation] if offset > log_end:
            return ["seek", name, log_end, generation]
        case ["trimmed", name, int(offset)] if offset > log_end:
            return ["trimmed", name, log_end]
        case ["ack" | "failures", _, [*ranges]] if any(end > log_end for _, end, *_ in ranges):
            return [*event[:2], _ranges_below(ranges, log_end)]
        case ["producers", [*producers], [*keys], end_offset]:
            return _producers_below(event, producers, keys, end_offset, log_end)
    return event


def _ranges_below(ranges: list[Any], log_end: int) -> list[Any]:
    return [[a, min(b, log_end), *rest] for a, b, *rest in ranges if a < log_end]


def _producers_below(
    event: Event, producers: list[Any], keys: list[Any], end_offset: int | None, log_end: int
) -> Event:
    """Leave out each producer and key whose last append lies behind the end: what it was before
    that, earlier events say, and the entries up to the end. These are read from where the last
    event that is true says that all is known."""
    known = [row for row in producers if _end_of(row[3][-1]) <= log_end]
    known_keys = [row for row in keys if _end_of(row[1]) <= log_end]
    is_known = end_offset is None or end_offset <= log_end
    if is_known and len(known) == len(producers) and len(known_keys) == len(keys):
        return event
    return ["producers", known, known_keys, end_offset if is_known else None]


def _end_of(recent: list[Any]) -> int:
    """Return the offset behind an append, see ``RecentAppend``."""
    end: int = recent[1] + recent[2]
    return end
