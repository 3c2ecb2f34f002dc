"""Messages that count as acknowledged without a consumer: those too old, or too many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from fencelog.broker.policy import BACKLOG_EVICT
from fencelog.ledgers.format.entry_header import KIND_MESSAGES
from tests.sim.oracle.log_history import LogHistory

MESSAGE_BYTES = 1_000
"""Above what a message and its share of an entry take."""

UNTOLD = 30
"""Messages that an owner may have acknowledged, and nobody has been told of yet."""


def lawful_ends(
    log: LogHistory, overrides: Mapping[str, int | str], latest_us: Callable[[], int]
) -> list[Callable[[int], bool]]:
    """Return the lawful ends by the topic's settings. ``latest_us``: no owner's clock has ever been
    later."""
    reasons: list[Callable[[int], bool]] = []
    ttl_ms, quota = overrides.get("ttl_ms"), overrides.get("backlog_quota_bytes")
    if ttl_ms is not None:
        reasons.append(partial(_is_over, log, latest_us, int(ttl_ms) * 1000))
    if quota is not None and overrides.get("backlog_action") == BACKLOG_EVICT:
        reasons.append(partial(_is_too_much, log, int(quota)))
    return reasons


def _is_over(log: LogHistory, latest_us: Callable[[], int], ttl_us: int, offset: int) -> bool:
    """Tell whether a message is older than its time to live, as far as its time is known."""
    return log.times.get(offset, 0) < latest_us() - ttl_us


def _is_too_much(log: LogHistory, quota: int, offset: int) -> bool:
    """Tell whether the messages from ``offset`` on may exceed the quota, which they never do if
    all that were ever written are within it."""
    if (log.known_end + UNTOLD - offset) * MESSAGE_BYTES <= quota:
        return False
    return _written_bytes(log) > quota


def _written_bytes(log: LogHistory) -> int:
    """Return the bytes of all messages ever written, acknowledged or not, trimmed or not."""
    ledgers = (log.history.ledgers.get(ledger_id) for ledger_id in log.listed)
    return sum(
        len(payload)
        for ledger in ledgers
        if ledger is not None
        for payload in ledger.payloads
        if payload[1] == KIND_MESSAGES
    )
