"""The part of a log that may be removed, compared with a definition that looks at each message."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.ledger_list.ledger_list import Compacted, LedgerList, Sealed, Segment
from fencelog.broker.log.retention_core import (
    Extent,
    extents,
    is_roll_wanted,
    start_after_trim,
    trimmable,
)
from fencelog.broker.policy import Policy

MS = 1000
NOW_US = 1_000_000 * MS


def ledger_list_of(
    *ledgers: tuple[int, int, int],
    start: int = 0,
    open_base: int | None = None,
    terminated: bool = False,
) -> LedgerList:
    """Sealed ledgers 1, 2, … of (messages, bytes, age in ms); ``open_base``: one more is open."""
    base, segments = 0, []
    for number, (messages, size, age_ms) in enumerate(ledgers, start=1):
        sealed = Sealed(messages, messages, size, NOW_US - age_ms * MS, 0)
        segments.append(Segment(number, 0, base, sealed, 1))
        base += messages
    if open_base is not None:
        segments.append(Segment(len(segments) + 1, 0, base if open_base < 0 else None, None, 1))
    return LedgerList(epoch=1, segments=tuple(segments), start_offset=start, terminated=terminated)


def present(base: int, messages: int, size: int, age_ms: int = 0) -> Extent:
    return Extent(base, base + messages, size, NOW_US - age_ms * MS)


def gone(
    ledger_list: LedgerList, now: Extent | None, policy: Policy, unacked: int | None = None
) -> list[int]:
    found = trimmable(ledger_list, now, policy, now_us=NOW_US, unacknowledged=unacked)
    return list(found)


THREE = ((10, 100, 50), (10, 100, 30), (10, 100, 10))


def test_nothing_goes_where_nothing_is_bounded() -> None:
    assert gone(ledger_list_of(*THREE, open_base=-1), present(30, 1, 10), Policy()) == []


def test_ledgers_go_whose_newest_message_has_expired() -> None:
    ledger_list = ledger_list_of(*THREE, open_base=-1)
    assert gone(ledger_list, present(30, 1, 10), Policy(retention_ms=20)) == [1, 2]
    assert gone(ledger_list, present(30, 1, 10), Policy(retention_ms=30)) == [1]
    assert gone(ledger_list, present(30, 1, 10, 5), Policy(retention_ms=1)) == [1, 2, 3]


def test_ledgers_go_that_are_followed_by_as_much_as_is_kept() -> None:
    ledger_list = ledger_list_of(*THREE, open_base=-1)
    assert gone(ledger_list, present(30, 5, 50), Policy(retention_bytes=150)) == [1, 2]
    assert gone(ledger_list, present(30, 5, 49), Policy(retention_bytes=150)) == [1]
    assert gone(ledger_list, present(30, 5, 50), Policy(retention_bytes=50)) == [1, 2, 3]


def compacted_to(ledger_list: LedgerList, end_offset: int) -> LedgerList:
    return ledger_list.with_compacted(Compacted((9,), end_offset, 1, 1, 0))


def test_nothing_goes_before_the_compacted_view_has_it() -> None:
    policy = Policy(retention_ms=1, retention_bytes=1, compaction_ms=1, trim_unacknowledged=True)
    ledger_list, now = ledger_list_of(*THREE, open_base=-1), present(30, 5, 50)
    assert gone(ledger_list, now, policy) == []
    assert gone(compacted_to(ledger_list, 19), now, policy) == [1]
    assert gone(compacted_to(ledger_list, 20), now, policy) == [1, 2]
    assert gone(compacted_to(ledger_list, 35), now, policy) == [1, 2, 3]
    assert gone(ledger_list.with_start(20), now, policy) == [
        1,
        2,
    ]  # nobody could read them any more
    assert gone(ledger_list, now, replace(policy, compaction_ms=None)) == [1, 2, 3]


def test_a_roll_waits_until_compaction_has_begun_with_the_ledger() -> None:
    policy = Policy(retention_bytes=50, compaction_ms=1)
    ledger_list, now = ledger_list_of(*THREE, open_base=-1), present(30, 5, 50)

    def wanted(ledger_list: LedgerList) -> bool:
        return is_roll_wanted(ledger_list, now, policy, now_us=NOW_US, unacknowledged=None)

    assert not wanted(ledger_list)
    assert not wanted(compacted_to(ledger_list, 30))
    assert wanted(compacted_to(ledger_list, 31))


def test_a_prefix_goes_and_never_a_ledger_behind_one_that_stays() -> None:
    ledger_list = ledger_list_of((10, 100, 1), (10, 100, 50), open_base=-1)
    assert gone(ledger_list, present(20, 0, 0), Policy(retention_ms=20)) == []


def test_what_is_not_sealed_stays() -> None:
    segments = ledger_list_of(*THREE).segments
    rolling = (*segments[:1], Segment(2, 0, 10, None, 1), Segment(3, 0, None, None, 1))
    ledger_list = LedgerList(epoch=1, segments=rolling)
    assert gone(ledger_list, present(10, 1, 1, 99), Policy(retention_ms=1)) == [1]
    assert [part.end_offset for part in extents(ledger_list, None)] == [10]


def test_the_last_ledger_stays_unless_the_log_is_terminated() -> None:
    policy = Policy(retention_ms=1)
    assert gone(ledger_list_of(*THREE), None, policy) == [1, 2]
    assert gone(ledger_list_of(*THREE, terminated=True), None, policy) == [1, 2, 3]


def test_what_a_subscription_still_has_to_see_stays() -> None:
    ledger_list, policy = ledger_list_of(*THREE, open_base=-1), Policy(retention_ms=1)
    now = present(30, 1, 1)
    assert gone(ledger_list, now, policy, 19) == [1]
    assert gone(ledger_list, now, policy, 20) == [1, 2]
    assert gone(ledger_list, now, policy, 0) == []
    taking = Policy(retention_ms=1, trim_unacknowledged=True)
    assert gone(ledger_list, now, taking, 0) == [1, 2, 3]


def test_what_nobody_can_read_goes_whatever_the_policy_says() -> None:
    ledger_list = ledger_list_of(*THREE, open_base=-1, start=25)
    assert gone(ledger_list, present(30, 1, 1), Policy(), 25) == [1, 2]


def test_a_trim_stops_at_the_tail_and_at_the_slowest_subscription() -> None:
    taking = Policy(trim_unacknowledged=True)
    assert start_after_trim(9, 20, unacknowledged=None, policy=Policy()) == 9
    assert start_after_trim(9, 20, unacknowledged=5, policy=Policy()) == 5
    assert start_after_trim(9, 20, unacknowledged=5, policy=taking) == 9
    assert start_after_trim(30, 20, unacknowledged=None, policy=Policy()) == 20


def test_the_present_ledger_is_followed_by_another_when_all_in_it_may_go() -> None:
    def wanted(
        now: Extent | None, policy: Policy, *, start: int = 0, un: int | None = None
    ) -> bool:
        ledger_list = ledger_list_of((10, 100, 50), open_base=-1, start=start)
        return is_roll_wanted(ledger_list, now, policy, now_us=NOW_US, unacknowledged=un)

    aged, sized = Policy(retention_ms=20), Policy(retention_bytes=100)
    assert not wanted(None, aged)
    assert not wanted(present(10, 0, 0, 99), aged)
    assert wanted(present(10, 1, 1, 21), aged)
    assert not wanted(present(10, 1, 1, 20), aged)
    assert not wanted(present(10, 1, 1, 21), aged, un=10)
    assert wanted(present(10, 1, 1, 21), aged, un=11)
    assert wanted(present(10, 1, 100), sized)
    assert not wanted(present(10, 1, 99), sized)
    assert not wanted(present(10, 1, 99), Policy())
    assert wanted(present(10, 1, 1), Policy(), start=11)


ledger = st.tuples(st.integers(1, 9), st.integers(0, 500), st.integers(0, 60))


@given(
    ledgers=st.lists(ledger, min_size=1, max_size=8),
    retention_ms=st.none() | st.integers(1, 60),
    retention_bytes=st.none() | st.integers(1, 2000),
    start=st.integers(0, 30),
    unacked=st.none() | st.integers(0, 60),
    takes=st.booleans(),
    terminated=st.booleans(),
)
def test_against_a_definition_by_messages(
    ledgers: list[tuple[int, int, int]],
    retention_ms: int | None,
    retention_bytes: int | None,
    start: int,
    unacked: int | None,
    takes: bool,
    terminated: bool,
) -> None:
    """A message may go if nobody can read it, or if it is old, or has enough behind its ledger,
    and nobody waits for it. A ledger goes if all its messages, and all before it, may."""
    ages = sorted((age for *_, age in ledgers), reverse=True)
    shaped = [(m, size, age) for (m, size, _), age in zip(ledgers, ages, strict=True)]
    messages = sum(m for m, *_ in shaped)
    start = min(start, messages)
    unacked = None if unacked is None else max(start, min(unacked, messages))
    policy = Policy(
        retention_ms=retention_ms, retention_bytes=retention_bytes, trim_unacknowledged=takes
    )
    ledger_list = ledger_list_of(*shaped, start=start, terminated=terminated)

    def may_go(offset: int, age_ms: int, behind: int) -> bool:
        if offset < start:
            return True
        held = unacked is not None and offset >= unacked and not takes
        old = retention_ms is not None and age_ms > retention_ms
        far = retention_bytes is not None and behind >= retention_bytes
        return (old or far) and not held

    expected, base = [], 0
    for number, (count, _, age_ms) in enumerate(shaped, start=1):
        behind = sum(size for _, size, _ in shaped[number:])
        if not all(may_go(offset, age_ms, behind) for offset in range(base, base + count)):
            break
        base += count
        expected.append(number)
    if not terminated and len(expected) == len(shaped):
        expected.pop()
    assert gone(ledger_list, None, policy, unacked) == expected
