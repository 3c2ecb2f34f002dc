"""The plan of some seeds of topics: consumers refuse messages, which go to the dead letter topic
and come back, while partitions change their owners and connections break.

Of forty seeds in a row two are such histories (1, 10, 41, 50, …): histories of calls
(``plan/caller_plan.py``) whose consumers fail with every other message, but never with one that
came back. In every fourth of them (41, 121, …) many dead letters do not get to the owner of their
topic, and nobody knows that at first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.registry.subscription_config import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    SubscriptionConfig,
)
from tests.sim.plan.caller_plan import CallPlan, plain_call_plan
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_forwards import CUT_ANSWERS

EVERY, AT = 40, (1, 10)

LOST_EVERY, LOST_AT = 80, 41
"""The place, in so many seeds in a row, of the one whose dead letters are lost on their way."""

TYPES = (SHARED, SHARED, SHARED, KEY_SHARED, FAILOVER, EXCLUSIVE)

LEASE_MS = 8_000
"""Longer than a history: of what was lost with an answer the lease ends once, afterwards. So what
came back does not fail as often as messages may, and a payload comes back once."""

MAX_DELIVERIES = 2

LENGTH_MS = 3_500


def has_letters(seed: int) -> bool:
    """Tell whether a seed of the topics' kind is such a history."""
    return seed % EVERY in AT


def draw_letter_plan(seed: int) -> CallPlan:
    """Draw everything that the seed decides in advance."""
    random = Random(f"letter plan {seed}")
    plan = plain_call_plan(random, seed)
    callers = tuple(
        replace(
            caller,
            pulls=random.choice((1, 3, 10)),
            thinks_ms=random.choice((1, 20)),
            rests=0.0,
            keeps=0.0,
            through=0.0,
            refuses=random.choice((0.3, 0.6, 0.9)),
            extends=0.0,
            seeks=0.0,
        )
        for caller in plan.callers
    )
    overrides = dict(plan.overrides)
    overrides.pop("retention_bytes", None)
    config = SubscriptionConfig(
        type=random.choice(TYPES),
        lease_ms=LEASE_MS,
        backoff_min_ms=0,
        backoff_max_ms=20,
        max_deliveries=MAX_DELIVERIES,
    )
    faults = (*plan.faults, *_breaks(random, plan))
    if seed % LOST_EVERY == LOST_AT:
        faults = tuple(_lost_on_the_way(random, plan))
        callers = tuple(replace(caller, pulls=10, refuses=0.9) for caller in callers)
    return replace(
        plan,
        overrides=overrides,
        config=config,
        callers=callers,
        faults=faults,
        length_ms=max(plan.length_ms, LENGTH_MS),
        hurries=0.0,
        replays=True,
    )


def _lost_on_the_way(random: Random, plan: CallPlan) -> Iterator[Fault]:
    """Yield faults by which brokers reach each other so slowly that what they ask for is still on
    its way when a link breaks."""
    start, breaks = Moment("start", 0, 0), random.choice((0.1, 0.2))
    brokers = [f"k{number}" for number in range(1, plan.brokers + 1)]
    for one, other in permutations(brokers, 2):
        yield Fault(start, "clog", f"{one}>{other}", LENGTH_MS, random.choice((0.005, 0.01)))
    for broker in brokers:
        yield Fault(start, "connections break", broker, LENGTH_MS, breaks)


def _breaks(random: Random, plan: CallPlan) -> list[Fault]:
    """Break connections to all brokers, and lose what they forward to each other, for a part of the
    time."""
    if random.random() < 0.3:
        return []
    moment = Moment("start", 0, random.randint(100, 1_500))
    share, length_ms = random.choice((0.05, 0.1, 0.3)), random.choice((500, 1_500))
    return [
        Fault(moment, kind, f"k{number}", length_ms, share)
        for kind in ("connections break", CUT_ANSWERS)
        for number in range(1, plan.brokers + 1)
    ]
