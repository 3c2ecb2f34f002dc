"""Configuration of a broker: one frozen value, every field with its unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencelog.broker.balance_core import BalancePolicy
from fencelog.broker.policy import Policy


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """``broker_id`` names the broker among all; ``url`` is where others forward requests to."""

    broker_id: str
    url: str
    policy: Policy = field(default_factory=Policy)
    """The settings of every topic, where neither it nor its namespace has its own."""
    open_timeout_s: float = 30.0
    """Opening a partition; after it the request fails and the next one tries again."""
    repair_patience_s: float = 10.0
    """How long appends wait for a failed ledger to be replaced before their callers are told."""
    close_timeout_s: float = 10.0
    """How long closing waits for appends under way."""
    drain_timeout_s: float = 45.0
    """How long a broker hands partitions over before it closes the rest, free for whoever is asked
    next: some thousands of partitions."""
    balance: BalancePolicy = field(default_factory=BalancePolicy)
    retention_check_s: float = 5.0
    """Within this time every open partition is looked at once: retention, time to live, quotas."""
    sweep_interval_s: float = 3600.0
    """From one search for ledgers that belong to nothing any more to the next, of all brokers."""
    sweep_grace_s: float = 3600.0
    """A ledger that is younger is never taken for one of a topic that is gone."""
