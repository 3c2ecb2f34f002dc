"""What the next cut of retention waits for, and that it agrees with what retention deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.log.next_cut_core import Holder, NextCut, next_cut
from fencelog.broker.log.retention_core import Extent, trimmable
from fencelog.broker.policy import Policy
from tests.broker.log.test_retention_core import MS, NOW_US, THREE, ledger_list_of, present

OPEN = ledger_list_of(*THREE, open_base=-1)
WRITTEN = present(30, 5, 50)


def cut(
    policy: Policy,
    *,
    ledger_list: LedgerList = OPEN,
    written: Extent | None = WRITTEN,
    unacked: int | None = None,
) -> NextCut:
    return next_cut(ledger_list, written, policy, now_us=NOW_US, unacknowledged=unacked)


def test_without_bounds_everything_is_kept() -> None:
    assert cut(Policy()) == NextCut(Holder.SETTINGS, 1, 10)


def test_a_trimmed_ledger_goes_next_whatever_the_settings() -> None:
    trimmed = ledger_list_of(*THREE, open_base=-1, start=10)
    assert cut(Policy(), ledger_list=trimmed) == NextCut(Holder.NOTHING, 1, 10)


def test_an_old_ledger_goes_next_unless_a_subscription_needs_it() -> None:
    policy = Policy(retention_ms=40)
    assert cut(policy).held_by is Holder.NOTHING
    assert cut(policy, unacked=9) == NextCut(Holder.SUBSCRIPTION, 1, 10)
    assert cut(policy, unacked=10).held_by is Holder.NOTHING


def test_a_young_ledger_is_due_at_its_age() -> None:
    assert cut(Policy(retention_ms=60)) == NextCut(Holder.RETENTION, 1, 10, due_us=NOW_US + 10 * MS)


def test_a_ledger_waits_for_the_bytes_after_it() -> None:
    assert cut(Policy(retention_bytes=300)) == NextCut(Holder.RETENTION, 1, 10, bytes_to_come=50)
    assert cut(Policy(retention_bytes=250)).held_by is Holder.NOTHING


@pytest.mark.parametrize("policy", [Policy(retention_ms=40), Policy(retention_bytes=250)])
def test_a_ledger_waits_for_the_compacted_view(policy: Policy) -> None:
    assert cut(replace(policy, compaction_ms=1)) == NextCut(Holder.COMPACTION, 1, 10)


def test_a_young_ledger_that_is_not_compacted_waits_for_its_age_first() -> None:
    found = cut(Policy(compaction_ms=1, retention_ms=60, retention_bytes=1000))
    assert found == NextCut(Holder.RETENTION, 1, 10, NOW_US + 10 * MS, 750)


def test_the_last_ledger_stays() -> None:
    lone = ledger_list_of((10, 100, 50))
    policy = Policy(retention_ms=1)
    assert cut(policy, ledger_list=lone, written=None) == NextCut(Holder.LAST)
    ended = ledger_list_of((10, 100, 50), terminated=True)
    assert cut(policy, ledger_list=ended, written=None).held_by is Holder.NOTHING
    empty = LedgerList(epoch=1, terminated=True)
    assert cut(policy, ledger_list=empty, written=None) == NextCut(Holder.LAST)
    rolling = ledger_list_of(open_base=-1)
    assert cut(policy, ledger_list=rolling) == NextCut(Holder.LAST)


@given(
    retention_ms=st.none() | st.integers(1, 100),
    retention_bytes=st.none() | st.integers(1, 500),
    unacked=st.none() | st.integers(0, 35),
    compacts=st.booleans(),
)
def test_nothing_holds_exactly_what_retention_deletes(
    retention_ms: int | None, retention_bytes: int | None, unacked: int | None, compacts: bool
) -> None:
    policy = Policy(
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        compaction_ms=1 if compacts else None,
    )
    gone = trimmable(OPEN, WRITTEN, policy, now_us=NOW_US, unacknowledged=unacked)
    assert (cut(policy, unacked=unacked).held_by is Holder.NOTHING) == (1 in gone)
