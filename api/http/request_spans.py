"""The span of a request over HTTP, which the spans of its append are part of.

A request is sampled if its client's ``traceparent`` says so, or by chance where it has none. One
that is not sampled costs a look at its headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fencelog.api.http.asgi import Exchange
from fencelog.api.http.request_ids import CURRENT, CurrentRequest
from fencelog.ledgers.format.request_context import TRACEPARENT
from fencelog.ledgers.host import Host
from fencelog.ledgers.spans import Span, Spans, record_stage

TRACEPARENT_HEADER = b"traceparent"

_SAMPLED = 1
_FAULTS = 500


@dataclass(frozen=True, slots=True)
class RequestSpans:
    """The sampling and the spans of a service's requests. ``ratio``: the share of requests without
    a ``traceparent`` that are sampled."""

    spans: Spans
    host: Host
    ratio: float = 0.0

    def sample(self, given: bytes | None) -> str | None:
        """Return the span that a request is part of: empty, if its own is the first one; None: it
        is not sampled."""
        if given is not None:
            parent = given.decode("latin-1")
            if TRACEPARENT.fullmatch(parent) is not None:
                return parent if int(parent[-2:], 16) & _SAMPLED else None
        return "" if self.ratio and self.host.fraction() < self.ratio else None

    def sampled(
        self, request: CurrentRequest | None, headers: Mapping[bytes, bytes]
    ) -> CurrentRequest | None:
        """Begin the span of a request with these headers, if it is sampled, and return the
        request."""
        parent = self.sample(headers.get(TRACEPARENT_HEADER))
        if parent is not None:
            request = request or CurrentRequest()
            request.parent, request.traceparent = parent, self.spans.child(parent)
            request.began_us = self.host.now_us()
        return request

    @contextmanager
    def span_of(self, request: CurrentRequest, exchange: Exchange) -> Iterator[None]:
        """Record the span of a request that is served within the context, if it is sampled. One
        from another broker has yet to be: its connection has not done it."""
        if CURRENT not in exchange.scope:
            given = exchange.header(TRACEPARENT_HEADER)
            self.sampled(request, {} if given is None else {TRACEPARENT_HEADER: given})
        try:
            yield
        finally:
            if request.traceparent:
                self.end(request, exchange.method, exchange.path, exchange.status)

    def end(self, request: CurrentRequest, method: str, path: str, status: int) -> None:
        """Record the span of a request that was answered with this status (0: it was not), and that
        of its reply, if it has appended."""
        now_us = self.host.now_us()
        attributes: dict[str, str | int] = {
            "http.request.method": method,
            "url.path": path,
            "http.response.status_code": status,
            "fencelog.request_id": request.request_id,
        }
        if request.acknowledged_us:
            times_us = request.acknowledged_us, now_us
            record_stage(self.spans, "reply", request.traceparent, times_us, attributes)
        error = f"status {status}" if not status or status >= _FAULTS else ""
        own, parent = request.traceparent, request.parent
        self.spans.record(Span(method, own, parent, request.began_us, now_us, attributes, error))
