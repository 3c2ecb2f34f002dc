"""What the seeds of the theme ADMINISTRATION do besides appending and reading: they delete the
topic and create it anew, give it more partitions and other settings, create and delete its
subscriptions, trim, fence, claim, compact and end it, while brokers contend and sweep.

Each fourth seed of the topics' kind is such a history (``plan/admin_draw.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.broker.registry.subscription_config import Start
from tests.sim.plan.plan import Moment
from tests.sim.plan.topic_plan import ReaderPlan, TopicPlan

EVERY = 4
"""Of so many seeds one is of this theme."""

RECONCILE_MS = 1_050
"""From one look at cursors to the next. More than any server of the store lags behind
(``metadata/server.py``): what is missing at two looks is gone."""

STEPS = (
    "recreate",
    "create",
    "grow",
    "settings",
    "subscribe",
    "subscribe, die",
    "unsubscribe",
    "unsubscribe, unheard",
    "trim",
    "terminate",
    "fence",
    "compact",
    "sweep",
    "sweep, held",
    "unload",
)
"""What an operator does. ``recreate``: delete the topic, then create one of its name; ``subscribe,
die``: the broker dies when it has registered the subscription, before there is a cursor;
``unsubscribe, unheard``: the delete does not get to the metadata store, and nobody knows that;
``sweep, held``: the sweep's look at what hangs below the ids of topics takes long."""

ADMIN_EVENTS = (
    "deleting",
    "gone",
    "made",
    "grown",
    "registering",
    "registered",
    "claimed",
    "sweeping",
    "looking",
)
"""What moments can be tied to, besides those of every history of topics. ``deleting``,
``registering``: a broker has begun; ``sweeping``: it has the sweep's lock; ``looking``: its
reconciler begins to compare cursors; the others: it stands in the tree, or was answered."""


@dataclass(frozen=True, slots=True)
class AdminStep:
    """``size`` in [0, 1) decides what the kind leaves open."""

    moment: Moment
    kind: str
    partition: int
    size: float


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """``conditions``: ``none``; ``key``: sent again under an idempotency key; ``routed``: likewise,
    now and later, to the partition that the key finds; ``claim``: it holds the partition while it
    writes. ``releases``: how often it gives the partition up after it has
    written; ``removes``: … it removes a key instead of giving it a message."""

    machine: str
    partition: int
    starts_ms: int
    pauses_ms: tuple[int, ...]
    sizes: tuple[int, ...]
    conditions: str
    releases: float
    removes: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A subscription, under its name in whichever incarnation of the topic, and its consumer."""

    name: str
    start: Start
    starts_ms: int
    pulls: int
    thinks_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPlan(TopicPlan):
    """``producers``, ``readers``, ``subscriptions`` and ``consumers`` are empty."""

    steps: tuple[AdminStep, ...]
    writers: tuple[WriterPlan, ...]
    groups: tuple[GroupPlan, ...]
    followers: tuple[ReaderPlan, ...]
    compacts: bool
    """The topic has a compacted view, which is read; nothing is trimmed by hand."""
