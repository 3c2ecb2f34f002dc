"""Server-sent events: the text of the events that a followed partition sends.

``message`` (its id is the offset: a browser resumes with ``Last-Event-ID``), ``control`` (the
position of the stream), ``ping`` (so that proxies and clients see a living connection) and
``problem`` (the last event of a stream that cannot go on).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fencelog.api.http.problems import problem_body
from fencelog.ledgers.errors import FencelogError

PING_INTERVAL_MS = 10_000
"""The interval of pings, below the 15 s after which common proxies cut a silent connection."""

PING = b"event: ping\ndata: {}\n\n"


class Control(msgspec.Struct, omit_defaults=True):
    """The position of a stream: the next offset that it sends, and the end of the partition, which
    is final with ``end_of_topic``."""

    next_offset: int
    tail_offset: int
    at_tail: bool
    end_of_topic: bool = False


def message_events(offsets: Sequence[int], objects: Sequence[bytes]) -> bytes:
    """Return one event for each message object; the objects are JSON without line breaks."""
    return b"".join(
        b"event: message\nid: %d\ndata: %b\n\n" % pair
        for pair in zip(offsets, objects, strict=True)
    )


def control_event(*, next_offset: int, tail_offset: int, is_end: bool = False) -> bytes:
    """Return the position of the stream. ``is_end``: its end is final."""
    control = Control(next_offset, tail_offset, next_offset >= tail_offset, is_end)
    return b"event: control\ndata: %b\n\n" % msgspec.json.encode(control)


def problem_event(error: FencelogError, instance: str) -> bytes:
    """Return the last event of a stream."""
    return b"event: problem\ndata: %b\n" % problem_body(error, instance)
