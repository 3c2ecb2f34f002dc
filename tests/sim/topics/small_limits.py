"""Limits of brokers that short histories would never reach, made small while one is played."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fencelog.api.subscriptions import replay
from fencelog.broker.append import admission, producer_access, producer_table
from fencelog.broker.background.sweep_core import is_garbage
from fencelog.broker.dispatch import base
from fencelog.broker.ledger_list import ledger_list, state_core, state_log, store
from fencelog.broker.read import log_reader
from fencelog.broker.read.read_ahead import BrokerReads
from fencelog.broker.read.tail_cache import TailCache
from fencelog.broker.registry.subscription_config import SubscriptionConfig
from fencelog.broker.subscriptions import dead_letters

Limits = tuple[tuple[Any, str, Any], ...]
"""The module or function, the name in it, and its temporary value."""

HOLD_S = 0.4
"""The time for which a quota holds appends."""

LIMITS: Limits = (
    (state_core, "STATE_ENTRY_BYTES", 300),  # snapshots of many entries
    (state_log, "STATE_LEDGER_BYTES", 1_500),  # state logs that roll
    (producer_table, "MAX_REPLAY_ENTRIES", 12),  # producers in snapshots, and some behind them
    (producer_table, "ROWS_PER_EVENT", 1),
    (dead_letters, "RETRY_S", 0.2),
    (admission, "HOLD_S", HOLD_S),
    (is_garbage, "__kwdefaults__", {"pending_s": 0.7}),
    (ledger_list, "MAX_COMMITTERS", 2),
)

FORGETFUL: Limits = (
    (log_reader, "TailCache", partial(TailCache, limit=1_000)),
    (BrokerReads.__init__, "__defaults__", (1_000,)),
    (base, "MAX_ACK_RANGES", 3),
    (store, "MAX_COMMIT_BYTES", 0),
)
"""Brokers keep a message or two in memory: all others come from bookies, ledger by ledger; and few
ranges of acknowledged messages, beyond which nothing new is delivered. No close of a ledger fits
one commit with the list: it is made before."""

REPLAYED_SOON: Limits = ((replay, "_CONFIG", SubscriptionConfig(lease_ms=300)),)
"""What a replay has leased, and left, is there for the next one."""


def few_claimants(most: int | None) -> Limits:
    """Return the limit by which a partition remembers the claims of so many producers; None: the
    one of the service."""
    return () if most is None else ((producer_access, "MAX_CLAIMED_PRODUCERS", most),)


def few_waiting(most: int | None) -> Limits:
    """Return the limit by which a state log refuses changes while so many wait for it; None: the
    one of the service."""
    return () if most is None else ((state_log, "MAX_STATE_EVENTS_WAITING", most),)


@contextmanager
def small_limits(limits: Limits = LIMITS) -> Iterator[None]:
    before = [getattr(owner, name) for owner, name, _ in limits]
    for owner, name, value in limits:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(limits, before, strict=True):
            setattr(owner, name, value)
