"""The stories of histories of administration: which steps, faults and moments meet in one."""

from __future__ import annotations

from dataclasses import dataclass

FAULTS = (
    "kill broker",
    "kill broker",
    "pause broker",
    "session expires",
    "drain broker",
    "unload",
    "believe",
    "believe",
    "metadata cut",
    "slow metadata",
    "metadata reply lost",
    "metadata refuses",
    "metadata lags",
    "metadata lags",
    "metadata lags",
    "change's reply lost",
    "answers lost",
    "cut off",
    "isolate",
    "kill bookie",
    "clog",
)
"""No clock jumps: the sweep's grace is honest."""


@dataclass(frozen=True, slots=True)
class Story:
    """The steps that meet each other. ``first``: steps that each such history has."""

    first: tuple[str, ...]
    steps: tuple[str, ...]
    events: tuple[str, ...]
    conditions: tuple[str, ...] = ("none", "key")
    groups: tuple[int, ...] = (0, 1, 2)
    retention: float = 0.3
    compacts: bool = False
    usurpers: tuple[int, ...] = (0, 0, 1)
    faults: tuple[str, ...] = FAULTS
    rolls: tuple[int, ...] = (2, 5, 20)
    pauses_ms: tuple[int, ...] = (10, 60, 200)
    writers: tuple[int, ...] = (1, 2, 3)
    pulls: tuple[int, ...] = (0, 0, 2, 10)
    step_counts: tuple[int, ...] = (2, 4, 6)
    lengths_ms: tuple[int, ...] = (1_500, 2_500, 3_500)
    fault_counts: tuple[int, ...] = (0, 1, 2, 3, 4)
    is_slow: bool = False
    """The way from one of the brokers to metadata takes long, all the time."""
    early: float = 0.3
    """The share of steps and faults that are tied to no event."""
    nths: tuple[int, ...] = (1, 1, 2, 2, 3)
    delays_ms: tuple[int, ...] = (0, 0, 0, 1, 2, 5, 20, 300)
    partitions: tuple[int, ...] = (1, 1, 2)
    compaction_ms: tuple[int, ...] = (100, 400)
    """The intervals of compaction, where the topic has a compacted view."""
    sweep_s: float = 1.0
    """The interval between two sweeps of a broker. Each catches its session up."""
    has_late_servers: bool = False
    """Each broker reads from a server of metadata that is late, all the time."""
    has_slow_bookie: bool = False
    """The way from brokers to one of the bookies takes long, all the time."""
    posts: bool = False
    """Changes of partitions go through the routes of any broker, whose connections break."""
    strays: float = 0.0
    """How often a writer goes to an owner that was replaced, and otherwise to the newest one; 0: it
    stays where it is answered."""
    releases: tuple[float, ...] = (0.02, 0.1, 0.4)
    """How often a writer gives the partition up after it has written."""
    insists: float = 0.0
    """How often a writer goes on by a claim that may be over."""
    thinks_ms: tuple[int, ...] = (1, 30)
    """How long a consumer takes at most before it acknowledges."""
    leaves: float = 0.0
    """How often a consumer acknowledges nothing of what it got."""
    waiting: tuple[int | None, ...] = (None,)
    """The changes that may wait for a state log; what is beyond them is refused."""
    claimants: tuple[int | None, ...] = (None,)
    """The producers whose claims a partition remembers."""
    shapes: tuple[tuple[int, int, int], ...] = ((3, 3, 2), (3, 2, 2), (2, 2, 2))
    """(E, Qw, Qa), on three bookies."""
    writes_elsewhere: float = 0.3
    """The share of writers that may write to another partition than the first one."""
    steps_elsewhere: float = 0.4
    direct: int = 0
    """The readers that ask owners for ranges and times."""


STORIES = (
    Story(
        first=("recreate", "subscribe"),
        steps=("recreate", "create", *("settings",) * 5, "subscribe", *("sweep",) * 3, "grow"),
        events=("deleting", "gone", "gone", *("made",) * 5, "takeover", "append ack"),
        groups=(0, 1, 1),
        faults=(*FAULTS, *("slow metadata",) * 4),
        pauses_ms=(10, 10, 60),
    ),
    Story(
        first=("subscribe", "grow"),
        steps=(
            "subscribe",
            "subscribe",
            "subscribe, die",
            "subscribe, die",
            "unsubscribe",
            "grow",
            *("trim",) * 4,
            "settings",
            "unload",
        ),
        events=("registering", "registered", "registered", "grown", "append ack", "takeover"),
        groups=(1, 2, 2),
        retention=0.8,
    ),
    Story(
        first=("subscribe, die",),
        steps=("unload", "grow", "settings", "sweep"),
        events=("registered", "append ack", "takeover", "rolling"),
        groups=(1,),
        retention=0.8,
    ),
    Story(  # a look that sees no subscription yet whose cursor is there
        first=(),
        steps=(*("subscribe",) * 8, "unsubscribe"),
        step_counts=(4, 6, 8),
        events=(*("looking",) * 6, "registering", "registered"),
        groups=(4, 5),
        retention=0.0,
        faults=(*("metadata lags",) * 10, "unload", "slow metadata"),
        fault_counts=(4, 6),
        rolls=(1000,),
        usurpers=(0,),
        pulls=(0, 0, 0, 2),
        lengths_ms=(2_500, 3_500),
        early=0.0,
    ),
    Story(  # a topic that comes while a sweep reads what there is
        first=("recreate",),
        steps=(*("recreate",) * 6, *("sweep",) * 4),
        step_counts=(12, 16),
        events=("gone", *("sweeping",) * 5),
        groups=(0,),
        faults=("slow metadata",),
        fault_counts=(0, 0, 1),
        is_slow=True,
        usurpers=(0,),
        pauses_ms=(200,),
        writers=(4, 5),
    ),
    Story(
        first=("fence", "fence"),
        steps=("fence", "fence", "unload", "unload", "unload", "trim", "settings"),
        events=(*("claimed",) * 4, "append ack", "takeover", "takeover"),
        conditions=("claim", "claim", "none", "none", "key"),
        writers=(3, 4),
        groups=(0, 0, 1),
        usurpers=(0, 1, 2),
        faults=(*("kill broker",) * 4, "pause broker", "cut off", "slow bookie", "answers lost"),
        pauses_ms=(3, 10, 60),
    ),
    Story(
        first=("compact",),
        steps=("compact", "compact", "settings", "unload", "grow"),
        events=("append ack", "rolling", "takeover", "created", "sealed"),
        groups=(0, 0, 1),
        compacts=True,
        usurpers=(0, 1, 1),
    ),
    Story(
        first=("terminate",),
        steps=("terminate", "trim", "recreate", "subscribe", "settings", "unload"),
        events=("append ack", "append ack", "rolling", "takeover", "made"),
        usurpers=(0, 1, 2),
    ),
)


UNSUBSCRIBED = Story(
    first=("subscribe", "subscribe"),
    steps=(*("unsubscribe, unheard",) * 6, "unsubscribe", *("subscribe",) * 3, "trim", "unload"),
    step_counts=(8, 12),
    events=("registered", "registered", "append ack"),
    groups=(2, 3),
    retention=0.8,
    fault_counts=(0, 1, 2),
    early=0.1,
)
"""Deletes of subscriptions of which nobody knows whether they have happened."""
UNSUBSCRIBED_SHARE = 0.1
"""Drawn by a stream of its own."""
