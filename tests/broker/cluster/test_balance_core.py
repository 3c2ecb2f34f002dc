"""Decisions on the broker of a partition: the decisions themselves, and that they come to rest."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.cluster.balance_core import (
    BrokerView,
    Move,
    PartitionView,
    decide,
    is_overloaded,
    place,
    plan,
    targets,
)
from fencelog.broker.config import BalancePolicy
from fencelog.broker.names import TopicName

POLICY = BalancePolicy(margin=0.2, min_margin=10, rounds=3, moves_a_round=100, rest_s=60)
TOPIC = TopicName.of("ns", "t")


def part(number: int, score: float, held_s: float = 1000.0) -> PartitionView:
    return PartitionView((TOPIC, number), score, held_s)


def brokers(*scores: float, draining: str = "") -> list[BrokerView]:
    names = "abcdefgh"[: len(scores)]
    return [
        BrokerView(name, score, takes=name not in draining)
        for name, score in zip(names, scores, strict=True)
    ]


def test_a_partition_stays_where_it_is_asked_for() -> None:
    assert place("a", brokers(0), POLICY) == "a"
    assert place("a", brokers(119, 100), POLICY) == "a"
    assert place("a", brokers(9, 0), POLICY) == "a"
    assert place("b", brokers(0, 500), POLICY) == "a"


def test_a_draining_broker_gets_nothing() -> None:
    assert place("a", brokers(0, 500, draining="a"), POLICY) == "b"
    assert place("b", brokers(0, 500, draining="a"), POLICY) == "b"
    assert place("a", brokers(0, draining="a"), POLICY) is None
    assert place("a", [], POLICY) is None
    assert targets("a", brokers(0, 9, 1, 2, draining="c")) == ["d", "b"]
    assert plan("a", brokers(1000, 0, 0, draining="a"), [part(0, 1)], POLICY) == ()
    moves = plan("a", brokers(1000, 0, 500, draining="b"), [part(0, 250)], POLICY)
    assert moves == (Move((TOPIC, 0), "c", 250),)


def test_only_the_most_loaded_gives_and_only_one_of_several() -> None:
    equal = brokers(1000, 1000, 0)
    assert [is_overloaded(name, equal, POLICY) for name in "abc"] == [False, True, False]
    assert not is_overloaded("z", equal, POLICY)
    assert not is_overloaded("a", brokers(1000), POLICY)
    assert not is_overloaded("a", brokers(109, 91), POLICY)  # within the margin of the mean
    assert plan("a", equal, [part(0, 1)], POLICY) == ()


def test_the_largest_that_fit_go_first_and_no_more_than_needed() -> None:
    views = [part(0, 5), part(1, 60), part(2, 30), part(3, 5)]
    # The mean is 50, the margin ends at 60, half-way is 55: one of 30 and two of 5 are enough.
    moves = plan("a", brokers(100, 0), views, POLICY)
    assert moves == (
        Move((TOPIC, 2), "b", 30),
        Move((TOPIC, 0), "b", 5),
        Move((TOPIC, 3), "b", 5),
    )
    assert plan("a", brokers(100, 0), views, replace(POLICY, moves_a_round=1)) == moves[:1]


def test_a_partition_that_is_the_whole_load_stays() -> None:
    assert plan("a", brokers(100, 0), [part(0, 100)], POLICY) == ()


def test_what_has_just_come_rests() -> None:
    assert plan("a", brokers(100, 0), [part(0, 30, held_s=59), part(1, 20)], POLICY) == (
        Move((TOPIC, 1), "b", 20),
    )


def test_nothing_moves_before_several_rounds_in_a_row() -> None:
    busy, calm, views = brokers(100, 0), brokers(55, 45), [part(0, 40)]
    assert decide(0, "a", busy, views, POLICY) == (1, ())
    assert decide(1, "a", busy, views, POLICY) == (2, ())
    assert decide(1, "a", calm, views, POLICY) == (0, ())
    assert decide(2, "a", busy, views, POLICY) == (0, (Move((TOPIC, 0), "b", 40),))


Cluster = list[list[float]]
"""Scores of partitions, by broker."""

clusters = st.lists(st.lists(st.floats(0.5, 1000), max_size=12), min_size=1, max_size=5)
policies = st.builds(
    BalancePolicy,
    margin=st.floats(0.01, 1),
    min_margin=st.floats(0, 100),
    moves_a_round=st.integers(1, 20),
    rest_s=st.just(0.0),
)


@given(clusters, policies, st.sets(st.integers(0, 4)))
def test_plans_make_loads_more_even_and_end(
    cluster: Cluster, policy: BalancePolicy, drained: set[int]
) -> None:
    names = "abcde"
    held = {
        names[b]: {b * 100 + n: score for n, score in enumerate(scores)}
        for b, scores in enumerate(cluster)
    }
    takes = {name: number not in drained for number, name in enumerate(held)}

    def views() -> list[BrokerView]:
        return [BrokerView(name, sum(held[name].values()), takes[name]) for name in held]

    def uneven() -> float:
        return sum(sum(held[name].values()) ** 2 for name in held)

    def spread() -> float:
        loads = [sum(held[name].values()) for name in held if takes[name]]
        return max(loads, default=0) - min(loads, default=0)

    for _ in range(200):
        planned = {
            name: plan(name, views(), [part(n, s) for n, s in held[name].items()], policy)
            for name in held
        }
        givers = [name for name, moves in planned.items() if moves]
        if not givers:
            break
        (giver,) = givers
        assert takes[giver]
        assert len(planned[giver]) <= policy.moves_a_round
        before, spread_before = uneven(), spread()
        for move in planned[giver]:
            assert takes[move.to]
            assert move.to != giver
            held[move.to][move.key[1]] = held[giver].pop(move.key[1])
        assert uneven() < before
        assert spread() <= spread_before + 1e-6
        if len(planned[giver]) < policy.moves_a_round:
            again = plan(giver, views(), [part(n, s) for n, s in held[giver].items()], policy)
            assert again == ()
    else:
        raise AssertionError("partitions wander for ever")


@given(clusters, policies, st.sets(st.integers(0, 4)), st.integers(0, 4))
def test_a_place_is_never_clearly_more_loaded_than_the_best(
    cluster: Cluster, policy: BalancePolicy, drained: set[int], asked: int
) -> None:
    views = [
        BrokerView("abcde"[n], sum(scores), n not in drained) for n, scores in enumerate(cluster)
    ]
    chosen = place("abcde"[asked], views, policy)
    takers = {view.broker_id: view.score for view in views if view.takes}
    if not takers:
        assert chosen is None
    else:
        assert chosen is not None
        assert takers[chosen] <= policy.above(min(takers.values()))
