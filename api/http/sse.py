"""Server-sent events: the text of the events that a followed partition sends.

``message`` (its id is the offset: a browser resumes with ``Last-Event-ID``), ``control`` (the
position of the stream), ``ping`` (so that proxies and clients see a living connection) and
``problem`` (the last event of a stream that cannot go on).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fencelog.api.http.problems import problem_body
from fencelog.ledgers.errors import ErrorCode, FencelogError

PING_INTERVAL_MS = 10_000
"""The interval of pings, below the 15 s after which common proxies cut a silent connection."""

PING = b"event: ping\ndata: {}\n\n"


def message_events(offsets: Sequence[int], objects: Sequence[bytes]) -> bytes:
    """Return one event for each message object; the objects are JSON without line breaks."""
    return b"".join(
        b"event: message\nid: %d\ndata: %b\n\n" % pair
        for pair in zip(offsets, objects, strict=True)
    )


def control_event(*, next_offset: int, tail_offset: int, is_end: bool = False) -> bytes:
    """Return the position of the stream: the next offset it sends and the partition's end.
    ``is_end``: the end is final."""
    state = {
        "next_offset": next_offset,
        "tail_offset": tail_offset,
        "at_tail": next_offset >= tail_offset,
    }
    if is_end:
        state["end_of_topic"] = True
    return b"event: control\ndata: %b\n\n" % msgspec.json.encode(state)


def problem_event(error: FencelogError, instance: str) -> bytes:
    """Return the last event of a stream."""
    return b"event: problem\ndata: %b\n\n" % problem_body(error, instance)


def resume_offset(last_event_id: bytes) -> int:
    """Return the offset after ``Last-Event-ID``. Raises FencelogError(BAD_REQUEST)."""
    text = last_event_id.decode("latin-1").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"Last-Event-ID {text[:40]!r} is no offset of this stream"
        )
    return int(text) + 1
