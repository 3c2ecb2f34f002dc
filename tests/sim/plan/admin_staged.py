"""Stories that some seeds of administration have for themselves: each stages one meeting that a
random story comes to so seldom that no few hundred of them can be relied on for it."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.plan.admin_stories import Story

TRIMMED = Story(
    first=("trim",),
    steps=(*("trim",) * 3, *("unload",) * 2),
    step_counts=(12, 16),
    events=("append ack", "append ack", "takeover"),
    groups=(0,),
    retention=0.0,
    usurpers=(0, 1),
    faults=("unload", "kill broker", "believe", "answers lost"),
    fault_counts=(2, 3, 4),
    rolls=(2, 5, 20),
    pauses_ms=(20, 60),
    writers=(2, 3),
    early=0.2,
    delays_ms=(0, 5, 20, 100),
    partitions=(1,),
    steps_elsewhere=0.0,
)
"""Nobody holds back what is trimmed, within ledgers too, and owners are replaced meanwhile."""

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
    first=("grow",),
    steps=(*("grow",) * 3, "unload"),
    step_counts=(3, 4),
    events=(*("append ack",) * 3, "takeover"),
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
    pauses_ms=(10, 40),
    writers=(8, 10),
    early=0.1,
    partitions=(1, 1, 2),
)
"""A topic grows while many writers repeat appends under idempotency keys that name no partition:
some of those that brokers have routed by the former number are still on their way."""

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

HIDDEN = Story(
    first=("subscribe",),
    steps=(*("subscribe",) * 5, "unsubscribe"),
    step_counts=(8, 12),
    events=("looking",),
    groups=(5,),
    retention=0.0,
    usurpers=(0,),
    faults=("unload", "slow metadata", "answers lost"),
    fault_counts=(0, 0, 1),
    rolls=(1000,),
    pulls=(0,),
    lengths_ms=(4_500, 6_000),
    early=0.0,
    nths=(2, 3, 4, 5, 6, 7, 8),
    sweep_s=60.0,
    has_late_servers=True,
)
"""Cursors are opened for subscriptions that their owner, when it looks, does not see yet."""

BEHIND = Story(
    first=("compact",),
    steps=("compact", "unload", "unload", "grow"),
    step_counts=(1, 2),
    events=("append ack", "rolling", "takeover", "sealed"),
    groups=(0, 0, 1),
    retention=1.0,
    compacts=True,
    usurpers=(0, 0, 1),
    rolls=(2, 5),
    compaction_ms=(800, 2_000),
)
"""Little is retained, and compaction is behind the log."""

WAITING = Story(
    first=("fence", "fence"),
    steps=(*("fence",) * 6, "unload"),
    step_counts=(6, 10),
    events=(*("claimed",) * 2, *("append ack",) * 4, "takeover"),
    conditions=("claim", "none", "none", "key"),
    groups=(0,),
    retention=0.0,
    usurpers=(0, 0, 1),
    faults=("kill broker", "slow bookie", "answers lost"),
    fault_counts=(0, 1),
    pauses_ms=(3, 10),
    writers=(3, 4),
    writes_elsewhere=0.0,
    steps_elsewhere=0.0,
    has_slow_bookie=True,
    shapes=((2, 2, 2), (2, 2, 2), (3, 2, 2)),
)
"""Who may append changes while appends are on their way to bookies that are slower than those of
the state log."""

UNAWARE = Story(
    first=("fence, newest",),
    steps=("fence, newest",),
    step_counts=(16, 20),
    events=("takeover",),
    conditions=("none", "none", "claim"),
    groups=(0,),
    retention=0.0,
    usurpers=(0,),
    faults=("answers lost",),
    fault_counts=(0, 1),
    rolls=(1000,),
    pauses_ms=(100, 200),
    writers=(4, 5),
    lengths_ms=(3_000,),
    early=0.5,
    delays_ms=(5, 20, 50),
    partitions=(1,),
    writes_elsewhere=0.0,
    steps_elsewhere=0.0,
    strays=0.5,
)
"""Who may append changes at an owner, and then the one before it is asked, which does not know that
it was replaced."""

POSTED = Story(
    first=("fence", "trim"),
    steps=(*("trim",) * 16, *("fence",) * 6, *("unload",) * 10),
    step_counts=(30, 40),
    events=(*("claimed",) * 3, *("append ack",) * 4, "takeover"),
    conditions=("claim", "claim", "none", "key"),
    groups=(0,),
    retention=0.0,
    usurpers=(0, 2, 4),
    faults=("kill broker", "unload", "slow metadata", "cut off", "pause broker", "answers lost"),
    fault_counts=(1, 2, 4),
    pauses_ms=(10, 40),
    writers=(4, 5),
    early=0.5,
    partitions=(1,),
    writes_elsewhere=0.0,
    steps_elsewhere=0.0,
    releases=(0.4, 0.8),
    posts=True,
)
"""Changes go through the service's routes, while owners are replaced and connections break."""

ENDED = replace(
    POSTED,
    first=("terminate", "terminate", "terminate", "trim"),
    steps=(*("trim",) * 4, "unload"),
    step_counts=(6, 10),
    events=("append ack", "append ack", "takeover"),
    conditions=("none", "none", "key"),
    usurpers=(0, 0, 1),
    faults=("kill broker", "unload", "answers lost"),
    fault_counts=(0, 1),
    pauses_ms=(3, 10),
    partitions=(2, 3),
    writes_elsewhere=0.7,
    steps_elsewhere=0.7,
    has_slow_bookie=True,
    shapes=((2, 2, 2), (2, 2, 2), (3, 2, 2)),
)
"""A topic's partitions are ended one by one, through the service's routes, while appends are on
their way to slow bookies."""

FORGOTTEN = Story(
    first=(),
    steps=("unload",),
    step_counts=(2, 4),
    events=(*("claimed",) * 3, "append ack", "takeover"),
    conditions=("claim",),
    groups=(0,),
    retention=0.0,
    usurpers=(0, 1, 2),
    faults=("kill broker", "unload", "answers lost", "slow bookie"),
    fault_counts=(0, 1, 2),
    rolls=(20, 1000),
    pauses_ms=(20, 60),
    writers=(4, 5, 6),
    lengths_ms=(2_500, 3_500),
    partitions=(1,),
    writes_elsewhere=0.0,
    steps_elsewhere=0.0,
    releases=(0.4, 0.8),
    insists=0.8,
    claimants=(1, 2, 2, 3),
)
"""More producers claim a partition than it remembers, and those that were followed insist."""

CONSUMED = Story(
    first=("subscribe", "subscribe", "subscribe"),
    steps=("subscribe", "subscribe", "unsubscribe", "grow", *("unload",) * 6, "trim", "trim"),
    step_counts=(8, 12),
    events=("registered", "grown", *("append ack",) * 4, *("takeover",) * 2),
    groups=(2, 3),
    retention=0.3,
    usurpers=(0, 1, 2),
    faults=(*("kill broker",) * 3, "pause broker", "cut off", "slow bookie", "answers lost"),
    fault_counts=(1, 2, 3),
    pauses_ms=(20, 60),
    writers=(2, 3),
    pulls=(2, 5, 10),
    lengths_ms=(2_500, 3_500),
    delays_ms=(0, 5, 20, 100),
    writes_elsewhere=0.5,
    leaves=0.3,
)
"""Subscriptions are created, deleted and consumed all the time, while owners are replaced: what is
delivered is often not acknowledged, or nobody knows."""

REFUSED = replace(
    CONSUMED,
    thinks_ms=(30, 300),
    waiting=(None, 1, 1),
    has_slow_bookie=True,
    shapes=((2, 2, 2), (3, 2, 2)),
)
"""The same, by consumers that take their time, with state logs on slow bookies, for which no more
than one change may wait: some acknowledgements are refused."""

LIMITED = replace(
    CONSUMED,
    first=("subscribe", "subscribe", "settings, age", "settings, quota"),
    steps=(
        *("settings, age",) * 3,
        *("settings, quota",) * 4,
        *("subscribe", "grow", "unload", "create"),
    ),
    step_counts=(8, 12),
    groups=(1, 2),
    retention=0.5,
    faults=("kill broker", "pause broker", "slow metadata", "metadata cut", "answers lost"),
    fault_counts=(0, 1, 2),
    usurpers=(0, 0, 1),
    writers=(3, 4),
    pulls=(0, 2, 5),
)
"""Time to live, and quotas that evict, come and go while subscriptions are behind."""

FULL = replace(
    LIMITED,
    first=("subscribe", "subscribe", "settings, full", "settings, full"),
    steps=(*("settings, full",) * 6, "subscribe", "unload"),
    step_counts=(4, 6),
    events=("registered", *("append ack",) * 4),
    retention=0.0,
    early=0.7,
    pauses_ms=(100, 200),
    pulls=(0, 0, 2),
)
"""Quotas that keep appends out come and go while subscriptions are behind."""

FEW = Story(
    first=("settings, producers", "settings, producers", "settings, view"),
    steps=(*("settings, producers",) * 4, *("settings, view",) * 3, "unload", "unload", "compact"),
    step_counts=(8, 10),
    events=(*("append ack",) * 4, "takeover", "rolling"),
    conditions=("sequence",),
    groups=(0,),
    retention=0.0,
    compacts=True,
    usurpers=(0, 1),
    faults=("kill broker", "pause broker", "slow metadata", "answers lost"),
    fault_counts=(0, 1, 2),
    rolls=(5, 20),
    pauses_ms=(40, 100),
    writers=(4, 5),
    lengths_ms=(2_500, 3_500),
    partitions=(1,),
    writes_elsewhere=0.0,
    steps_elsewhere=0.0,
)
"""Partitions remember so few producers with sequence numbers that some are forgotten, and the
compacted view is kept up now and then."""

VIEWED = replace(
    BEHIND,
    first=("settings, view", "settings, view"),
    steps=(*("settings, view",) * 6, "compact", "unload", "grow"),
    step_counts=(8, 10),
    events=(*("append ack",) * 4, "rolling", "takeover"),
    groups=(0,),
    usurpers=(0, 1),
    faults=("kill broker", "pause broker", "slow metadata", "answers lost"),
    fault_counts=(0, 1, 2),
    pauses_ms=(40, 100),
    compaction_ms=(100, 400),
    early=0.6,
)
"""Little is retained, and the compacted view is kept up now and then: some messages go before it
has them."""

ASKED = Story(
    first=("trim", "trim"),
    steps=(*("trim",) * 8, *("unload",) * 2, "terminate", *("recreate",) * 2, "grow"),
    step_counts=(12, 16),
    events=(*("append ack",) * 4, *("takeover",) * 2, "made"),
    groups=(0,),
    retention=0.2,
    usurpers=(1, 2, 3),
    faults=(
        *("unload", "kill broker", "believe", "answers lost", "pause broker", "slow metadata"),
        *("metadata lags",) * 6,
    ),
    fault_counts=(4, 6, 8),
    pauses_ms=(10, 40),
    writers=(3, 4),
    lengths_ms=(2_500, 3_500),
    early=0.5,
    delays_ms=(0, 5, 20, 100, 300),
    steps_elsewhere=0.2,
    direct=3,
)
"""Readers ask for ranges and times of a log that is trimmed within its ledgers, or is ended, and of
a topic that grows, or is deleted and made anew; also owners that do not know that they were
replaced."""

STAGED = (
    (40, 12, FORGOTTEN),
    (80, 8, FORGOTTEN),
    (80, 60, TRIMMED),
    (40, 0, UNSEEN),
    (60, 52, HELD),
    (48, 12, GROWN),
    (48, 8, RESET),
    (48, 32, ANEW),
    (60, 16, HIDDEN),
    (60, 4, BEHIND),
    (40, 28, WAITING),
    (80, 36, UNAWARE),
    (160, 24, POSTED),
    (160, 104, ENDED),
    *((480, at, ASKED) for at in (80, 100, 164, 232, 240)),
    *((480, at, REFUSED) for at in (16, 124, 256)),
    *((480, at, CONSUMED) for at in (72, 140, 152)),
    *((480, at, LIMITED) for at in (32, 108, 132)),
    *((480, at, FULL) for at in (56, 136, 216)),
    *((480, at, FEW) for at in (36, 68)),
    *((480, at, VIEWED) for at in (112, 128, 148)),
)
"""Stories that some seeds have for themselves: of so many in a row, the one at that place."""

STAGED_EVERY, STAGED_SEEDS = 960, 480
"""Of so many seeds in a row, the first so many have stories for themselves where ``STAGED`` says
so. All the others are drawn freely: what nobody has thought of has to be met as well."""


def staged_story(seed: int) -> Story | None:
    """Return the story that a seed has for itself: the last one of ``STAGED`` for its place."""
    if seed % STAGED_EVERY >= STAGED_SEEDS:
        return None
    return next((story for every, at, story in reversed(STAGED) if seed % every == at), None)
