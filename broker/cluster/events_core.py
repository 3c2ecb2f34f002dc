"""The timeline of events: what an event says, which ones wait to be appended, and when an append of
them is repeated. Decisions on values alone.

An event is one message of the topic ``EVENTS_TOPIC``, in JSON. That topic is like any other: it has
an owner, ledgers, retention, and can be read and followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.limits import (
    EVENT_BATCH,
    EVENT_REPEAT_MS,
    EVENT_WINDOW_MS,
    EVENTS_RETENTION_BYTES,
    EVENTS_RETENTION_MS,
    EVENTS_ROLL_BYTES,
    MAX_QUEUED_EVENTS,
)
from fencelog.broker.names import TopicName
from fencelog.broker.policy import Overrides
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError

EVENTS_TOPIC = TopicName.of("fencelog", "events")
"""The topic of events. It is made when the first event is recorded; its settings may be changed
then."""

EVENTS_SETTINGS: Overrides = {
    "retention_ms": EVENTS_RETENTION_MS,
    "retention_bytes": EVENTS_RETENTION_BYTES,
    "roll_bytes": EVENTS_ROLL_BYTES,
    "idempotency_window_ms": EVENT_WINDOW_MS,
}


class EventKind(StrEnum):
    """The kinds of events."""

    TAKEOVER = "takeover"
    TAKEOVER_FAILED = "takeover_failed"
    LOST = "lost"
    FENCED = "fenced"
    CONFLICT = "conflict"
    ROLL = "roll"
    REPAIR = "repair"
    RECOVERY = "recovery"
    ENSEMBLE_CHANGE = "ensemble_change"
    TRIM = "trim"
    TERMINATE = "terminate"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    OWNER_UNREACHABLE = "owner_unreachable"
    EVENTS_LOST = "events_lost"


class OwnerEnd(StrEnum):
    """The ends of an owner, as the next one sees them. ``RELEASED``: it had closed the log and
    given the partition up; ``UNREACHABLE``: its port had refused connections a moment ago;
    ``SESSION_ENDED``: it was not registered any more; ``FENCED``: it still was."""

    RELEASED = "released"
    UNREACHABLE = "unreachable"
    SESSION_ENDED = "session_ended"
    FENCED = "fenced"


class PreviousOwner(msgspec.Struct, frozen=True):
    """The owner before a takeover, and how it has ended."""

    broker_id: str
    ended: str


class Event(msgspec.Struct, frozen=True, kw_only=True, rename={"previous": "from"}):
    """One event. ``broker_id``: the broker that has recorded it; ``previous``: of takeovers. A
    member that means nothing for its kind is None."""

    time_us: int
    kind: str
    broker_id: str
    topic: str | None = None
    partition: int | None = None
    epoch: int | None = None
    ledger_id: int | None = None
    previous: PreviousOwner | None = None
    detail: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """Return the value of an event's message."""
    return msgspec.json.encode(event)


def decode_event(value: bytes) -> Event | None:
    """Return the event in a message; None: it is none, since anyone may append to the topic."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def is_recorded(kind: EventKind, topic: TopicName | None) -> bool:
    """Tell whether an event is recorded. Of the topic of events only takeovers are: an append to it
    may lead to any other event there, which would lead to the next append."""
    return topic != EVENTS_TOPIC or kind is EventKind.TAKEOVER


def previous_owner(
    before: LedgerList,
    *,
    own_id: str,
    started_us: int,
    is_registered: Callable[[str], bool],
    is_unreachable: Callable[[str], bool],
) -> PreviousOwner | None:
    """Return the owner of the list that a takeover by ``own_id`` has found; None: it had none.
    ``started_us``: the start of the process; an owner of the same name before it was another
    process."""
    owner = before.owner
    if not owner:
        return None
    if all(segment.sealed is not None for segment in before.segments):
        ended = OwnerEnd.RELEASED
    elif owner == own_id:
        is_earlier = bool(before.takeovers) and before.takeovers[-1].taken_us < started_us
        ended = OwnerEnd.SESSION_ENDED if is_earlier else OwnerEnd.FENCED
    elif is_unreachable(owner):
        ended = OwnerEnd.UNREACHABLE
    else:
        ended = OwnerEnd.FENCED if is_registered(owner) else OwnerEnd.SESSION_ENDED
    return PreviousOwner(owner, ended.value)


class EventQueue:
    """The events of one broker that wait to be appended, at most ``limit``. Over it an event is
    dropped, and the next event that is appended says how many were."""

    def __init__(self, broker_id: str, limit: int = MAX_QUEUED_EVENTS) -> None:
        self._broker_id = broker_id
        self._limit = limit
        self._events: deque[Event] = deque()
        self._unreported = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits, not even the report of a loss."""
        return not self._events and not self._unreported

    def add(self, event: Event) -> bool:
        """Add an event; return False if it was dropped."""
        if len(self._events) >= self._limit:
            self._unreported += 1
            return False
        self._events.append(event)
        return True

    def take(self, now_us: int) -> list[Event]:
        """Return the next batch. The report of a loss stands behind everything that waited when it
        happened."""
        events = self._events
        batch = [events.popleft() for _ in range(min(EVENT_BATCH, len(events)))]
        if self._unreported:
            lost = Event(
                time_us=now_us,
                kind=EventKind.EVENTS_LOST.value,
                broker_id=self._broker_id,
                detail={"events": self._unreported},
            )
            self._unreported = 0
            (events or batch).append(lost)
        return batch

    def lose(self, batch: Iterable[Event]) -> int:
        """Note that a batch which was taken is lost, or may be; return the number of events in it,
        with those that it has reported as lost."""
        count = 0
        for event in batch:
            tells_of_a_loss = is_report([event])
            self._unreported += int(event.detail["events"]) if tells_of_a_loss else 1
            count += not tells_of_a_loss
        return count


def is_report(batch: Sequence[Event]) -> bool:
    """Tell whether a batch says nothing but that events were lost."""
    return all(event.kind == EventKind.EVENTS_LOST.value for event in batch)


def is_repeated(error: FencelogError, *, unknown_ms: float | None) -> bool:
    """Tell whether an append of events that has failed is repeated. ``unknown_ms``: the time since
    an attempt of unknown outcome (None: there was none): a repetition is written once only as long
    as the topic remembers its key."""
    if unknown_ms is not None and unknown_ms >= EVENT_REPEAT_MS:
        return False
    code = error.code
    return code.retryable or code.effects is Effects.MAYBE or code is ErrorCode.TOPIC_NOT_FOUND
