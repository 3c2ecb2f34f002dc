"""Leases, the offsets that wait, and who asks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.dispatch import consumers as dispatch_consumers
from fencelog.broker.dispatch.consumers import ConsumerTable
from fencelog.broker.dispatch.leases import Leases
from fencelog.broker.dispatch.offsets import OffsetSet
from fencelog.ledgers.errors import ErrorCode, FencelogError

OFFSETS = st.sets(st.integers(0, 60), max_size=40)


def grant(leases: Leases, consumer: str, offsets: list[int], expires: float) -> None:
    leases.grant(consumer, 1, offsets, granted=expires - 10, expires=expires)


def test_what_is_left_of_a_lease_expires_together() -> None:
    leases = Leases()
    grant(leases, "a", [1, 2, 3], 10)
    grant(leases, "b", [7], 5)
    assert (len(leases), leases.next_expiry, leases.oldest()) == (4, 5, -5)
    assert leases.counts() == {"a": 3, "b": 1}
    ended = leases.end(2)
    assert ended is not None
    assert ended.consumer == "a"
    assert leases.end(2) is None
    assert leases.take_expired(4.9) == []
    assert leases.take_expired(10) == [1, 3, 7]
    assert (len(leases), leases.next_expiry, leases.oldest()) == (0, None, None)


def test_an_extended_message_stays_with_whom_it_was() -> None:
    leases = Leases()
    grant(leases, "a", [1, 2, 3], 10)
    grant(leases, "b", [4], 10)
    leases.extend([1, 3, 4], 20)
    assert leases.take_expired(15) == [2]
    assert [leases.by_offset[o].consumer for o in (1, 3, 4)] == ["a", "a", "b"]
    assert leases.next_expiry == 20
    leases.clear()
    assert leases.take_expired(99) == []


def test_the_messages_of_a_consumer_are_in_order() -> None:
    leases = Leases()
    for consumer, offsets in (("a", [7, 8]), ("b", [4]), ("a", [2])):
        grant(leases, consumer, offsets, 10)
    leases.end(8)
    assert [leases.of(consumer) for consumer in ("a", "b", "c")] == [[2, 7], [4], []]


def test_an_ended_lease_does_not_expire() -> None:
    leases = Leases()
    grant(leases, "a", [1], 10)
    grant(leases, "a", [2], 30)
    leases.end(1)
    assert leases.take_expired(20) == []
    assert leases.next_expiry == 30
    leases.end(2)
    assert leases.next_expiry is None


def test_ended_leases_do_not_pile_up() -> None:
    leases = Leases()
    grant(leases, "a", [0], 1000)
    for offset in range(1, 2000):
        grant(leases, "a", [offset], 1000 + offset)
        leases.end(offset)
    assert len(leases._heap) < 200
    assert leases.take_expired(5000) == [0]


def test_many_changes_leave_the_offsets_around_them() -> None:
    offsets = OffsetSet([5, 20, 30, 90])
    offsets.add([offset for offset in range(10, 51) if offset not in (20, 30)])
    assert offsets.first(99) == [5, *range(10, 51), 90]
    offsets.remove(range(11, 50))
    assert offsets.first(99) == [5, 10, 50, 90]
    offsets.remove(range(12, 49))  # there are none of these
    assert offsets.first(99) == [5, 10, 50, 90]


@given(OFFSETS, OFFSETS, OFFSETS, st.integers(0, 60), st.integers(0, 60))
def test_offsets_are_a_sorted_set(
    begin: set[int], added: set[int], removed: set[int], first: int, end: int
) -> None:
    offsets = OffsetSet(begin)
    offsets.add(added - begin)
    offsets.remove(removed)
    model = sorted((begin | added) - removed)
    assert offsets.first(5) == model[:5]
    assert offsets.first(100) == model
    assert len(offsets) == len(model)
    assert [o for o in range(70) if o in offsets] == model
    assert offsets.within(first, end) == [o for o in model if first <= o < end]


def test_many_offsets_come_and_go_together() -> None:
    offsets = OffsetSet([3, 1])
    offsets.add(range(10, 40))
    offsets.remove([*range(12, 40), 99])
    assert offsets.first(9) == [1, 3, 10, 11]


def test_a_consumer_is_there_for_its_lease_and_while_it_waits() -> None:
    consumers = ConsumerTable()
    consumers.arrive("a", 0, 10)
    consumers.arrive("b", 1, 31)
    consumers.waits("a", 1)
    consumers.waits("stranger", 1)
    consumers.touch("stranger", 0, 99)
    assert consumers.first(20) == "a"
    consumers.waits("a", -1)
    consumers.waits("a", -1)  # nothing says that it had begun
    assert consumers.first(20) == "b"
    assert consumers.first(31) is None
    consumers.arrive("b", 25, 28)
    assert consumers.by_name["b"].until == 31  # its first lease is longer
    assert consumers.by_name["b"].seen == 25
    consumers.forget_gone_first(20)
    assert list(consumers.by_name) == ["b"]
    consumers.forget_gone_first(40)
    assert consumers.by_name == {}
    assert consumers.there(0) == {}


def test_there_are_so_many_consumers_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_consumers, "MAX_CONSUMERS", 2)
    consumers = ConsumerTable()
    consumers.arrive("a", 0, 10)
    consumers.arrive("b", 0, 20)
    with pytest.raises(FencelogError) as caught:
        consumers.arrive("c", 5, 15)
    assert caught.value.code is ErrorCode.LIMIT_REACHED
    consumers.arrive("c", 12, 15)
    assert list(consumers.by_name) == ["b", "c"]
