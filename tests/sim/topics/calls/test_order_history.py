"""The verdicts of the oracle of order on histories made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencelog.broker.registry.subscription_config import (
    KEY_SHARED,
    TYPES,
    SubscriptionConfig,
    SubscriptionInfo,
)
from tests.sim.kinds import TOPIC_FAULTS
from tests.sim.oracle.history import History
from tests.sim.oracle.log_history import LogHistory
from tests.sim.oracle.owner_view import View
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.topics.calls.lost_pulls import draw_lost_pull_plan, loses_pulls
from tests.sim.topics.calls.order_history import HandedOut, OrderHistory

LEASE_S = 10.0


@dataclass
class Orders:
    """One partition, and one consumer."""

    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        info = SubscriptionInfo("s", "00", SubscriptionConfig(type="failover"))
        self.subscription = SubscriptionHistory(LogHistory(self.history, 0), info)
        self.order = OrderHistory([self.subscription])

    def leased(self, *offsets: int, at_s: float, epoch: int = 1) -> list[str]:
        """Lease messages by a call of its own; return their ids."""
        given = {
            f"{offset} at {at_s}": HandedOut(
                f"pull at {at_s}", "c", 0, offset, epoch, at_s, at_s, at_s + LEASE_S
            )
            for offset in offsets
        }
        self.order.leased(given)
        return list(given)

    def told(self, *offsets: int, at_s: float, epoch: int = 1) -> list[str]:
        """Return the violations, once the consumer is told of these."""
        self.order.told(self.leased(*offsets, at_s=at_s, epoch=epoch))
        self.order.known(f"pull at {at_s}")
        return self.history.violations


def test_what_was_given_back_comes_first() -> None:
    right, wrong = Orders(), Orders()
    for one in (right, wrong):
        assert one.told(0, at_s=1) == []
        one.leased(1, 2, at_s=2)
        one.order.moves_on("c", 3)
        one.order.gave_back("c", 0, 1)
    assert right.told(1, 2, at_s=4) == []
    assert right.told(1, 2, 3, at_s=5) == []  # once more
    assert wrong.told(3, at_s=4) == ["invariant 18: partition 0: s: c sees 3, and has not seen 1"]


def test_what_a_pull_that_was_given_up_takes_later_may_be_missing_for_a_lease() -> None:
    late, ended = Orders(), Orders()
    for one in (late, ended):
        one.order.moves_on("c", 1)
        one.leased(0, at_s=2)
    assert late.told(1, at_s=2 + LEASE_S) == []
    assert "c sees 1, and has not seen 0" in ended.told(1, at_s=2.1 + LEASE_S)[0]


def test_what_a_pull_has_taken_whose_end_is_known_is_not_missing() -> None:
    one = Orders()
    one.order.moves_on("c", 1)
    one.leased(0, at_s=2)
    one.order.known("pull at 2")
    assert "c sees 1, and has not seen 0" in one.told(1, at_s=3)[0]


def test_who_was_replaced_before_it_was_given_back_is_not_judged() -> None:
    one = Orders()
    one.leased(0, at_s=1)
    one.order.gave_back("c", 0, 2)
    one.order.moves_on("c", 2)
    assert one.told(1, at_s=3, epoch=1) == []
    assert "c sees 2, and has not seen 0" in one.told(2, at_s=4, epoch=2)[0]


def test_what_may_be_over_and_what_was_sought_is_not_missing() -> None:
    acked, sought = Orders(), Orders()
    acked.subscription.asked[0] = {1}
    assert acked.told(1, at_s=1) == []
    acked.subscription.asked[0] = set()
    assert "has not seen 0" in acked.told(2, at_s=2)[0]
    sought.order.sought(0)
    assert sought.told(5, at_s=1) == []


def test_what_was_given_back_by_name_is_with_nobody() -> None:
    view = View(1, 0)
    for offset, consumer in ((0, "a"), (1, "b")):
        view.leased(offset, consumer, None, f"{offset}", least_s=5, most_s=6)
    had = view.begin_giving_back("a")
    assert (list(had), list(view.held), list(view.perhaps)) == ([0], [1], [0, 1])
    view.leased(2, "a", None, "2", least_s=5, most_s=6)  # it may be given back, or not
    assert list(view.held) == [1]
    view.end_giving_back("a", had)
    assert list(view.perhaps) == [1, 2]
    view.leased(0, "a", None, "again", least_s=5, most_s=6)
    assert sorted(view.held) == [0, 1]


def test_plans_of_lost_pulls_differ_and_play_every_type() -> None:
    plans = [draw_lost_pull_plan(seed) for seed in range(1, 3000) if loses_pulls(seed)]
    assert len({str(plan) for plan in plans}) == len(plans) > 100
    assert {plan.config.type for plan in plans} == {*TYPES} - {"shared"}
    assert {fault.kind for plan in plans for fault in plan.faults} <= TOPIC_FAULTS.keys()
    assert all(caller.gives_back for plan in plans for caller in plan.callers)
    assert {len(plan.callers) for plan in plans if plan.config.type == KEY_SHARED} == {3}
