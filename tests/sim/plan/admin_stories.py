"""The stories of histories of administration: which steps, faults and moments meet in one."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    writes_elsewhere: float = 0.3
    """The share of writers that may write to another partition than the first one."""
    steps_elsewhere: float = 0.4


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
    steps=(*("unsubscribe, unheard",) * 4, "unsubscribe", *("subscribe",) * 3, "trim", "unload"),
    events=("registered", "registered", "append ack"),
    groups=(1, 2, 2),
    retention=0.8,
    fault_counts=(0, 1, 2),
    early=0.1,
)
"""Deletes of subscriptions of which nobody knows whether they have happened."""
UNSUBSCRIBED_SHARE = 0.1
"""Drawn by a stream of its own."""


UNSEEN = Story(
    first=("subscribe",),
    steps=(*("trim",) * 6, *("grow",) * 3, "unload"),
    step_counts=(12, 16),
    events=("registered", "grown", "grown"),
    groups=(1,),
    retention=0.9,
    usurpers=(0,),
    faults=("unload", "answers lost", "slow metadata"),
    fault_counts=(0, 0, 1),
    rolls=(2, 5),
    pauses_ms=(150,),
    writers=(4, 5),
    pulls=(0,),
    lengths_ms=(2_500, 3_500),
    early=0.0,
    nths=(1,),
    delays_ms=(20, 100, 300, 600),
    partitions=(1,),
    writes_elsewhere=0.9,
    steps_elsewhere=0.9,
)
"""A topic grows, and what is written to its new partition is trimmed before anybody has looked for
the cursors that are missing there."""

HELD = Story(
    first=("recreate",),
    steps=("recreate", *("sweep, held",) * 3),
    step_counts=(6, 8),
    events=("gone",),
    groups=(0,),
    retention=0.0,
    usurpers=(0,),
    faults=("slow metadata", "unload"),
    fault_counts=(0, 0, 1),
    pauses_ms=(150,),
    writers=(3, 4),
    lengths_ms=(2_500, 3_500),
    early=0.0,
    nths=(1, 1, 2),
    delays_ms=(0, 1, 5, 20),
)
"""A topic comes while a sweep waits to hear what there is."""

GROWN = Story(
    first=("grow", "grow"),
    steps=("grow", "unload", "unload"),
    step_counts=(1, 3),
    events=("append ack", "append ack", "grown", "takeover"),
    conditions=("routed",),
    groups=(0,),
    retention=0.0,
    faults=(
        *("metadata lags",) * 6,
        *("slow metadata",) * 6,
        "kill broker",
        "pause broker",
        "session expires",
        "answers lost",
    ),
    fault_counts=(1, 2, 4),
    is_slow=True,
    pauses_ms=(3, 10),
    writers=(2, 3, 4),
    partitions=(1, 1, 2),
)
"""A topic grows while appends under idempotency keys that name no partition are repeated."""

RESET = Story(
    first=("recreate",),
    steps=(*("settings",) * 6, "recreate"),
    step_counts=(12, 16),
    events=(*("deleting",) * 4, "gone"),
    groups=(0,),
    retention=0.0,
    usurpers=(0,),
    faults=("slow metadata", "unload"),
    fault_counts=(0, 0, 1),
    is_slow=True,
    pauses_ms=(150,),
    writers=(1, 2),
    early=0.0,
    nths=(1, 1, 2, 3),
    delays_ms=(0, 0, 1, 5, 20),
)
"""Settings are changed, of which a slow broker has read the former ones, while the topic is deleted
and created again."""

ANEW = replace(
    RESET,
    first=("recreate", "recreate", "recreate"),
    steps=("recreate", "recreate", "settings"),
    step_counts=(6, 8, 10),
    events=("gone", "made"),
    nths=(1, 1, 2, 3, 4),
    early=0.5,
)
"""The same, with so few changes that the former topic and the new one have as many."""

STAGED = (
    (40, 0, UNSEEN),
    (60, 52, HELD),
    (48, 12, GROWN),
    (48, 8, RESET),
    (48, 32, ANEW),
)
"""Stories that some seeds have for themselves: of so many in a row, the one at that place."""
