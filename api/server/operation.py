"""The form in which the requests on plain ASGI are described, and what many of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fencelog.api.http.json_render import StoredMessage
from fencelog.api.http.sse import Control
from fencelog.api.server.parameters import Shape
from fencelog.api.subscriptions.pull import DeliveredMessage

BYTES = {"type": "string", "format": "binary"}
LINES = {"type": "string", "minLength": 1, "description": "A line is a message"}
JSON, NDJSON, BATCH = "application/json", "application/x-ndjson", "application/vnd.fencelog.batch"
TEXT, EVENTS, OCTETS = "text/plain", "text/event-stream", "application/octet-stream"


class Lines(NamedTuple):
    """A body of JSON documents, one on each line."""

    line: Shape


class Events(NamedTuple):
    """An event stream: the JSON that is the data of its events, by their names."""

    data: Mapping[str, Shape]


PROBLEM = {"$ref": "#/components/schemas/Problem"}
PARTITION_EVENTS = Events(
    {"message": StoredMessage, "control": Control, "ping": {"type": "object"}, "problem": PROBLEM}
)
SUBSCRIPTION_EVENTS = Events(
    {"message": DeliveredMessage, "ping": {"type": "object"}, "problem": PROBLEM}
)

TOPIC = "/v1/topics/{namespace}/{topic}"
PARTITION = f"{TOPIC}/partitions/{{partition}}"
PRODUCER = f"{PARTITION}/producers/{{producer}}"
COMMITTER = f"{PARTITION}/committers/{{committer}}"
SUBSCRIPTION = f"{TOPIC}/subscriptions/{{subscription}}"


class Operation(NamedTuple):
    """A request. ``request``: its method, a blank, its path. ``about``: a summary, and after the
    first full stop what else to know. ``answer`` and ``body``: the shape of JSON, or shapes by
    media type; None: no content. ``query``: the names of parameters, those with a meaning of their
    own in ``meanings``, the others in ``parameters.QUERY``."""

    request: str
    name: str
    about: str
    answer: Shape
    status: int = 200
    body: Shape = None
    needs_body: bool = True
    query: frozenset[str] = frozenset()
    headers: frozenset[bytes] = frozenset()
    answer_headers: Mapping[str, Shape] = {}
    meanings: Mapping[str, tuple[Shape, str]] = {}
