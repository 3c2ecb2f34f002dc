"""Settings: checked where they are made, inherited where they are left out."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from fencelog.broker.policy import (
    MIN_ROLL_MS,
    Policy,
    changed_overrides,
    from_json,
    to_json,
)
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError


@pytest.mark.parametrize(
    "overrides",
    [
        {"retention": 1},
        {"retention_ms": 0},
        {"retention_ms": "1"},
        {"retention_ms": True},
        {"retention_ms": 2**53},
        {"roll_ms": None},
        {"trim_unacknowledged": 1},
        {"backlog_action": "drop"},
        {"backlog_action": None},
        {"max_pending_bytes": 1 << 40},
        {"ensemble_size": 2},
        {"ensemble_size": 33},
        {"ack_quorum": 4},
        {"ack_quorum": 1},
    ],
)
def test_settings_that_cannot_be_are_refused(overrides: dict[str, Any]) -> None:
    with pytest.raises(FencelogError) as raised:
        Policy().with_overrides(overrides)
    assert raised.value.code is ErrorCode.BAD_REQUEST


def test_what_is_left_out_is_inherited() -> None:
    policy = Policy(retention_ms=5).with_overrides(
        {"retention_bytes": 7, "trim_unacknowledged": True, "backlog_action": "evict"}
    )
    assert (policy.retention_ms, policy.retention_bytes) == (5, 7)
    assert policy.with_overrides({"retention_ms": None}).retention_ms is None


def test_null_takes_back_and_unlimited_is_no_bound() -> None:
    own = from_json({"retention_ms": "unlimited", "ttl_ms": None, "roll_ms": 5})
    assert own == {"retention_ms": None, "roll_ms": 5}
    assert to_json(own) == {"retention_ms": "unlimited", "roll_ms": 5}
    assert changed_overrides(own, {"retention_ms": None, "ttl_ms": 3}) == {
        "roll_ms": 5,
        "ttl_ms": 3,
    }


def test_levels_that_do_not_fit_together_keep_the_larger_number_of_copies() -> None:
    policy = Policy()
    assert policy.inherited_by({}, {}) is policy
    assert Policy().inherited_by({"ensemble_size": 5}, {"write_quorum": 4}).replication == (
        Replication(5, 4, 2)
    )
    # A namespace asks for two bookies, a topic of it has asked for three copies before.
    fitted = Policy().inherited_by({"ensemble_size": 2, "write_quorum": 2}, {"ack_quorum": 3})
    assert fitted.replication == Replication(3, 3, 3)
    fitted.replication.validate()


def test_one_copy_of_several_is_never_acknowledged_because_levels_were_changed() -> None:
    """A topic asks for three copies; then its namespace, or the cluster, goes down to one."""
    one_copy = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
    three_copies = {"ensemble_size": 3, "write_quorum": 3}
    below = Policy().inherited_by(one_copy)
    assert below.replication == Replication(1, 1, 1)
    for policy in (Policy().inherited_by(one_copy, three_copies), below.inherited_by(three_copies)):
        assert policy.replication == Replication(3, 3, 2)
    accepted = Policy().with_replication(Replication(2, 2, 1))
    assert accepted.inherited_by({"roll_ms": 5}).replication == Replication(2, 2, 1)


def test_a_cluster_of_few_bookies_has_fewer_copies() -> None:
    one = Policy().with_replication(Replication(1, 1, 1))
    assert one.with_overrides({"roll_entries": 1}).replication == Replication(1, 1, 1)


@pytest.mark.parametrize(
    ("policy", "age_ms"),
    [
        (Policy(roll_ms=500), 500),
        (Policy(roll_ms=50_000, retention_ms=20_000), 20_000),
        (Policy(roll_ms=50_000, retention_ms=1), MIN_ROLL_MS),
        (Policy(roll_ms=100, retention_ms=1), 100),
    ],
)
def test_a_ledger_takes_messages_no_longer_than_they_are_kept(policy: Policy, age_ms: int) -> None:
    assert policy.roll_age_ms == age_ms
    assert not policy.is_roll_due(entries=1, size=1, age_s=age_ms / 1000 - 0.001)
    assert policy.is_roll_due(entries=1, size=1, age_s=age_ms / 1000)
    assert not policy.is_roll_due(entries=0, size=0, age_s=1e9)


def test_entries_and_bytes_make_a_roll_due() -> None:
    policy = Policy(roll_entries=3, roll_bytes=100)
    assert policy.is_roll_due(entries=3, size=1, age_s=0)
    assert policy.is_roll_due(entries=1, size=100, age_s=0)
    assert not policy.is_roll_due(entries=2, size=99, age_s=0)


def test_a_quota_is_one_of_bytes_or_of_age() -> None:
    assert not Policy().has_backlog_quota
    assert Policy(backlog_quota_bytes=1).has_backlog_quota
    assert Policy(backlog_quota_ms=1).has_backlog_quota


def test_settings_may_need_no_more_bookies_than_there_are() -> None:
    five = Policy(ensemble_size=5)
    five.check_bookies(None)
    five.check_bookies(5)
    five.check_bookies(3, previous=Policy(ensemble_size=5))  # it needed as many before
    for previous in (None, Policy(ensemble_size=4)):
        with pytest.raises(FencelogError) as caught:
            five.check_bookies(3, previous)
        assert caught.value.code is ErrorCode.NOT_ENOUGH_BOOKIES
        assert caught.value.extra == {"field": "ensemble_size", "registered_bookies": 3}


def test_every_setting_can_be_changed_over_http() -> None:
    from fencelog.api.admin.settings import Settings

    assert set(Settings.model_fields) == {field.name for field in fields(Policy)}
