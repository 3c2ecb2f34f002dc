"""Configuration of a broker: one frozen value, every field with its unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencelog.broker.policy import Policy
from fencelog.ledgers.limits import MIB

SWEEP_GRACE_S = 3600.0


@dataclass(frozen=True, slots=True)
class BalancePolicy:
    """The settings of balancing. Scores are those of ``load.score_of``."""

    interval_s: float = 5.0
    """The time between two rounds: loads are sampled, published where they have changed, and
    compared."""
    margin: float = 0.25
    """The share by which a load that is clearly above another exceeds it …"""
    min_margin: float = 1.0 * MIB
    """… and the score by which it does: among idle brokers no transfer is worthwhile."""
    rounds: int = 6
    """The rounds in a row above the margin before anything is transferred: twice the time over
    which rates are averaged."""
    moves_a_round: int = 16
    """The largest number of transfers: each costs its clients some tens of ms, and its target a
    takeover."""
    rest_s: float = 120.0
    """The time for which a partition stays after it was opened."""

    def above(self, score: float) -> float:
        """Return the lowest score that is clearly above this one."""
        return max(score * (1 + self.margin), score + self.min_margin)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The configuration of a broker. ``broker_id`` names the broker among all; ``url`` is the
    address to which others forward requests."""

    broker_id: str
    url: str
    policy: Policy = field(default_factory=Policy)
    """The settings of every topic, where neither it nor its namespace has its own."""
    open_timeout_s: float = 30.0
    """The time for opening a partition; after it the request fails and the next one tries again."""
    append_timeout_s: float = 10.0
    """The time for which appends wait for the replacement of a failed ledger before their callers
    get an error."""
    close_timeout_s: float = 10.0
    """The time for which closing waits for appends in flight."""
    drain_timeout_s: float = 45.0
    """The time for which a broker transfers partitions before it closes the rest, free for the
    broker that is asked next: some thousands of partitions."""
    balance: BalancePolicy = field(default_factory=BalancePolicy)
    retention_check_s: float = 5.0
    """The time within which every open partition is examined once: retention, time to live,
    quotas."""
    sweep_interval_s: float = 3600.0
    """The time from one search for unused ledgers to the next, over all brokers."""
    sweep_grace_s: float = SWEEP_GRACE_S
    """The age below which a ledger is never taken for one of a topic that is gone."""
    record_events: bool = False
    """The switch of the timeline of events, see ``cluster.event_recorder``."""
