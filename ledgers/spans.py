"""Spans: what became of one sampled append, stage by stage, as OpenTelemetry has them.

They are made after the fact, from times that are kept for sampled appends alone. A span is named as
W3C Trace Context does, by its ``traceparent``. Who counts (``metrics``) also knows where spans go;
None: nowhere, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Span(NamedTuple):
    """One stage. ``parent``: the span that it is part of. ``error``: why it has failed (empty: it
    has not)."""

    name: str
    traceparent: str
    parent: str
    start_us: int
    end_us: int
    attributes: Mapping[str, str | int]
    error: str = ""


class Spans(Protocol):
    """The port to whoever exports spans. Neither call waits or raises."""

    def child(self, parent: str) -> str:
        """Return the name of a new span that is part of ``parent``."""

    def record(self, span: Span) -> None:
        """Take a span that is complete."""


def record_stage(
    spans: Spans,
    name: str,
    parent: str,
    times_us: tuple[int, int],
    attributes: Mapping[str, str | int],
    error: str = "",
) -> None:
    """Record a span without parts."""
    start_us, end_us = times_us
    span = Span(name, spans.child(parent), parent, start_us, end_us, attributes, error)
    spans.record(span)
