"""The verdicts of the access oracles on partitions that remember few claims, on histories made by
hand."""

from __future__ import annotations

import pytest

from fencelog.broker.append import producer_access
from fencelog.broker.append.conditions import AppendConditions
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange
from tests.sim.oracle.access_history import AccessHistory, Held
from tests.sim.oracle.durable_access import DurableAccess
from tests.sim.plan.admin_draw import draw_admin_plan, is_administered

P, Q, R = b"p" * 16, b"q" * 16, b"r" * 16


def claimed(access: AccessHistory, producer: bytes, given: int, at_s: float) -> None:
    change = access.holder.begin(Held(producer, None), 1, at_s)
    assert access.claimed(change, producer, given) is None
    access.holder.confirmed(change, at_s + 0.5, tail=0)


def released(access: AccessHistory, at_s: float) -> None:
    access.holder.confirmed(access.holder.begin(None, 1, at_s), at_s + 0.5, tail=0)


def by(producer: bytes, epoch: int) -> AppendConditions:
    return AppendConditions(SequenceRange(1, RANGE_SEQUENCE, producer, epoch, 0))


def test_who_was_followed_comes_back_when_its_claim_may_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_access, "MAX_CLAIMED_PRODUCERS", 2)
    access = AccessHistory()
    claimed(access, P, 1, 1.0)
    claimed(access, Q, 2, 2.0)
    released(access, 3.0)
    assert "was shut out" in str(access.appended(by(P, 1), 0, 4.0, 4.1))
    assert not access.has_forgotten(by(P, 1), 4.0, 4.1)
    claimed(access, Q, 3, 5.0)
    released(access, 6.0)
    assert "was shut out" in str(access.appended(by(P, 1), 0, 7.0, 7.1))  # by the same one
    unknown = access.holder.begin(Held(R, None), 1, 8.0)
    access.holder.unknown(unknown, 8.5)
    released(access, 9.0)
    assert access.appended(by(P, 1), 0, 10.0, 10.1) is None
    assert access.has_forgotten(by(P, 1), 10.0, 10.1)
    assert "was shut out" in str(access.appended(by(Q, 2), 0, 10.0, 10.1))
    claimed(access, P, 5, 11.0)
    released(access, 12.0)
    assert "was shut out" in str(access.appended(by(P, 1), 0, 13.0, 13.1))


def test_who_holds_the_partition_may_release_it() -> None:
    access = AccessHistory()
    claimed(access, P, 1, 1.0)
    fenced = FencelogError(ErrorCode.PRODUCER_FENCED, "not the holder")
    release = access.holder.begin(None, 1, 2.0)
    assert "which holds the partition" in str(access.not_released(release, Held(P, 1), fenced))
    gone = FencelogError(ErrorCode.NO_OWNER, "another one")
    assert access.not_released(release, Held(P, 1), gone) is None
    access.holder.refused(release)
    claimed(access, Q, 2, 3.0)
    release = access.holder.begin(None, 1, 4.0)
    assert access.not_released(release, Held(P, 1), fenced) is None


def test_claims_that_a_state_ledger_may_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_access, "MAX_CLAIMED_PRODUCERS", 2)
    before, after = DurableAccess(), DurableAccess()
    for epoch, name in enumerate(("p", "q"), 1):
        before.apply(["claimed", name, epoch])
        before.apply(["released", name, epoch])
    assert list(after.forgotten(before)) == [
        "epoch 2 was given",
        "p may not append below epoch 1",
        "q may not append below epoch 2",
    ]
    after.apply(["given_epoch", 3])
    after.apply(["lowest_epoch", "q", 2])
    assert list(after.forgotten(before)) == ["p may not append below epoch 1"]  # it has a place
    after.apply(["lowest_epoch", "r", 3])
    assert list(after.forgotten(before)) == []
    after.apply(["claimed", "s", 4])
    assert list(after.lowest) == ["r", "s"]
    reverse = DurableAccess()
    for event in (["given_epoch", 2], ["lowest_epoch", "q", 2], ["lowest_epoch", "p", 1]):
        reverse.apply(event)
    assert list(reverse.forgotten(before)) == ["['p', 'q'] claimed it in this order"]
    early = DurableAccess()
    for event in (["given_epoch", 3], ["lowest_epoch", "p", 1], ["lowest_epoch", "r", 3]):
        early.apply(event)
    assert list(early.forgotten(before)) == ["q may not append below epoch 2"]


def test_plans_in_which_claims_are_forgotten() -> None:
    """Some of the seeds that every run plays; more claim the partition than it remembers."""
    plans = [draw_admin_plan(seed) for seed in range(1, 300) if is_administered(seed)]
    few = [plan for plan in plans if plan.claimants is not None]
    assert len(few) >= 4
    for plan in few:
        assert plan.claimants is not None
        assert len(plan.writers) > plan.claimants
        assert all(writer.conditions == "claim" and writer.insists for writer in plan.writers)
    assert not any(writer.insists for plan in plans if plan not in few for writer in plan.writers)
