"""The requests for the timeline of events, and for several answers together, as they are described:
see ``operations``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from fencelog.api.admin.events.core import EVENT_PARAMETERS, EventPage
from fencelog.api.admin.events.log import EVENTS_PATH
from fencelog.api.server.limits import MAX_ANSWERS_TOGETHER
from fencelog.api.server.operation import NDJSON, Lines, Operation
from fencelog.api.server.parameters import OWNER, PREFER, Shape
from fencelog.api.server.together import PATH_PATTERN, TOGETHER_PATH, PartAnswer
from fencelog.api.subscriptions.requests import Offset, WaitSeconds
from fencelog.broker.cluster.events_core import EventKind
from fencelog.broker.limits import MAX_EVENTS_PAGE
from fencelog.broker.names import NAME_PATTERN

_KIND = "|".join(EventKind)

_QUERY: Mapping[str, tuple[Shape, str]] = {
    "after": (Offset, "The first events from this offset on; by default the newest"),
    "before": (Offset, "The last events below this offset"),
    "kind": (
        Annotated[str, Meta(pattern=f"^({_KIND})(,({_KIND}))*$")],
        "These kinds only, with commas",
    ),
    "limit": (Annotated[int, Meta(ge=1, le=MAX_EVENTS_PAGE)], "Events at most"),
    "since": (Offset, "Since this time; µs since 1970 UTC"),
    "topic": (
        Annotated[str, Meta(pattern=f"^{NAME_PATTERN}/{NAME_PATTERN}$")],
        "Of this topic only, `NAMESPACE/TOPIC`",
    ),
    "until": (Offset, "Before this time; µs since 1970 UTC"),
    "wait": (WaitSeconds, "With `after`: seconds to wait for an event"),
}
"""The query parameters, some of which mean another thing elsewhere."""

TIMELINE = (
    Operation(
        f"GET {EVENTS_PATH}",
        "list_events",
        "The timeline of the cluster. Takeovers, fences, rolls, ensemble changes, drains and more, "
        "as brokers have recorded them, in their order. `older` and `newer` name the parts beside "
        "a page.",
        EventPage,
        query=EVENT_PARAMETERS,
        headers=PREFER,
        answer_headers=OWNER,
        meanings=_QUERY,
    ),
)

_PATHS = Annotated[
    list[Annotated[str, Meta(pattern=PATH_PATTERN)]], Meta(max_length=MAX_ANSWERS_TOGETHER)
]
_TAGS = Annotated[list[str], Meta(max_length=MAX_ANSWERS_TOGETHER)]

TOGETHER = (
    Operation(
        f"GET {TOGETHER_PATH}",
        "get_together",
        "Several answers to one request. A line for each `path`, as soon as its answer is there; "
        "after 10 s a problem takes its place.",
        {NDJSON: Lines(PartAnswer)},
        query=frozenset(("path", "known")),
        meanings={
            "path": (_PATHS, "What to get: a path with its query, percent-encoded; repeated"),
            "known": (_TAGS, "An `etag` that the client has: the line has no body; repeated"),
        },
    ),
)
