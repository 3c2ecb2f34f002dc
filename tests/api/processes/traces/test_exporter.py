"""Spans as OpenTelemetry's SDK exports them."""

from __future__ import annotations

import re

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.status import StatusCode

from fencelog.api.processes.traces.exporter import OtelSpans, otlp_spans
from fencelog.ledgers.format.request_context import TRACEPARENT
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.spans import Span, record_stage
from tests.api.processes.traces.collector import collector


def test_a_span_is_exported_as_it_was_recorded() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(SimpleSpanProcessor(exporter), "fencelog-bookie", SystemHost())
    root = spans.child("")
    record_stage(spans, "journal sync", root, (1_000, 3_000), {"fencelog.ledger_id": 7}, "full")
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == root.split("-")[1]
    assert f"{span.parent.span_id:016x}" == root.split("-")[2]
    assert (span.name, span.start_time, span.end_time) == ("journal sync", 1_000_000, 3_000_000)
    assert span.attributes == {"fencelog.ledger_id": 7}
    assert span.resource.attributes["service.name"] == "fencelog-bookie"
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "full"


def test_a_clock_that_is_set_back_makes_an_empty_span() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(SimpleSpanProcessor(exporter), "s", SystemHost())
    spans.record(Span("x", spans.child(""), "", 3_000, 1_000, {}))
    (span,) = exporter.get_finished_spans()
    assert span.start_time == span.end_time == 3_000_000
    assert span.parent is None


def test_a_processor_that_fails_loses_the_span_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("no space")

    spans = OtelSpans(Failing(), "s", SystemHost())
    spans.record(Span("x", spans.child(""), "", 1_000, 2_000, {}))
    assert "a span is lost" in caplog.text
    assert "no space" in caplog.text


class Zeros(SystemHost):
    """A host whose first random bytes are zeros."""

    def __init__(self) -> None:
        self.first = True

    def random_bytes(self, size: int) -> bytes:
        first, self.first = self.first, False
        return bytes(size) if first else super().random_bytes(size)


def test_names_of_spans_are_valid_and_differ() -> None:
    spans = OtelSpans(SimpleSpanProcessor(InMemorySpanExporter()), "s", Zeros())
    root = spans.child("")
    children = {spans.child(root) for _ in range(50)}
    assert len(children) == 50
    for name in (root, *children):
        assert re.fullmatch(TRACEPARENT, name)
        assert name.split("-")[1] == root.split("-")[1]


def test_what_waits_is_exported_at_the_end() -> None:
    with collector() as server:
        spans = otlp_spans(f"{server.url}/", "fencelog-test", SystemHost())
        spans.record(Span("x", spans.child(""), "", 1_000, 2_000, {"fencelog.bookie_id": "b"}))
        spans.close()
        (span,) = server.spans
    assert (span.service, span.name, span.start_ns) == ("fencelog-test", "x", 1_000_000)
    assert span.attributes == {"fencelog.bookie_id": "b"}
