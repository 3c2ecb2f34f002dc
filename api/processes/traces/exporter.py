"""Spans for OpenTelemetry's exporter. This module alone knows its SDK, which the extra ``otel``
brings.

Spans are complete when they come. The SDK's processor takes them as it takes its own: in a bounded
queue, which a thread empties. What it has no space for is dropped.
"""

from __future__ import annotations

import logging

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from fencelog.api.processes.traces.limits import (
    EXPORT_EVERY_MS,
    EXPORT_TIMEOUT_S,
    MAX_WAITING_SPANS,
)
from fencelog.ledgers.host import Host
from fencelog.ledgers.spans import Span

_SCOPE = InstrumentationScope("fencelog")
_TRACE_BYTES = 16
_SPAN_BYTES = 8
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)

_log = logging.getLogger(__name__)


class OtelSpans:
    """The spans of one process. Implements ``Spans``."""

    def __init__(self, processor: SpanProcessor, service: str, host: Host) -> None:
        self._processor = processor
        self._resource = Resource.create({"service.name": service})
        self._host = host

    def child(self, parent: str) -> str:
        """Return a new span's name; with an empty ``parent`` it is the first one of its trace."""
        trace = parent.split("-")[1] if parent else self._random(_TRACE_BYTES)
        return f"00-{trace}-{self._random(_SPAN_BYTES)}-01"

    def record(self, span: Span) -> None:
        status = Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET)
        readable = ReadableSpan(
            name=span.name,
            context=_context(span.traceparent, is_remote=False),
            parent=_context(span.parent, is_remote=True) if span.parent else None,
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=SpanKind.INTERNAL,
            status=status,
            start_time=span.start_us * 1000,
            end_time=max(span.start_us, span.end_us) * 1000,
            instrumentation_scope=_SCOPE,
        )
        try:
            self._processor.on_end(readable)
        except Exception:  # The append that it tells of must be answered all the same.
            _log.exception("a span is lost")

    def close(self) -> None:
        """Export what waits. It blocks: the event loop must not run any more."""
        self._processor.shutdown()

    def _random(self, size: int) -> str:
        while not any(found := self._host.random_bytes(size)):
            pass  # All zeros name nothing.
        return found.hex()


def _context(traceparent: str, *, is_remote: bool) -> SpanContext:
    _, trace, span, _ = traceparent.split("-")
    return SpanContext(int(trace, 16), int(span, 16), is_remote, _SAMPLED)


def otlp_spans(endpoint: str, service: str, host: Host) -> OtelSpans:
    """Return spans that go by OTLP over HTTP to ``endpoint``, the URL of a collector."""
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
    processor = BatchSpanProcessor(
        exporter,
        max_queue_size=MAX_WAITING_SPANS,
        schedule_delay_millis=EXPORT_EVERY_MS,
        export_timeout_millis=EXPORT_TIMEOUT_S * 1000,
    )
    return OtelSpans(processor, service, host)
