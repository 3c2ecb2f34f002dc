"""The timeline of events as it is asked for and shown: filters, pages, and each event in words.
Decisions on values alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, structs

from fencelog.api.http.asgi import parse_number
from fencelog.api.http.read_request import MAX_OFFSET, parse_wait_ms
from fencelog.broker.cluster.events_core import Event, EventKind, OwnerEnd
from fencelog.broker.limits import MAX_EVENTS_PAGE
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError

EVENT_PARAMETERS = frozenset(
    ("limit", "kind", "topic", "since", "until", "before", "after", "wait")
)

DEFAULT_EVENTS = 100


class ShownEvent(Event, frozen=True, kw_only=True, rename={"previous": "from"}):
    """An event with its place in the timeline, and in words."""

    offset: int
    summary: str


class EventPage(Struct):
    """A part of the timeline, in its order. ``older``: the value of ``before`` for the part before
    it, null if there is none; ``newer``: that of ``after`` for what follows. A page that a filter
    makes short, or empty, may have others."""

    events: list[ShownEvent]
    older: int | None
    newer: int


@dataclass(frozen=True, slots=True)
class EventQuery:
    """The events that are asked for. ``kinds``: empty: all. With ``after`` those from that offset
    on, the first ``limit``; else the last ``limit`` of those below ``before`` (None: the end)."""

    limit: int = DEFAULT_EVENTS
    kinds: frozenset[str] = frozenset()
    topic: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    before: int | None = None
    after: int | None = None
    wait_ms: int = 0

    def matches(self, event: Event) -> bool:
        """Tell whether an event is asked for."""
        return (
            (not self.kinds or event.kind in self.kinds)
            and (self.topic is None or event.topic == self.topic)
            and (self.since_us is None or event.time_us >= self.since_us)
            and (self.until_us is None or event.time_us < self.until_us)
        )


def read_query(query: Mapping[str, str]) -> EventQuery:
    """Parse the parameters of a request. Raises FencelogError(BAD_REQUEST, INVALID_NAME)."""

    def number(name: str, *, low: int = 0, high: int = MAX_OFFSET) -> int | None:
        return parse_number(name, query[name], low=low, high=high) if name in query else None

    before, after = number("before"), number("after")
    if before is not None and after is not None:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, "before and after cannot both be given", parameter="after"
        )
    if "wait" in query and after is None:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, "wait is for the events after an offset", parameter="wait"
        )
    return EventQuery(
        limit=number("limit", low=1, high=MAX_EVENTS_PAGE) or DEFAULT_EVENTS,
        kinds=_kinds(query["kind"]) if "kind" in query else frozenset(),
        topic=str(TopicName.parse(query["topic"])) if "topic" in query else None,
        since_us=number("since"),
        until_us=number("until"),
        before=before,
        after=after,
        wait_ms=parse_wait_ms(query.get("wait", "0")),
    )


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(text.split(","))
    known = [kind.value for kind in EventKind]
    if unknown := sorted(kinds.difference(known)):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"kind is some of {', '.join(known)}, with commas; not {unknown[0][:40]!r}",
            parameter="kind",
        )
    return kinds


def shown(offset: int, event: Event) -> ShownEvent:
    """Return the event of a message as it is shown."""
    return ShownEvent(**structs.asdict(event), offset=offset, summary=summary(event))


# -- in words --------------------------------------------------------------------------------------

_ENDS: Mapping[str, str] = {
    OwnerEnd.RELEASED: "which had released it",
    OwnerEnd.UNREACHABLE: "whose port refused connections",
    OwnerEnd.SESSION_ENDED: "whose session had ended",
    OwnerEnd.FENCED: "which was fenced",
}


def _takeover(event: Event) -> str:
    previous, detail = event.previous, event.detail
    by = f"taken over by {event.broker_id}"
    if previous is not None:
        by += f" from {previous.broker_id}"
        if previous.ended in _ENDS:
            by += f", {_ENDS[previous.ended]}"
    else:
        by += " for the first time"
    recovered = len(detail.get("recovered", ()))
    closed = f", {_counted(recovered, 'ledger')} recovered" if recovered else ""
    return f"{by}; epoch {event.epoch}{closed}, took {detail.get('took_us', 0) / 1000:.0f} ms"


def _ensemble_change(event: Event) -> str:
    removed, added = (", ".join(event.detail.get(name, ())) for name in ("removed", "added"))
    return f"ledger {event.ledger_id}: {removed or 'no bookie'} replaced by {added or 'none'}"


def _drain(event: Event) -> str:
    detail = event.detail
    if not detail.get("is_done"):
        return f"drain of {_counted(detail.get('partitions', 0), 'partition')} begun"
    left = detail.get("not_taken", 0)
    rest = f", {_counted(left, 'partition')} not taken by others" if left else ""
    still_open = detail.get("still_open", 0)
    if still_open:
        return f"not drained in time: {_counted(still_open, 'partition')} still there{rest}"
    return f"drained{rest}"


def _trim(event: Event) -> str:
    ledgers = _counted(event.detail.get("count", 0), "ledger")
    return f"trimmed: {ledgers} removed, begins at offset {event.detail.get('start_offset')}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


_TEXTS: Mapping[str, Callable[[Event], str]] = {
    EventKind.TAKEOVER: _takeover,
    EventKind.TAKEOVER_FAILED: lambda e: f"could not be taken over: {e.detail.get('error')}",
    EventKind.LOST: lambda e: f"lost by {e.broker_id}: {e.detail.get('error')}",
    EventKind.FENCED: lambda e: f"ledger {e.ledger_id} fenced while {e.broker_id} wrote it",
    EventKind.CONFLICT: lambda e: f"ledger list changed by another broker: {e.detail.get('error')}",
    EventKind.ROLL: lambda e: f"rolled from ledger {_before(e)} to {e.ledger_id}",
    EventKind.REPAIR: lambda e: f"ledger {_before(e)}, which failed, replaced by {e.ledger_id}",
    EventKind.RECOVERY: lambda e: (
        f"ledger {e.ledger_id} recovered, ends with entry {e.detail.get('last_entry')}"
    ),
    EventKind.ENSEMBLE_CHANGE: _ensemble_change,
    EventKind.TRIM: _trim,
    EventKind.TERMINATE: lambda e: f"terminated at offset {e.detail.get('end_offset')}",
    EventKind.DRAIN: _drain,
    EventKind.UNDRAIN: lambda _: "takes partitions again",
    EventKind.OWNER_UNREACHABLE: lambda e: (
        f"owner {e.detail.get('owner')} refuses connections at {e.detail.get('url')}"
    ),
    EventKind.EVENTS_LOST: lambda e: f"{e.detail.get('events')} events before this one are lost",
}


def _before(event: Event) -> Any:
    return event.detail.get("previous_ledger")


def summary(event: Event) -> str:
    """Return an event in one line: what it is about, and what has happened."""
    about = event.broker_id if event.topic is None else f"{event.topic}/{event.partition}"
    text = _TEXTS.get(event.kind)
    try:
        said = event.kind if text is None else text(event)
    except (AttributeError, TypeError, ValueError):  # whatever was appended by others
        said = event.kind
    return " ".join(f"{about}: {said}".split())
