"""Every type of subscription against a naive model, through whatever order of events.

Long histories from a seed find most; the state machine finds few, and tells them briefly.
"""

from __future__ import annotations

import random  # noqa: TID251 - seeded, so that a failure can be repeated

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from fencelog.broker.registry.subscription_config import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.dispatch_world import LEASE_S, World

CONSUMERS = st.sampled_from(["a", "b", "c"])
KEYS = st.sampled_from([b"k1", b"k1", b"k2", None])
FATES = st.lists(st.sampled_from(["ack", "nack", "keep", "keep"]), min_size=1, max_size=5)
CHOICES = st.lists(st.booleans(), min_size=1, max_size=12)


class Machine(RuleBasedStateMachine):
    """The actions of consumers and brokers, in any order."""

    kind = SHARED

    @initialize(most=st.sampled_from([None, 2]), outstanding=st.sampled_from([3, 1000]))
    def begin(self, most: int | None, outstanding: int) -> None:
        self.world = World(
            self.kind,
            max_deliveries=most,
            max_outstanding=outstanding,
            backoff_min_ms=1000,
            backoff_max_ms=4000,
        )
        self.pulled: list[int] = []

    @rule(keys=st.lists(KEYS, min_size=1, max_size=6), later=st.sampled_from([None, None, 5.0]))
    def append(self, keys: list[bytes | None], later: float | None) -> None:
        for key in keys:
            self.world.append(key, None if later is None else self.world.now + later)

    @rule(consumer=CONSUMERS, limit=st.sampled_from([1, 2, 5, 100]), fates=FATES)
    def pull(self, consumer: str, limit: int, fates: list[str]) -> None:
        if self.kind == EXCLUSIVE:
            self.world.refresh()
            if self.world.consumers.first(self.world.now) not in (None, consumer):
                with pytest.raises(FencelogError) as caught:
                    self.world.pull(consumer, limit)
                assert caught.value.code is ErrorCode.SUBSCRIPTION_BUSY
                return
        found = self.world.pull(consumer, limit)
        self.pulled += found
        by_fate = list(zip(found, fates * 20, strict=False))
        self.world.ack([offset for offset, fate in by_fate if fate == "ack"])
        self.world.nack([offset for offset, fate in by_fate if fate == "nack"], 0.0)

    def some(self, choices: list[bool]) -> list[int]:
        """Draw from what was pulled at any time; a late request about it must do no harm."""
        chosen = zip(reversed(self.pulled), choices * 10, strict=False)
        return sorted({offset for offset, ok in chosen if ok})

    @rule(choices=CHOICES)
    def ack(self, choices: list[bool]) -> None:
        self.world.ack(self.some(choices))

    @rule(choices=CHOICES, delay=st.sampled_from([None, 0.0, 3.0]))
    def nack(self, choices: list[bool], delay: float | None) -> None:
        self.world.nack(self.some(choices), delay)

    @rule(choices=CHOICES)
    def release(self, choices: list[bool]) -> None:
        self.world.release(self.some(choices))

    @rule(choices=CHOICES)
    def extend(self, choices: list[bool]) -> None:
        self.world.lengthen(self.some(choices))

    @rule(seconds=st.sampled_from([0.5, 4.0, LEASE_S + 1]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.world.refresh()

    @rule()
    def confirm(self) -> None:
        self.world.confirm()

    @rule(unconfirmed=st.integers(0, 5))
    def take_over(self, unconfirmed: int) -> None:
        self.world.take_over(unconfirmed)

    @rule(part=st.floats(0, 1))
    def seek(self, part: float) -> None:
        if self.world.tail % 3 == 0:  # rarely, else nothing else is found
            self.world.seek(int(self.world.tail * part))
            self.pulled.clear()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_every_promise_holds_in_long_histories(kind: str) -> None:
    for seed in range(300):
        try:
            live(kind, random.Random(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed} of {kind}") from error


def live(kind: str, chance: random.Random) -> None:
    """One history, to its end."""
    world = World(
        kind,
        max_deliveries=chance.choice([None, 2]),
        max_outstanding=chance.choice([3, 1000]),
        backoff_min_ms=1000,
        backoff_max_ms=4000,
    )
    pulled: list[int] = []
    for _ in range(chance.choice([10, 40])):
        match chance.randrange(7):
            case 0:
                due = world.now + 5 if chance.random() < 0.2 else None
                for _ in range(chance.randint(1, 5)):
                    world.append(chance.choice([b"k1", b"k1", b"k2", None]), due)
            case 1 | 2 | 3:
                pulled += work(world, chance)
            case 4:
                world.pass_time(chance.choice([0.5, 4, LEASE_S + 1]))
                world.refresh()
            case 5:
                late = sorted({offset for offset in pulled if chance.random() < 0.3})
                chance.choice([world.ack, world.nack, world.release, world.lengthen])(late)
            case _:
                if chance.random() < 0.1:
                    world.seek(chance.randint(0, world.tail))
                    pulled.clear()
                elif chance.random() < 0.5:
                    world.confirm()
                else:
                    world.take_over(chance.randint(0, 5))
    world.drain()


def work(world: World, chance: random.Random) -> list[int]:
    """A consumer pulls, and says of some messages what became of them."""
    try:
        found = world.pull(chance.choice("abc"), chance.choice([1, 2, 5, 100]))
    except FencelogError:
        check_busy(world)
        return []
    world.ack([offset for offset in found if chance.random() < 0.3])
    world.nack([offset for offset in found if chance.random() < 0.3], 0.0)
    return found


def check_busy(world: World) -> None:
    assert world.config.type == EXCLUSIVE
    assert world.consumers.first(world.now) is not None


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_every_promise_holds_in_any_order_of_events(kind: str) -> None:
    class Tried(Machine):
        pass

    Tried.kind = kind
    run_state_machine_as_test(
        Tried,
        settings=settings(
            max_examples=20,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
