"""Entries of requests that can be followed: what their bookies, the log and the spans are told."""

from __future__ import annotations

import logging

from fencelog.broker.append.pending import PendingEntry
from fencelog.ledgers.format.request_context import Contexts
from fencelog.ledgers.spans import Span, Spans, record_stage

log = logging.getLogger(__name__)


def handed_over(contexts: Contexts, spans: Spans | None) -> Contexts:
    """Return the contexts that go to bookies: the spans of sampled appends there are part of the
    span of the ledger, which is named before it is complete."""
    if spans is None:
        return contexts
    return tuple(
        each._replace(traceparent=spans.child(each.traceparent)) if each.traceparent else each
        for each in contexts
    )


def report(
    entry: PendingEntry, partition: int, ledger_id: int, now_us: int, spans: Spans | None
) -> None:
    """Report an entry that is acknowledged now, for each of its requests."""
    if spans is None and not log.isEnabledFor(logging.DEBUG):
        return
    sent = entry.sent_contexts or entry.contexts
    for context, in_ledger in zip(entry.contexts, sent, strict=True):
        fields = {"partition": partition, "ledger_id": ledger_id, "entry_id": entry.entry_id}
        named = {"request_id": context.request_id, **fields}
        log.debug("%d messages are acknowledged", entry.count, extra=named)
        if spans is None or not context.traceparent:
            continue
        attributes = {f"fencelog.{name}": value for name, value in fields.items()}
        attributes["fencelog.messages"] = entry.count
        handed_us = entry.publish_time_us
        parent = context.traceparent
        record_stage(spans, "append queue", parent, (entry.queued_us, handed_us), attributes)
        spans.record(
            Span("ledger add", in_ledger.traceparent, parent, handed_us, now_us, attributes)
        )
