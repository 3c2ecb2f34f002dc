"""Configuration of a broker: one frozen value, every field with its unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencelog.broker.policy import Policy
from fencelog.ledgers.limits import MIB


@dataclass(frozen=True, slots=True)
class BalancePolicy:
    """Scores are of ``load.score_of``."""

    interval_s: float = 5.0
    """Between two rounds: loads are sampled, published where they have changed, and compared."""
    margin: float = 0.25
    """A load is clearly above another when it is so much, as a share, above it …"""
    min_margin: float = 1.0 * MIB
    """… and so much, as a score: among idle brokers nothing is worth a move."""
    rounds: int = 6
    """In a row above the margin before anything moves: twice the time that rates are means of."""
    moves_a_round: int = 16
    """At most: each costs its clients some tens of ms, and its target a takeover."""
    rest_s: float = 120.0
    """A partition that was opened less than this ago stays."""

    def above(self, score: float) -> float:
        """The lowest score that is clearly above this one."""
        return max(score * (1 + self.margin), score + self.min_margin)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """``broker_id`` names the broker among all; ``url`` is where others forward requests to."""

    broker_id: str
    url: str
    policy: Policy = field(default_factory=Policy)
    """The settings of every topic, where neither it nor its namespace has its own."""
    open_timeout_s: float = 30.0
    """Opening a partition; after it the request fails and the next one tries again."""
    append_timeout_s: float = 10.0
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
