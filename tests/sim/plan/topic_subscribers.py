"""The faults of subscriptions: seeks that meet each other, time to live, quotas, cursors in memory.

Drawn by a stream of its own, over the plan that ``plan/topic_draw.py`` has made, as are the disks
of ``plan/topic_bookies.py``. A seek meets other seeks, acknowledgements and takeovers above all: an
owner that is cut off takes one, and nobody knows whether the next owner finds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.policy import BACKLOG_EVICT
from fencelog.broker.registry.subscription_config import TYPES, SubscriptionConfig
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_plan import ConsumerPlan, SubscriptionPlan, TopicPlan
from tests.sim.topics.rover import faults_of_rover

SHARE = 0.5
"""The share of all histories."""

TAKEOVERS = ("believe", "believe", "unload", "kill broker", "pause broker")
CUT_OFF = ("cut off", "cut off", "believe, cut off", "slow bookie")


@dataclass(frozen=True, slots=True)
class SubscriberTheme:
    """``seeks``: how often each consumer seeks; ``cut_off``: faults that keep an owner from its
    bookies; ``takeovers``: faults that replace it. ``hurries``: requests that are given up soon."""

    seeks: tuple[float, ...] = (0.0,)
    cut_off: tuple[int, ...] = (0, 0, 1)
    takeovers: tuple[int, ...] = (0, 1, 2)
    durable: float = 1.0
    retention: float = 0.7
    ttl_ms: tuple[int | None, ...] = (None,)
    quota_bytes: tuple[int | None, ...] = (None,)
    hurries: tuple[float, ...] = (0.0, 0.0, 0.1, 0.3)
    subscriptions: tuple[int, ...] = (1, 1, 2)
    thinks_ms: tuple[int, ...] = (1, 20, 100)
    latest_start: float = 0.0
    """Consumers begin when this part of the history is over, at the earliest."""
    max_deliveries: tuple[int | None, ...] = (None,)
    """The limit of deliveries of the first subscription."""
    refuses: tuple[float, ...] = (0.0, 0.1)
    delays: float = 0.0
    kept: float = 0.3
    """The share of the plan's other faults that is kept."""
    forgets: float = 0.1
    """The share of histories in which brokers keep hardly any messages in memory."""
    roves: bool = False
    """The first consumer is a rover, with faults that are made for it."""


SEEKS = SubscriberTheme(
    seeks=(0.2, 0.3, 0.5),
    cut_off=(1, 2, 3),
    takeovers=(1, 2, 4),
    thinks_ms=(1, 20, 50),
)
ENDS = SubscriberTheme(
    ttl_ms=(None, 50, 300, 1_000),
    quota_bytes=(None, 2_000, 5_000, 100_000),
    seeks=(0.0, 0.0, 0.1),
    thinks_ms=(20, 100, 400),
)
"""The theme in which messages that are too old, or too many, count as acknowledged."""
VOLATILE = SubscriberTheme(durable=0.3, seeks=(0.0, 0.1), retention=1.0, subscriptions=(1, 2))

LATE = SubscriberTheme(
    hurries=(0.3, 0.5),
    takeovers=(2, 4),
    retention=0.0,
    latest_start=0.5,
    forgets=0.8,
    thinks_ms=(1, 20),
)
"""Consumers have much to catch up with, from bookies, and are impatient."""

LETTERS = SubscriberTheme(
    max_deliveries=(1, 2, 3),
    refuses=(0.3, 0.6),
    seeks=(0.0, 0.0, 0.05),
    takeovers=(0, 1, 2),
    subscriptions=(1, 2),
)
"""The theme in which messages that fail too often go to the dead letter topic, and are replayed."""
LATER = SubscriberTheme(delays=0.4, takeovers=(0, 1, 2))

ROVES = SubscriberTheme(
    roves=True,
    cut_off=(0,),
    takeovers=(0,),
    hurries=(0.0,),
    retention=0.3,
    subscriptions=(1,),
    refuses=(0.0,),
    kept=0.1,
    forgets=0.0,
)
"""One that goes from owner to owner, with the ids that each of them gave."""

THEMES = (SEEKS, SEEKS, SEEKS, ROVES, ENDS, VOLATILE, LATE, LETTERS, LETTERS, LATER)


def with_subscribers(plan: TopicPlan) -> TopicPlan:
    """The same plan, in some histories with subscriptions that have more to do."""
    random = Random(f"topic subscribers {plan.seed}")
    if random.random() >= SHARE:
        return replace(plan, hurries=random.choice((0.0, 0.0, 0.0, 0.1)))
    return _Draw(random, random.choice(THEMES), plan).plan()


class _Draw:
    """The order of the calls is part of what a seed means."""

    def __init__(self, random: Random, theme: SubscriberTheme, plan: TopicPlan) -> None:
        self._random = random
        self._theme = theme
        self._plan = plan

    def plan(self) -> TopicPlan:
        random, theme, plan = self._random, self._theme, self._plan
        subscriptions = tuple(
            self._subscription(n + 1) for n in range(random.choice(theme.subscriptions))
        )
        has_letters = any(each.config.max_deliveries is not None for each in subscriptions)
        return replace(
            plan,
            partitions=plan.partitions + has_letters,
            dead_letters=plan.partitions if has_letters else None,
            delays=theme.delays,
            overrides=self._overrides(),
            subscriptions=subscriptions,
            consumers=tuple(
                self._consumer(n + 1, n % len(subscriptions))
                for n in range(random.choice((1, 2, 3)) * len(subscriptions))
            ),
            hurries=random.choice(theme.hurries),
            faults=tuple(self._faults()),
            forgets=random.random() < theme.forgets,
        )

    def _overrides(self) -> dict[str, int | str]:
        random, theme = self._random, self._theme
        overrides = dict(self._plan.overrides)
        if theme.latest_start:
            overrides["roll_entries"] = random.choice((1, 2))
        if random.random() < theme.retention:
            overrides |= {"retention_bytes": 1, "roll_entries": random.choice((1, 2, 3, 5))}
        ttl_ms, quota = random.choice(theme.ttl_ms), random.choice(theme.quota_bytes)
        if ttl_ms is not None:
            overrides["ttl_ms"] = ttl_ms
        if quota is not None:
            overrides |= {"backlog_quota_bytes": quota, "backlog_action": BACKLOG_EVICT}
        return overrides

    def _subscription(self, number: int) -> SubscriptionPlan:
        random = self._random
        config = SubscriptionConfig(
            type=random.choice(TYPES),
            lease_ms=random.choice((100, 300, 800)),
            backoff_min_ms=random.choice((0, 20)),
            backoff_max_ms=100,
            max_outstanding=random.choice((10, 1000)),
            durable=random.random() < self._theme.durable,
            max_deliveries=random.choice(self._theme.max_deliveries) if number == 1 else None,
        )
        return SubscriptionPlan(f"s{number}", random.randrange(self._plan.partitions), config)

    def _consumer(self, number: int, subscription: int) -> ConsumerPlan:
        random, theme = self._random, self._theme
        return ConsumerPlan(
            f"c{number}",
            subscription,
            starts_ms=int(theme.latest_start * self._plan.length_ms)
            + random.choice((0, 0, random.randint(0, self._plan.length_ms // 2))),
            pulls=random.choice((3, 20)),
            thinks_ms=random.choice(theme.thinks_ms),
            through=random.choice((0.0, 0.5)),
            vanishes=random.choice((0.0, 0.1)),
            refuses=random.choice(theme.refuses),
            extends=0.0,
            seeks=random.choice(theme.seeks),
            roves=theme.roves and number == 1,
        )

    def _faults(self) -> list[Fault]:
        """Some of the plan's; and now and then an owner is cut off, and replaced meanwhile."""
        random, theme = self._random, self._theme
        kept = [fault for fault in self._plan.faults if random.random() < theme.kept]
        cut_off = [self._fault(random.choice(CUT_OFF)) for _ in range(random.choice(theme.cut_off))]
        replaced = [
            self._fault(random.choice(TAKEOVERS)) for _ in range(random.choice(theme.takeovers))
        ]
        followed = [
            replace(
                self._fault(random.choice(TAKEOVERS[:3])),
                moment=replace(
                    fault.moment, delay_ms=fault.moment.delay_ms + random.choice((20, 100, 300))
                ),
            )
            for fault in cut_off
            if random.random() < 0.7
        ]
        faults = [*kept, *cut_off, *replaced, *followed]
        if theme.roves:
            faults += faults_of_rover(random, self._plan.brokers, self._plan.length_ms)
        if theme.delays:  # what an hour's jump makes wait for an hour does not come in the end
            return [fault for fault in faults if fault.kind != "clock jumps"]
        return faults

    def _fault(self, kind: str) -> Fault:
        random = self._random
        machine = f"k{random.randint(1, self._plan.brokers)}"
        if kind == "slow bookie":
            machine = f"b{random.randint(1, self._plan.bookies)}"
        moment = Moment("start", 0, random.randint(0, self._plan.length_ms))
        if random.random() < 0.4:
            event = random.choice(("append ack", "takeover", "rolling", "created"))
            moment = Moment(event, random.randint(1, 20), random.choice((0, 1, 5, 20)))
        return Fault(moment, kind, machine, random.choice((20, 300, 1_000)), random.random())
