"""Configuration of a broker: one frozen value, every field with its unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencelog.broker.balance_core import BalancePolicy
from fencelog.ledgers.client import Replication
from fencelog.ledgers.limits import MIB


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """When a partition goes on in a new ledger. Ledgers are deleted as a whole, so smaller ones
    free space sooner; each costs a few metadata writes."""

    max_entries: int = 50_000
    max_bytes: int = 512 * MIB
    max_age_s: float = 4 * 3600.0

    def is_due(self, *, entries: int, size: int, age_s: float) -> bool:
        """``size`` in payload bytes. An empty ledger is never rolled."""
        return entries > 0 and (
            entries >= self.max_entries or size >= self.max_bytes or age_s >= self.max_age_s
        )


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """``broker_id`` names the broker among all; ``url`` is where others forward requests to."""

    broker_id: str
    url: str
    roll: RollPolicy = field(default_factory=RollPolicy)
    open_timeout_s: float = 30.0
    """Opening a partition; after it the request fails and the next one tries again."""
    repair_patience_s: float = 10.0
    """How long appends wait for a failed ledger to be replaced before their callers are told."""
    close_timeout_s: float = 10.0
    """How long closing waits for appends under way."""
    drain_timeout_s: float = 30.0
    """How long a broker hands partitions over before it lets go of the rest as they are."""
    balance: BalancePolicy = field(default_factory=BalancePolicy)
    replication: Replication = field(default_factory=Replication)
    """Of topics that are created without one of their own."""
