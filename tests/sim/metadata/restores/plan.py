"""The plan of one history with a restore of the metadata store, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.registry.subscription_config import TYPES, SubscriptionConfig
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_draw import DAY_MS, RETENTION, SHAPES
from tests.sim.plan.topic_plan import (
    ConsumerPlan,
    ProducerPlan,
    ReaderPlan,
    Sending,
    SubscriptionPlan,
    TopicPlan,
)

RESTORE_TARGETS = {
    "kill broker": "broker",
    "pause broker": "broker",
    "drain broker": "broker",
    "unload": "broker",
    "believe": "broker",
    "session expires": "broker",
    "answers lost": "broker",
    "slow metadata": "broker",
    "change's reply lost": "broker",
}
"""Every kind of fault of these histories, and what it befalls. None makes a writer replace a bookie
while the backup is all that is known: what it writes then is named by nothing."""

GRACE_MS = 20_000
"""The hour for which bookies keep what was deleted. A backup is younger than that when it comes
back."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """``topic``: the plan until the restore; ``after``: of the time behind it."""

    topic: TopicPlan
    after: TopicPlan
    backup_ms: int
    """The time of the backup."""
    is_sudden: bool
    """Brokers are killed before the restore. Else they stop in order."""
    bookies_end: str
    """How bookies end before it: they stop in order, are killed, or lose their power."""
    waits_ms: int
    """The time from the restore to the start of the services: the sessions of the backup may have
    ended by then, or not."""
    outlasts_grace: bool
    """Bookies remove what the store does not know any more before all is judged."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults until the restore."""
        return self.topic.faults


def draw_restore_plan(seed: int) -> RestorePlan:
    """Draw everything that the seed decides in advance."""
    random = Random(f"restore plan {seed}")
    length_ms = random.choice((1_500, 2_500, 4_000))
    topic = _Draw(random, length_ms).plan(seed)
    return RestorePlan(
        topic,
        _after(random, topic),
        random.randint(200, length_ms - 300),
        is_sudden=random.random() < 0.5,
        bookies_end=random.choice(("stop", "stop", "kill", "power")),
        waits_ms=random.choice((1_200, 4_000)),
        outlasts_grace=random.random() < 0.3,
    )


def _after(random: Random, topic: TopicPlan) -> TopicPlan:
    """Return the plan behind the restore: the same topic, with clients of other names."""
    drawn = _Draw(random, 1_500)
    drawn.brokers, drawn.partitions = topic.brokers, topic.partitions
    after = drawn.plan(topic.seed, suffix="'", subscriptions=topic.subscriptions)
    return after


class _Draw:
    """One plan in the making. The order of the calls is part of what a seed means."""

    def __init__(self, random: Random, length_ms: int) -> None:
        self._random = random
        self._length_ms = length_ms
        self.brokers = random.choice((2, 2, 3))
        self.partitions = random.choice((1, 1, 1, 2))
        self._pause_ms = random.choice((20, 100, 200))

    def plan(
        self,
        seed: int,
        *,
        suffix: str = "",
        subscriptions: tuple[SubscriptionPlan, ...] | None = None,
    ) -> TopicPlan:
        random = self._random
        if subscriptions is None:
            drawn = range(random.choice((0, 1, 1, 2)))
            subscriptions = tuple(self._subscription(number + 1) for number in drawn)
        consumers = range(random.choice((1, 2)) * len(subscriptions))
        return TopicPlan(
            bookies=random.choice((3, 4)),
            write_cache_bytes=16 * 1024,
            flush_ms=random.choice((300, 1_000, 5_000)),
            file_bytes=random.choice((16, 256)) * 1024,
            victim="",
            is_victim_synced=True,
            garbage_ms=500,
            scrub_ms=20_000,
            repairs_itself=True,
            seed=seed,
            brokers=self.brokers,
            partitions=self.partitions,
            overrides=self._overrides(),
            session_ms=random.choice((1_200, 2_500)),
            producers=tuple(
                self._producer(f"p{n + 1}{suffix}") for n in range(random.choice((1, 2, 3)))
            ),
            readers=tuple(self._reader(f"t{n + 1}{suffix}") for n in range(random.choice((0, 1)))),
            subscriptions=subscriptions,
            consumers=tuple(
                self._consumer(f"c{n + 1}{suffix}", random.randrange(len(subscriptions)))
                for n in consumers
            ),
            faults=tuple(self._fault() for _ in range(random.choice((0, 1, 2, 4)))),
            length_ms=self._length_ms,
        )

    def _overrides(self) -> dict[str, int]:
        random = self._random
        names = ("ensemble_size", "write_quorum", "ack_quorum")
        overrides = {
            **dict(zip(names, random.choice(SHAPES), strict=True)),
            "roll_entries": random.choice((2, 5, 5, 20, 1000)),
            "idempotency_window_ms": DAY_MS,
        }
        if random.random() < 0.35:
            setting, value = random.choice(RETENTION)
            overrides[setting] = value
        return overrides

    def _producer(self, name: str) -> ProducerPlan:
        random = self._random
        return ProducerPlan(
            name,
            random.randrange(self.partitions),
            random.choice((0, 0, random.randint(0, self._length_ms // 2))),
            tuple(self._sending() for _ in range(random.choice((12, 30, 60)))),
            conditions=random.choice(("none", "sequence", "sequence", "key", "offset")),
            wanders=random.choice((0.0, 0.1)),
            restarts=0.0,
        )

    def _sending(self) -> Sending:
        random = self._random
        sizes = tuple(random.choice((0, 0, 1, 3)) for _ in range(random.choice((1, 1, 2))))
        return Sending(random.randint(0, self._pause_ms), sizes)

    def _reader(self, name: str) -> ReaderPlan:
        random = self._random
        moment = Moment("start", 0, random.randint(0, self._length_ms))
        return ReaderPlan(name, random.randrange(self.partitions), moment, random.choice((1, 7)))

    def _subscription(self, number: int) -> SubscriptionPlan:
        random = self._random
        config = SubscriptionConfig(
            type=random.choice(TYPES),
            lease_ms=random.choice((300, 800)),
            backoff_min_ms=20,
            backoff_max_ms=100,
        )
        return SubscriptionPlan(f"s{number}", random.randrange(self.partitions), config)

    def _consumer(self, name: str, subscription: int) -> ConsumerPlan:
        random = self._random
        return ConsumerPlan(
            name,
            subscription,
            starts_ms=random.choice((0, random.randint(0, self._length_ms // 2))),
            pulls=random.choice((1, 3, 20)),
            thinks_ms=random.choice((1, 20, 100)),
            through=random.choice((0.0, 0.5)),
            vanishes=random.choice((0.0, 0.1)),
            refuses=random.choice((0.0, 0.1)),
            extends=0.0,
            seeks=0.0,
        )

    def _fault(self) -> Fault:
        random = self._random
        kind = random.choice(list(RESTORE_TARGETS))
        moment = Moment("start", 0, random.randint(0, self._length_ms))
        broker = f"k{random.randint(1, self.brokers)}"
        return Fault(moment, kind, broker, random.choice((50, 300, 1_000)), random.random())
