"""The placement of partitions, decided from the loads that brokers have published: pure, and the
same everywhere.

There are two decisions. ``place`` chooses the owner of a partition without one: the broker that was
asked, unless it is clearly more loaded than the least loaded one, so that partitions stay where
clients already are. ``plan`` chooses the partitions that a broker clearly more loaded than the mean
transfers, and their targets.

These rules keep partitions from moving without end (``plan``):

* only the most loaded broker gives, of its own, and only after several rounds above the margin;
* it stops half-way between the margin and the mean, so that a small change starts nothing new;
* no move leaves its target above what its source keeps: the sum of the squares of all loads shrinks
  with every move, so there can be no circle;
* a partition that has just arrived stays for a while, also because rates are measured over a while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from fencelog.broker.config import BalancePolicy
from fencelog.broker.names import TopicName

PartitionKey = tuple[TopicName, int]


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A registered broker as the others see it. ``takes``: it is not draining."""

    broker_id: str
    score: float
    takes: bool = True


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition that the deciding broker has open, for ``held_s``."""

    key: PartitionKey
    score: float
    held_s: float


@dataclass(frozen=True, slots=True)
class Move:
    """The transfer of this partition to that broker; ``score`` moves with it."""

    key: PartitionKey
    to: str
    score: float


def place(asked: str, brokers: Iterable[BrokerView], policy: BalancePolicy) -> str | None:
    """Return the owner for a partition without one for which ``asked`` got a request; None if no
    broker can take it."""
    takers = {broker.broker_id: broker for broker in brokers if broker.takes}
    if not takers:
        return None
    least = min(takers.values(), key=_weight)
    own = takers.get(asked)
    if own is not None and own.score <= policy.above(least.score):
        return asked
    return least.broker_id


def targets(own: str, brokers: Iterable[BrokerView]) -> list[str]:
    """Return the brokers that may be asked to take a partition from ``own``: the least loaded
    first."""
    others = (broker for broker in brokers if broker.takes and broker.broker_id != own)
    return [broker.broker_id for broker in sorted(others, key=_weight)]


def is_overloaded(own: str, brokers: Collection[BrokerView], policy: BalancePolicy) -> bool:
    """Tell whether ``own`` is the most loaded of all brokers that take partitions, and clearly
    above the mean. Of several with the same load only one is."""
    takers = [broker for broker in brokers if broker.takes]
    if not any(broker.broker_id == own for broker in takers):
        return False
    most = max(takers, key=_weight)
    return most.broker_id == own and most.score > policy.above(_mean(takers))


def plan(
    own: str,
    brokers: Collection[BrokerView],
    partitions: Iterable[PartitionView],
    policy: BalancePolicy,
) -> tuple[Move, ...]:
    """Return the transfers of ``own`` now: the largest that fit first, so that few have to move."""
    if not is_overloaded(own, brokers, policy):
        return ()
    by_id = {broker.broker_id: broker for broker in brokers if broker.takes}
    source = by_id.pop(own)
    mean = _mean([source, *by_id.values()])
    goal = (mean + policy.above(mean)) / 2
    moves: list[Move] = []
    rested = [view for view in partitions if view.held_s >= policy.rest_s and view.score > 0]
    for view in sorted(rested, key=lambda view: (-view.score, view.key)):
        if source.score <= goal or len(moves) == policy.moves_a_round:
            break
        target = min(by_id.values(), key=_weight)
        if target.score + view.score > source.score - view.score:
            continue
        moves.append(Move(view.key, target.broker_id, view.score))
        source = replace(source, score=source.score - view.score)
        by_id[target.broker_id] = replace(target, score=target.score + view.score)
    return tuple(moves)


def decide(
    rounds_above: int,
    own: str,
    brokers: Collection[BrokerView],
    partitions: Iterable[PartitionView],
    policy: BalancePolicy,
) -> tuple[int, tuple[Move, ...]]:
    """Decide one round; return how many rounds in a row, this one included, were above the margin,
    and the transfers.

    After transfers the count begins again, so that measurements reflect them before more follow.
    """
    if not is_overloaded(own, brokers, policy):
        return 0, ()
    if rounds_above + 1 < policy.rounds:
        return rounds_above + 1, ()
    return 0, plan(own, brokers, partitions, policy)


def _weight(broker: BrokerView) -> tuple[float, str]:
    return broker.score, broker.broker_id


def _mean(brokers: Collection[BrokerView]) -> float:
    return sum(broker.score for broker in brokers) / len(brokers)
