"""The plan of some seeds of topics: answers to pulls are lost all the time, and consumers give back
what they may have leased, by their name, before they pull again.

Three of eighty seeds in a row are such histories (18, 63, 67, 98, …): histories of calls
(``plan/caller_plan.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.registry.subscription_config import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SubscriptionConfig,
)
from tests.sim.plan.caller_plan import CallPlan, plain_call_plan
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_forwards import CUT_ANSWERS
from tests.sim.plan.topic_plan import Sending

EVERY, AT = 80, (18, 63, 67)

LENGTH_MS = 4_000

TYPES = (EXCLUSIVE, EXCLUSIVE, FAILOVER, FAILOVER, KEY_SHARED)
"""In the last of them a consumer must not give back what others have."""

MOVES = ("believe", "unload", "unload", "session expires")
"""Owners change, and some of those that were replaced do not know it yet."""


def loses_pulls(seed: int) -> bool:
    """Tell whether a seed of the topics' kind is such a history."""
    return seed % EVERY in AT


def draw_lost_pull_plan(seed: int) -> CallPlan:
    """Draw everything that the seed decides in advance."""
    random = Random(f"lost pulls {seed}")
    plan = plain_call_plan(random, seed)
    config = SubscriptionConfig(
        type=random.choice(TYPES),
        lease_ms=random.choice((1_000, 2_000)),
        backoff_min_ms=0,
        backoff_max_ms=20,
    )
    caller = replace(
        plan.callers[0],
        thinks_ms=random.choice((1, 5, 20)),
        rests=0.0,
        keeps=0.0,
        refuses=random.choice((0.0, 0.1)),
        extends=random.choice((0.0, 0.05)),
        seeks=0.0,
        gives_back=True,
    )
    count = random.choice((1, 1, 2)) if config.type != KEY_SHARED else 3
    producers = [
        replace(
            producer,
            partition=number % plan.partitions,
            starts_ms=0,
            sendings=tuple(
                Sending(random.randint(5, 60), (0,) * random.choice((1, 3))) for _ in range(40)
            ),
        )
        for number, producer in enumerate(plan.producers)
    ]
    return replace(
        plan,
        producers=tuple(producers),
        callers=tuple(
            replace(caller, machine=f"c{n + 1}", pulls=random.choice((1, 3, 10)))
            for n in range(count)
        ),
        config=config,
        faults=(
            *(fault for fault in plan.faults if random.random() < 0.1),
            *_lost(random, plan),
            *_moves(random, plan),
        ),
        hurries=random.choice((0.0, 0.0, 0.1)),
        length_ms=LENGTH_MS,
    )


def _lost(random: Random, plan: CallPlan) -> Iterator[Fault]:
    """Yield faults by which answers of all brokers are lost: those to clients, and to brokers."""
    start = Moment("start", 0, 100)
    breaks, cuts = random.choice((0.03, 0.1, 0.2)), random.choice((0.1, 0.2, 0.4))
    for broker in _brokers(plan):
        yield Fault(start, "connections break", broker, LENGTH_MS, breaks)
        yield Fault(start, CUT_ANSWERS, broker, LENGTH_MS, cuts)


def _moves(random: Random, plan: CallPlan) -> Iterator[Fault]:
    """Yield changes of owners. In some histories brokers take themselves for owners, one after the
    other, and are blind to those that replace them."""
    is_blind = random.random() < 0.5
    for _ in range(random.choice((4, 8)) if is_blind else random.choice((0, 1, 3))):
        yield Fault(
            Moment("start", 0, random.randint(100, LENGTH_MS)),
            "believe" if is_blind else random.choice(MOVES),
            random.choice(_brokers(plan)),
            random.choice((300, 1_000)),
            random.random(),
        )


def _brokers(plan: CallPlan) -> list[str]:
    return [f"k{number}" for number in range(1, plan.brokers + 1)]
