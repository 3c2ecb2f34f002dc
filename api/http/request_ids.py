"""The ids of requests: the one that a client sent as ``X-Request-Id``, or one made here.

An id is made when something first needs it (a problem, a log line, another broker), so a request
that nothing is said about costs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

from fencelog.ledgers.format.request_context import (
    NO_CONTEXTS,
    Contexts,
    RequestContext,
    is_request_id,
)
from fencelog.ledgers.host import Host, SystemHost

REQUEST_ID = b"x-request-id"
"""The header, in requests and in answers."""

CURRENT = "fencelog.request"
"""The key of an ASGI scope under which a connection passes the request that it knows already."""

_PREFIX_BYTES = 6


class RequestIds:
    """The maker of ids for requests that brought none: a random part of its own, and a number."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._prefix = ""
        self._numbers = count(1)

    def make(self) -> str:
        self._prefix = self._prefix or self._host.random_bytes(_PREFIX_BYTES).hex()
        return f"{self._prefix}-{next(self._numbers)}"


OF_THIS_PROCESS = RequestIds(SystemHost())


class CurrentRequest:
    """A request that is being served. ``given_id``: the id that it brought (None: none that can be
    used); ``ids`` makes one otherwise. ``is_over``: it was answered, and what it has left running
    does not belong to it.

    ``traceparent``: its span, if it is sampled (empty: it is not), which began at ``began_us`` and
    is part of ``parent``. ``acknowledged_us``: when what it has appended was acknowledged.
    """

    __slots__ = (
        "_id",
        "_ids",
        "acknowledged_us",
        "began_us",
        "given_id",
        "is_over",
        "parent",
        "traceparent",
    )

    def __init__(self, given_id: str | None = None, ids: RequestIds = OF_THIS_PROCESS) -> None:
        self.given_id = given_id
        self._ids = ids
        self.is_over = False
        self._id = given_id
        self.traceparent = self.parent = ""
        self.began_us = self.acknowledged_us = 0

    @property
    def request_id(self) -> str:
        if self._id is None:
            self._id = self._ids.make()
        return self._id

    @property
    def contexts(self) -> Contexts:
        """The contexts of its appends: none, unless it brought an id or is sampled."""
        if self.given_id is None and not self.traceparent:
            return NO_CONTEXTS
        return (RequestContext(self.request_id, self.traceparent),)

    @property
    def given_header(self) -> list[tuple[bytes, bytes]]:
        """The header of its answer, if it brought an id."""
        return [] if self.given_id is None else [(REQUEST_ID, self.given_id.encode())]

    @property
    def made_header(self) -> list[tuple[bytes, bytes]]:
        """The header of an answer that names an id made here; the server repeats those of
        clients itself."""
        return [] if self.given_id is not None else [(REQUEST_ID, self.request_id.encode())]


current_request: ContextVar[CurrentRequest | None] = ContextVar("current_request", default=None)
"""The request that the running task serves, or has been started by."""


def usable_id(given: bytes | None) -> str | None:
    """Return the value of the header, if it may be used."""
    return given.decode() if given is not None and is_request_id(given) else None


def request_of(headers: Iterable[tuple[bytes, bytes]], ids: RequestIds) -> CurrentRequest:
    """Return the request that has these headers, whose names are in lower case."""
    for name, value in headers:
        if name == REQUEST_ID:
            return CurrentRequest(usable_id(value), ids)
    return CurrentRequest(None, ids)


def framed_request(framing: Mapping[bytes, bytes]) -> CurrentRequest | None:
    """Return a request that brought an id; None: it did not, as most."""
    given = framing.get(REQUEST_ID)
    if given is None or (request_id := usable_id(given)) is None:
        return None
    return CurrentRequest(request_id)


def live_request() -> CurrentRequest | None:
    """Return the request that is being served; None: none, or the one that has started this task
    was answered."""
    request = current_request.get()
    return None if request is None or request.is_over else request


def note_acknowledged(acknowledged_us: int) -> None:
    """Note when the append of the request being served was acknowledged, which is answered now."""
    if (request := live_request()) is not None:
        request.acknowledged_us = acknowledged_us


def current_contexts() -> Contexts:
    """Return the contexts of the appends of the request being served."""
    request = live_request()
    return NO_CONTEXTS if request is None else request.contexts


@contextmanager
def serving(request: CurrentRequest) -> Iterator[None]:
    """Serve a request within the context."""
    token = current_request.set(request)
    try:
        yield
    finally:
        request.is_over = True
        current_request.reset(token)
