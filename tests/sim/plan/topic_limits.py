"""Staged histories of topics: quotas that hold or refuse appends, partitions that forget producers,
and kinds of faults that the themes hardly ever draw.

Drawn by streams of their own, last of all, over the plan that the others have made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.policy import BACKLOG_HOLD, BACKLOG_REFUSE
from fencelog.broker.registry.subscription_config import TYPES, SubscriptionConfig
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_owners import usurpers
from tests.sim.plan.topic_plan import ConsumerPlan, Sending, SubscriptionPlan, TopicPlan

EVERY = 20
QUOTAS_AT, FORGOTTEN_AT, RARE_AT = 13, 17, 9
"""The places, in so many seeds in a row, of the staged ones."""

RARE = ("swizzle", "read only", "slow network")
"""One of them after the other has its turn."""

LENGTH_MS = 3_000
"""Long enough for many checks of a quota."""

NOT_ON_TIME = ("pause broker", "clock jumps")
"""Faults after which a broker is late, and nobody could say how long an append may be held."""


def with_limits(plan: TopicPlan) -> TopicPlan:
    """The same plan, or that of a staged history."""
    random = Random(f"topic limits {plan.seed}")
    place = plan.seed % EVERY
    if place == QUOTAS_AT:
        return _with_quota(random, plan)
    if place == FORGOTTEN_AT:
        return _with_few_producers(random, plan)
    if place == RARE_AT:
        kind = RARE[plan.seed // EVERY % len(RARE)]
        rare = [_rare(random, plan, kind) for _ in range(random.choice((1, 2)))]
        return replace(plan, faults=(*plan.faults, *rare))
    return plan


def _with_quota(random: Random, plan: TopicPlan) -> TopicPlan:
    """Subscriptions that are now and then slower than the producers."""
    kept = {name: value for name, value in plan.overrides.items() if name != "ttl_ms"}
    overrides = kept | {
        "backlog_quota_bytes": random.choice((300, 1_000, 2_000)),
        "backlog_action": random.choice((BACKLOG_HOLD, BACKLOG_REFUSE)),
        "roll_entries": random.choice((2, 5, 20, 1_000)),
    }
    subscriptions = tuple(_subscription(random, n + 1) for n in range(random.choice((1, 1, 2))))
    producers = [
        replace(
            producer,
            partition=0,
            over_http=False,
            conditions=random.choice(("none", "none", "key", "sequence")),
            sendings=_sendings(random, (20, 60, 100)),
        )
        for producer in plan.producers
    ]
    return replace(
        plan,
        partitions=1,
        overrides=overrides,
        producers=tuple(producers),
        readers=tuple(replace(reader, partition=0) for reader in plan.readers),
        subscriptions=subscriptions,
        consumers=tuple(_consumer(random, n) for n in range(len(subscriptions))),
        faults=tuple(fault for fault in plan.faults if fault.kind not in NOT_ON_TIME),
        length_ms=LENGTH_MS,
        dead_letters=None,
        delays=0.0,
        forgets=False,
    )


def _subscription(random: Random, number: int) -> SubscriptionPlan:
    config = SubscriptionConfig(
        type=random.choice(TYPES),
        lease_ms=random.choice((100, 300)),
        backoff_min_ms=0,
        backoff_max_ms=100,
        max_outstanding=1000,
    )
    return SubscriptionPlan(f"s{number}", 0, config)


def _consumer(random: Random, subscription: int) -> ConsumerPlan:
    """Return a consumer that acknowledges all that it gets, sooner or later."""
    return ConsumerPlan(
        f"c{subscription + 1}",
        subscription,
        starts_ms=random.choice((0, 0, 1_000)),
        pulls=random.choice((1, 3, 20)),
        thinks_ms=random.choice((20, 100, 400)),
        through=random.choice((0.0, 0.5)),
        vanishes=random.choice((0.0, 0.2)),
        refuses=0.0,
        extends=0.0,
        seeks=0.0,
    )


def _with_few_producers(random: Random, plan: TopicPlan) -> TopicPlan:
    """More producers than a partition remembers, and nothing of its log goes: all of it is read in
    the end. The first producer writes so much that what the others wrote is known from snapshots
    alone. In every other such history owners are replaced all the time, and their clocks differ."""
    kept = {name: value for name, value in plan.overrides.items() if "retention" not in name}
    is_replaced = bool(plan.seed // EVERY % 2)
    number = random.choice((5, 6) if is_replaced else (3, 4, 5))
    drawn = [plan.producers[n % len(plan.producers)] for n in range(number)]
    producers = [
        replace(
            producer,
            machine=f"p{n + 1}",
            partition=0,
            over_http=False,
            conditions="sequence",
            sendings=_sendings(random, (150, 300) if is_replaced else (60, 150))
            if n
            else _sendings(random, (10,), 100),
            restarts=random.choice((0.0, 0.1)),
        )
        for n, producer in enumerate(drawn)
    ]
    most = number - 1 if is_replaced else random.choice((1, number - 1, number - 1))
    replaced = (*usurpers(random, plan), *_clocks(random, plan)) if is_replaced else ()
    return replace(
        plan,
        partitions=1,
        faults=(*plan.faults, *replaced),
        overrides=kept | {"max_producers": most},
        producers=tuple(producers),
        readers=tuple(replace(reader, partition=0) for reader in plan.readers),
        subscriptions=(),
        consumers=(),
        dead_letters=None,
        delays=0.0,
    )


def _clocks(random: Random, plan: TopicPlan) -> Iterator[Fault]:
    """Yield faults by which no two brokers agree on the time."""
    for number in range(1, plan.brokers + 1):
        yield Fault(Moment("start", 0, 0), "clock jumps", f"k{number}", 1, random.random())


def _sendings(
    random: Random, pauses_ms: tuple[int, ...], count: int | None = None
) -> tuple[Sending, ...]:
    pause_ms = random.choice(pauses_ms)
    return tuple(
        Sending(
            random.randint(0, pause_ms),
            tuple(random.choice((0, 0, 1, 3)) for _ in range(random.choice((1, 2, 4)))),
        )
        for _ in range(count or random.choice((12, 30)))
    )


def _rare(random: Random, plan: TopicPlan, kind: str) -> Fault:
    target = f"b{random.randint(1, plan.bookies)}" if kind == "read only" else "all"
    moment = Moment("start", 0, random.randint(0, plan.length_ms))
    if random.random() < 0.6:
        event = random.choice(("append ack", "created", "rolling", "takeover"))
        moment = Moment(event, random.randint(1, 10), random.choice((0, 1, 5, 20)))
    return Fault(moment, kind, target, random.choice((300, 1_000, 2_000)), random.random())
