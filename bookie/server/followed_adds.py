"""Adds of requests that can be followed: log lines that name them when they are answered, and spans
of those that are sampled."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import Run
from fencelog.ledgers.rpc.bookie_port import AddsCallback, AddToken
from fencelog.ledgers.spans import Span, Spans, record_stage

_log = logging.getLogger(__name__)


def followed(
    bookie: Bookie, runs: Sequence[Run], tokens: Sequence[AddToken], on_replies: AddsCallback
) -> tuple[Sequence[AddToken], AddsCallback]:
    """Return tokens and callback for adds whose answers are also reported, for each of their
    requests; the given ones if none of them can be followed, as mostly."""
    for run in runs:
        if run.contexts:
            break
    else:
        return tokens, on_replies
    received_us = bookie.host.now_us()

    def answer(answered: Sequence[AddToken], error: FencelogError | None) -> None:
        on_replies([token for token, _ in answered], error)
        for _, run in answered:
            _log_answer(bookie.bookie_id, run, error)
            if bookie.metrics.spans is not None:
                _record(bookie.metrics.spans, bookie, run, received_us, error)

    return list(zip(tokens, runs, strict=True)), answer


def _log_answer(bookie_id: str, run: Run, error: FencelogError | None) -> None:
    if error is None and not _log.isEnabledFor(logging.DEBUG):
        return
    ledger_id, first, count, _ = run.header
    for context in run.contexts:
        fields = {
            "request_id": context.request_id,
            "ledger_id": ledger_id,
            "entry_id": first,
            "bookie_id": bookie_id,
        }
        last = first + count - 1
        if error is None:
            _log.debug("entries %d..%d are durable", first, last, extra=fields)
        else:
            _log.warning("entries %d..%d are refused: %s", first, last, error, extra=fields)


def _record(
    spans: Spans, bookie: Bookie, run: Run, received_us: int, error: FencelogError | None
) -> None:
    """Record the spans of an add that is answered now: by the journal, which has told when it
    handed the run's group to the disk, unless it had nothing to write."""
    ledger_id, first, count, size = run.header
    now_us = bookie.host.now_us()
    attributes: dict[str, str | int] = {
        "fencelog.bookie_id": bookie.bookie_id,
        "fencelog.ledger_id": ledger_id,
        "fencelog.entry_id": first,
        "fencelog.entries": count,
        "fencelog.bytes": size,
    }
    detail = "" if error is None else str(error)
    for context in run.contexts:
        if not (parent := context.traceparent):
            continue
        own = spans.child(parent)
        spans.record(Span("bookie add", own, parent, received_us, now_us, attributes, detail))
        handed_us = bookie.metrics.handed_over_us
        if error is None and received_us <= handed_us <= now_us:
            record_stage(spans, "journal queue", own, (received_us, handed_us), attributes)
            record_stage(spans, "journal sync", own, (handed_us, now_us), attributes)
