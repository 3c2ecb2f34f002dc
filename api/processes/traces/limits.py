"""The limits of the export of spans, with their reasons."""

from __future__ import annotations

MAX_WAITING_SPANS = 4_096
"""The spans that wait for the collector: about a megabyte. More are dropped: a service does not
wait for its traces."""

EXPORT_EVERY_MS = 1_000
"""The interval of exports: a trace is to be seen soon after what it shows."""

EXPORT_TIMEOUT_S = 5
"""The time for a collector to take spans; and so about that which a process that ends waits for
it."""
