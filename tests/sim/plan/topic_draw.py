"""Drawing a plan of the topics' kind from a seed (see ``plan/draw.py``)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.registry.subscription_config import TYPES, SubscriptionConfig
from tests.sim.commits.plan import with_commits
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_bookies import with_bookies
from tests.sim.plan.topic_forwards import with_http, with_refusals
from tests.sim.plan.topic_limits import with_limits
from tests.sim.plan.topic_owners import with_owners
from tests.sim.plan.topic_plan import (
    TOPIC_EVENTS,
    TOPIC_TARGETS,
    ConsumerPlan,
    ProducerPlan,
    ReaderPlan,
    Sending,
    SubscriptionPlan,
    TopicPlan,
)
from tests.sim.plan.topic_staged import with_stages
from tests.sim.plan.topic_subscribers import with_subscribers
from tests.sim.topics.direct.plan import with_direct_readers

SHAPES = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (2, 2, 2))
"""(E, Qw, Qa), on three bookies: the smaller ones can replace a bookie."""


DAY_MS = 24 * 3600 * 1000
"""Clocks jump by less."""


RETENTION = (("retention_bytes", 1), ("retention_bytes", 500), ("retention_ms", 100))
"""The retention settings, which keep little of what is no longer needed."""


@dataclass(frozen=True, slots=True)
class TopicTheme:
    """Kinds of faults that meet each other, when they happen, and how the log is written."""

    kinds: tuple[str, ...]
    events: tuple[str, ...]
    rolls: tuple[int, ...] = (2, 5, 20, 1000)
    pauses_ms: tuple[int, ...] = (2, 20, 100)
    faults: tuple[int, ...] = (2, 4, 6)
    usurpers: tuple[int, ...] = (0, 0, 1, 2)
    """Brokers that believe, besides."""
    slow_links: tuple[int, ...] = (0, 0, 2, 4)
    """Ways of unequal length, from the start."""
    conditions: tuple[str, ...] = ("none", "none", "sequence", "sequence", "key", "offset")
    subscriptions: tuple[int, ...] = (0, 0, 1)


ANYTHING = TopicTheme(tuple(TOPIC_TARGETS), TOPIC_EVENTS)

CONTENTION = TopicTheme(
    kinds=(
        "believe",
        "believe",
        "believe, cut off",
        "pause broker",
        "session expires",
        "kill broker",
        "isolate",
        "drain broker",
        "unload",
        "unload",
        "slow metadata",
        "answers lost",
        "deaf",
        "mute",
        "clock jumps",
    ),
    events=("takeover", "append ack", "append", "rolling", "recovering", "fence", "created"),
    faults=(3, 5, 8),
    usurpers=(1, 2, 3, 5),
)

ROLLS = TopicTheme(
    kinds=(
        "believe",
        "slow metadata",
        "metadata cut",
        "metadata refuses",
        "metadata reply lost",
        "change's reply lost",
        "change's reply lost",
        "kill broker",
        "pause broker",
        "slow bookie",
        "clog",
        "reset",
    ),
    events=("rolling", "rolling", "rolling", "created", "created", "sealed", "append", "takeover"),
    rolls=(1, 2, 3, 5),
    pauses_ms=(1, 5, 20),
    usurpers=(1, 2, 4),
    slow_links=(0, 4, 8),
)

LEDGERS = TopicTheme(
    kinds=(
        "kill bookie",
        "kill bookie",
        "power loss",
        "power loss everywhere",
        "pause bookie",
        "restart cleanly",
        "cut",
        "clog",
        "reset",
        "isolate",
        "slow bookie",
        "slow disk",
        "cut off",
        "believe, cut off",
        "believe",
        "metadata reply lost",
    ),
    events=("append", "append ack", "created", "rolling", "takeover", "recovering", "closed"),
)

MEMORIES = TopicTheme(
    kinds=(
        "believe",
        "kill broker",
        "kill broker",
        "pause broker",
        "drain broker",
        "unload",
        "session expires",
        "change's reply lost",
        "changes refused",
        "changes refused",
        "answers lost",
        "slow metadata",
        "cut off",
        "believe, cut off",
    ),
    events=("created", "created", "append ack", "append ack", "takeover", "fence", "recovering"),
    usurpers=(2, 3, 5),
    slow_links=(0, 2, 4),
    conditions=("sequence", "key", "key"),
    subscriptions=(1, 1, 2),
)
"""The memory of a partition, of producers and subscriptions, has to outlast many owners."""

THEMES = (ANYTHING, CONTENTION, ROLLS, ROLLS, LEDGERS, MEMORIES, MEMORIES)


def draw_topic_plan(seed: int) -> TopicPlan:
    """Draw everything that the seed decides in advance."""
    plan = _Draw(Random(f"topic plan {seed}")).plan(seed)
    drawn = with_refusals(with_http(with_bookies(with_subscribers(plan))))
    return with_direct_readers(with_stages(with_commits(with_owners(with_limits(drawn)))))


class _Draw:
    """One plan in the making. The order of the calls is part of what a seed means."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._theme = random.choice(THEMES)
        self._length_ms = random.choice((1_200, 2_000, 3_000))
        self._brokers = [f"k{n + 1}" for n in range(random.choice((2, 2, 3)))]
        self._bookies = ["b1", "b2", "b3"]
        self._partitions = random.choice((1, 1, 1, 2))

    def plan(self, seed: int) -> TopicPlan:
        random = self._random
        subscriptions = tuple(
            self._subscription(n + 1) for n in range(random.choice(self._theme.subscriptions))
        )
        return TopicPlan(
            bookies=len(self._bookies),
            write_cache_bytes=16 * 1024,
            flush_ms=random.choice((1_000, 5_000)),
            file_bytes=random.choice((16, 256)) * 1024,
            victim="",
            is_victim_synced=True,
            garbage_ms=15_000,
            scrub_ms=20_000,
            repairs_itself=True,
            seed=seed,
            brokers=len(self._brokers),
            partitions=self._partitions,
            overrides=self._overrides(),
            session_ms=random.choice((1_200, 2_500)),
            producers=tuple(self._producer(n + 1) for n in range(random.choice((1, 2, 2, 3)))),
            readers=tuple(self._reader(n + 1) for n in range(random.choice((0, 1, 1, 2)))),
            subscriptions=subscriptions,
            consumers=tuple(
                self._consumer(number + 1, random.randrange(len(subscriptions)))
                for number in range(random.choice((1, 2, 3)) * len(subscriptions))
            ),
            faults=tuple(self._faults()),
            length_ms=self._length_ms,
        )

    def _overrides(self) -> dict[str, int]:
        random = self._random
        shape = zip(
            ("ensemble_size", "write_quorum", "ack_quorum"),
            random.choice(SHAPES),
            strict=True,
        )
        overrides = {
            **dict(shape),
            "roll_entries": random.choice(self._theme.rolls),
            "idempotency_window_ms": DAY_MS,
        }
        if random.random() < 0.35:
            setting, value = random.choice(RETENTION)
            overrides[setting] = value
        return overrides

    def _producer(self, number: int) -> ProducerPlan:
        random = self._random
        return ProducerPlan(
            f"p{number}",
            random.randrange(self._partitions),
            random.choice((0, 0, random.randint(0, self._length_ms // 2))),
            tuple(self._sending() for _ in range(random.choice((5, 12, 30)))),
            conditions=random.choice(self._theme.conditions),
            wanders=random.choice((0.0, 0.1, 0.4)),
            restarts=random.choice((0.0, 0.0, 0.1)),
        )

    def _sending(self) -> Sending:
        random = self._random
        return Sending(
            random.randint(0, random.choice(self._theme.pauses_ms)),
            tuple(random.choice((0, 0, 1, 3)) for _ in range(random.choice((1, 1, 2, 5)))),
        )

    def _reader(self, number: int) -> ReaderPlan:
        random = self._random
        return ReaderPlan(
            f"t{number}",
            random.randrange(self._partitions),
            self._moment(),
            random.choice((1, 7, 100)),
        )

    def _subscription(self, number: int) -> SubscriptionPlan:
        random = self._random
        config = SubscriptionConfig(
            type=random.choice(TYPES),
            lease_ms=random.choice((100, 300, 800)),
            backoff_min_ms=random.choice((0, 20)),
            backoff_max_ms=100,
            max_outstanding=random.choice((2, 10, 1000)),
        )
        return SubscriptionPlan(f"s{number}", random.randrange(self._partitions), config)

    def _consumer(self, number: int, subscription: int) -> ConsumerPlan:
        random = self._random
        return ConsumerPlan(
            f"c{number}",
            subscription,
            starts_ms=random.choice((0, 0, random.randint(0, self._length_ms // 2))),
            pulls=random.choice((1, 3, 20)),
            thinks_ms=random.choice((1, 20, 100)),
            through=random.choice((0.0, 0.5)),
            vanishes=random.choice((0.0, 0.1, 0.3)),
            refuses=random.choice((0.0, 0.1, 0.3)),
            extends=random.choice((0.0, 0.1)),
            seeks=random.choice((0.0, 0.0, 0.0, 0.05)),
        )

    def _moment(self) -> Moment:
        random = self._random
        if random.random() < 0.3:
            return Moment("start", 0, random.randint(0, self._length_ms))
        nth = random.choice((1, 1, 2, 3, 5, random.randint(1, 30)))
        delay_ms = random.choice((0, 0, 0, 1, 1, 2, 5, 20, 300))
        return Moment(random.choice(self._theme.events), nth, delay_ms)

    def _faults(self) -> list[Fault]:
        random = self._random
        kinds = [
            random.choice(self._theme.kinds) for _ in range(random.choice((0, 1, 2, 2, 3, 4, 4)))
        ]
        count = random.choice(self._theme.faults) if kinds else 0
        usurpers = ["believe"] * random.choice(self._theme.usurpers)
        return [
            Fault(
                self._moment(),
                kind,
                self._target(kind),
                random.choice((1, 20, 300, 2_000, 3_500)),
                random.random(),
            )
            for kind in [*(random.choices(kinds, k=count) if kinds else ()), *usurpers]
        ] + [
            Fault(
                Moment("start", 0, random.randint(0, 300)),
                "clog",
                self._target("clog"),
                self._length_ms,
                random.choice((0.001, 0.003, 0.01, 0.03)),
            )
            for _ in range(random.choice(self._theme.slow_links))
        ]

    def _target(self, kind: str) -> str:
        random, machines = self._random, [*self._brokers, *self._bookies]
        match TOPIC_TARGETS[kind]:
            case "broker":
                return random.choice(self._brokers)
            case "bookie":
                return random.choice(self._bookies)
            case "anyone":
                return random.choice(machines)
            case "link":
                pair = [random.choice(self._brokers), random.choice(self._bookies)]
            case "metadata link":
                pair = [random.choice(machines), "zk"]
            case _:
                return "all"
        random.shuffle(pair)
        return ">".join(pair)
