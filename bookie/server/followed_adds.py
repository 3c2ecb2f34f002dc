"""Adds of requests that can be followed: log lines that name them when they are answered."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import Run
from fencelog.ledgers.rpc.bookie_port import AddsCallback, AddToken

_log = logging.getLogger(__name__)


def followed(
    bookie_id: str, runs: Sequence[Run], tokens: Sequence[AddToken], on_replies: AddsCallback
) -> tuple[Sequence[AddToken], AddsCallback]:
    """Return tokens and callback for adds whose answers are also logged, for each of their
    requests; the given ones if none of them can be followed, as mostly."""
    for run in runs:
        if run.contexts:
            break
    else:
        return tokens, on_replies

    def answer(answered: Sequence[AddToken], error: FencelogError | None) -> None:
        for _, run in answered:
            _report(bookie_id, run, error)
        on_replies([token for token, _ in answered], error)

    return list(zip(tokens, runs, strict=True)), answer


def _report(bookie_id: str, run: Run, error: FencelogError | None) -> None:
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
