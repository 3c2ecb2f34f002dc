"""Limits of brokers that short histories would never reach, made small while one is played."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from fencelog.broker import producer_table, state_core, state_log, subscription_burial

Limits = tuple[tuple[ModuleType, str, float], ...]

LIMITS: Limits = (
    (state_core, "STATE_ENTRY_BYTES", 300),  # snapshots of many entries
    (state_log, "STATE_LEDGER_BYTES", 1_500),  # state logs that roll
    (producer_table, "MAX_REPLAY_ENTRIES", 12),  # producers in snapshots, and some behind them
    (producer_table, "ROWS_PER_EVENT", 1),
    (subscription_burial, "RETRY_S", 0.2),
)


@contextmanager
def small_limits(limits: Limits = LIMITS) -> Iterator[None]:
    before = [getattr(module, name) for module, name, _ in limits]
    for module, name, value in limits:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(limits, before, strict=True):
            setattr(module, name, value)
