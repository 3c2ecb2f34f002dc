"""The work of the seeds of the theme ADMINISTRATION besides appends and reads: they delete the
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
"""The number of seeds of which one has this theme."""

RECONCILE_MS = 1_050
"""The interval between two checks of cursors. It is longer than any lag of the store's servers
(``metadata/server.py``): what two checks miss is gone."""

STEPS = (
    "recreate",
    "create",
    "grow",
    "settings",
    "settings, age",
    "settings, quota",
    "settings, full",
    "settings, producers",
    "settings, view",
    "subscribe",
    "subscribe, die",
    "unsubscribe",
    "unsubscribe, unheard",
    "trim",
    "terminate",
    "fence",
    "fence, newest",
    "compact",
    "sweep",
    "sweep, held",
    "unload",
)
"""The steps of an operator. ``recreate``: delete the topic, then create one of its name;
``settings, …``: of these alone (``admin/operator.py``); ``subscribe, die``: the broker dies when it
has registered the subscription, before there is a cursor; ``unsubscribe, unheard``: the delete does
not reach the metadata store, without notice; ``fence, newest``: at the broker that has taken the
log over last; ``sweep, held``: the sweep's listing of the ids of topics takes long."""

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
"""The events that moments can be tied to, besides those of every history of topics. ``deleting``,
``registering``: a broker has begun; ``sweeping``: it has the sweep's lock; ``looking``: its
reconciler begins to compare cursors; the others: the change is in the tree, or was answered."""


@dataclass(frozen=True, slots=True)
class AdminStep:
    """``size`` in [0, 1) decides what the kind leaves open."""

    moment: Moment
    kind: str
    partition: int
    size: float


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """``conditions``: ``none``; ``sequence``: by sequence numbers, until all is there; ``key``:
    sent again under an idempotency key; ``routed``: likewise, now and later, to the partition that
    the key finds; ``claim``: it holds the partition while it writes. ``releases``: how often it
    gives the partition up after it has written; ``removes``: … it removes a key instead of giving
    it a message; ``strays``: … it goes to an owner that was replaced, and otherwise to the newest
    one; ``insists``: … it sends again, by a claim that may be over, what was not written, and what
    was."""

    machine: str
    partition: int
    starts_ms: int
    pauses_ms: tuple[int, ...]
    sizes: tuple[int, ...]
    conditions: str
    releases: float
    removes: float = 0.0
    strays: float = 0.0
    insists: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A subscription, under its name in whichever incarnation of the topic, and its consumer.
    ``leaves``: how often that acknowledges nothing of what it got."""

    name: str
    start: Start
    starts_ms: int
    pulls: int
    thinks_ms: int
    leaves: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPlan(TopicPlan):
    """``producers``, ``readers``, ``subscriptions`` and ``consumers`` are empty."""

    steps: tuple[AdminStep, ...]
    writers: tuple[WriterPlan, ...]
    groups: tuple[GroupPlan, ...]
    followers: tuple[ReaderPlan, ...]
    compacts: bool
    """The topic has a compacted view, which is read; nothing is trimmed by hand."""
    posts: bool
    """Claims, fencing tokens, trims and ends go through the routes of any broker."""
    sweep_s: float
    """The interval between two sweeps of a broker."""
    waiting: int | None = None
    """The changes that may wait for a state log; None: as many as elsewhere."""
    claimants: int | None = None
    """The producers whose claims a partition remembers; None: as many as elsewhere."""
