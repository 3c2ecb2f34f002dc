"""Backlogs and quotas on sizes of ledgers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.log.backlog_core import bytes_from, published_about_us, quota_bound
from fencelog.broker.log.retention_core import Extent
from fencelog.broker.policy import Policy

PARTS = [Extent(0, 10, 100, 1), Extent(10, 20, 1000, 2), Extent(20, 20, 0, 2)]


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 1100), (5, 1050), (10, 1000), (15, 500), (20, 0), (30, 0)]
)
def test_bytes_are_spread_over_the_messages_of_a_ledger(offset: int, size: int) -> None:
    assert bytes_from(PARTS, offset) == size


@pytest.mark.parametrize(
    ("offset", "published_us"), [(0, 100), (5, 150), (10, 200), (15, 300), (19, 380), (20, None)]
)
def test_messages_are_spread_over_the_time_of_a_ledger(
    offset: int, published_us: int | None
) -> None:
    parts = [Extent(0, 10, 1, 200), Extent(10, 20, 1, 400), Extent(20, 20, 0, 400)]
    assert published_about_us(parts, offset, began_us=100) == published_us


def test_no_message_is_newer_than_the_last_of_its_ledger() -> None:
    """The clock of another owner began the ledger."""
    assert published_about_us([Extent(0, 10, 1, 200)], 5, began_us=900) == 200


@pytest.mark.parametrize(
    ("quota", "bound"), [(1100, 0), (1099, 1), (1050, 5), (1000, 10), (500, 15), (99, 20), (1, 20)]
)
def test_a_quota_in_bytes_is_a_place_in_the_log(quota: int, bound: int) -> None:
    policy = Policy(backlog_quota_bytes=quota)
    assert quota_bound(PARTS, policy, too_old_below=None) == bound


def test_the_stricter_of_two_quotas_holds() -> None:
    both = Policy(backlog_quota_bytes=1000, backlog_quota_ms=5)
    assert quota_bound(PARTS, both, too_old_below=15) == 15
    assert quota_bound(PARTS, both, too_old_below=3) == 10
    assert quota_bound(PARTS, Policy(backlog_quota_ms=5), too_old_below=3) == 3
    assert quota_bound(PARTS, Policy(), too_old_below=3) == 0


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 900)), max_size=6),
    quota=st.integers(1, 4000),
)
def test_what_is_left_fits_and_no_message_more_is_given_up(
    sizes: list[tuple[int, int]], quota: int
) -> None:
    parts, base = [], 0
    for messages, size in sizes:
        parts.append(Extent(base, base + messages, size, 0))
        base += messages
    bound = quota_bound(parts, Policy(backlog_quota_bytes=quota), too_old_below=None)
    assert bytes_from(parts, bound) <= quota
    if bound > 0:
        (part,) = [p for p in parts if p.base_offset < bound <= p.end_offset]
        behind = sum(p.size for p in parts if p.base_offset >= part.end_offset)
        messages = part.end_offset - part.base_offset
        one_more = part.size * (part.end_offset - bound + 1) / messages + behind
        assert one_more > quota
