"""The four types, case by case: what each of them promises, and at what limits they stop."""

from __future__ import annotations

import pytest

from fencelog.broker.dispatch import base as dispatch_base
from fencelog.broker.dispatch.key_shared import KeySharedDispatch
from fencelog.broker.dispatch.shared import SharedDispatch
from fencelog.broker.registry.subscription_config import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.dispatch_world import LEASE_S, World

A, B, C = "a", "b", "c"


def world(kind: str, keys: str = "....", **config: object) -> World:
    """A subscription over messages with these keys; ``.`` is none."""
    made = World(kind, **{"backoff_min_ms": 1000, "backoff_max_ms": 4000, **config})
    for key in keys:
        made.append(None if key == "." else key.encode())
    return made


# -- exclusive and failover ----------------------------------------------------------------------


def test_exclusive_refuses_others_while_its_consumer_is_there() -> None:
    w = world(EXCLUSIVE)
    assert w.pull(A, 2) == [0, 1]
    for ask in (lambda: w.pull(B), lambda: w.dispatch.is_ready(B, w.now, w.tail)):
        with pytest.raises(FencelogError) as caught:
            ask()
        assert caught.value.code is ErrorCode.SUBSCRIPTION_BUSY
    assert w.dispatch.next_change(B, w.now) == LEASE_S
    w.pass_time(LEASE_S)
    assert w.pull(B) == [0, 1, 2, 3]
    assert w.cursor.failures == {0: 1}  # the others were only behind it


def test_failover_lines_up_and_the_oldest_takes_over() -> None:
    w = world(FAILOVER)
    assert w.pull(A, 1) == [0]
    w.pass_time(1)
    assert w.pull(B) == []
    w.pass_time(1)
    assert w.pull(C) == []
    w.pass_time(LEASE_S - 2)  # A is gone
    w.refresh()
    assert not w.dispatch.is_ready(C, w.now, w.tail)
    assert w.dispatch.next_change(C, w.now) == LEASE_S + 1  # B's turn
    assert w.pull(C) == []
    assert w.dispatch.is_ready(B, w.now, w.tail)
    assert w.pull(B) == [0, 1, 2, 3]
    assert w.pull(A) == []


def test_a_consumer_that_waits_keeps_its_place() -> None:
    w = world(FAILOVER)
    w.pull(A, 1)
    w.ack([0])
    w.pull(B)
    w.consumers.waits(A, 1)
    w.consumers.waits(B, 1)
    w.pass_time(5 * LEASE_S)
    assert not w.dispatch.is_ready(B, w.now, w.tail)
    assert w.pull(B) == []
    assert w.pull(A) == [1, 2, 3]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_whatever_fails_everything_comes_again_in_order(kind: str) -> None:
    w = world(kind)
    assert w.pull(A) == [0, 1, 2, 3]
    w.ack([1])
    w.nack([2], 0.0)
    assert w.pull(A) == [0, 2, 3]
    assert w.cursor.failures == {2: 1}
    w.nack([0])  # after its backoff
    assert w.pull(A) == []
    assert w.dispatch.next_change(A, w.now) == 1
    w.pass_time(1)
    assert w.pull(A, 1) == [0]
    assert w.pull(A, 1) == [2]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_what_was_not_used_comes_again_at_once_and_has_not_failed(kind: str) -> None:
    w = world(kind)
    assert w.pull(A) == [0, 1, 2, 3]
    w.ack([1])
    w.release([2, 3])
    assert w.pull(A) == ([0, 2, 3] if w.is_ordered else [2, 3])
    assert w.cursor.failures == {}


def test_a_change_of_consumers_begins_at_the_first_unacknowledged() -> None:
    w = world(FAILOVER)
    w.pull(A, 3)
    w.ack([0, 2])
    w.pass_time(1)
    w.pull(B)
    w.pass_time(LEASE_S - 1)
    assert w.pull(B) == [1, 3]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_what_is_acknowledged_before_its_pull_is_cancelled_comes_no_more(kind: str) -> None:
    """As by a time to live."""
    w = world(kind, "kkl.")
    found = w.pull(A, 3)
    w.ack([0])
    w.dispatch.give_back(found)
    w.held.clear()
    assert w.pull(A) == [1, 2, 3]


def test_messages_that_were_not_handed_out_after_all_come_first() -> None:
    for kind in (EXCLUSIVE, SHARED, KEY_SHARED):
        w = world(kind, "kkl.")
        found = w.pull(A, 3)
        w.dispatch.give_back(found)
        w.held.clear()
        assert w.pull(A) == [0, 1, 2, 3]
        assert not w.cursor.failures


# -- shared --------------------------------------------------------------------------------------


def test_shared_gives_each_message_to_one_consumer() -> None:
    w = world(SHARED)
    assert w.pull(A, 2) == [0, 1]
    assert w.pull(B) == [2, 3]
    assert w.dispatch.next_change(B, w.now) == LEASE_S
    assert not w.dispatch.is_ready(B, w.now, w.tail)
    w.ack([0])
    w.pass_time(LEASE_S)
    assert w.pull(B) == [1, 2, 3]
    assert w.cursor.failures == {1: 1, 2: 1, 3: 1}


def test_what_was_refused_comes_after_its_backoff_before_what_is_new() -> None:
    w = world(SHARED)
    for backoff in (1, 2, 4, 4):
        assert w.pull(A, 1) == [0]
        w.nack([0])
        assert w.dispatch.next_change(A, w.now) == w.now + backoff
        w.pass_time(backoff)
    w.pull(A, 1)
    w.nack([0], 0.0)
    assert w.pull(A, 2) == [0, 1]
    assert w.cursor.failures == {0: 5}


def test_a_message_is_kept_until_its_time_and_holds_nobody_up() -> None:
    w = World(SHARED)
    w.append(due=5.0)
    w.append()
    assert w.pull(A) == [1]
    assert w.dispatch.delayed == {0: 5.0}
    assert w.dispatch.next_change(A, 0.0) == 5.0
    w.pass_time(5)
    assert w.dispatch.is_ready(B, w.now, w.tail)
    assert w.pull(B) == [0]


def test_times_of_messages_that_were_acknowledged_do_not_pile_up() -> None:
    w = world(SHARED, "." * 300)
    found = w.pull(A, 300)
    w.nack(found[:1], 500.0)
    w.nack(found[1:], 1000.0)
    w.ack(found[1:])
    w.append()
    w.pull(A)
    w.nack([300], 700.0)
    assert w.dispatch.next_change(A, w.now) == 500
    assert isinstance(w.dispatch, SharedDispatch)
    assert sorted(offset for _, offset in w.dispatch._times) == [0, 300]
    w.ack([0])
    assert w.dispatch.next_change(A, w.now) == 700
    w.pass_time(700)
    assert w.pull(A) == [300]


def test_no_more_than_so_many_are_with_consumers() -> None:
    w = world(SHARED, max_outstanding=3)
    assert w.pull(A) == [0, 1, 2]
    assert w.pull(B) == []
    w.ack([1])
    assert w.pull(B) == [3]


def test_failed_too_often_goes_to_the_dead_letters() -> None:
    for kind in (EXCLUSIVE, SHARED, KEY_SHARED):
        w = world(kind, "kkl", max_deliveries=2)
        w.pull(A)
        w.nack([0], 0.0)
        w.pass_time(LEASE_S)
        w.pull(A)
        assert w.forwarded == set()
        w.nack([0], 0.0)
        assert w.dispatch.dead_letters == {0}
        w.refresh()
        assert w.forwarded == {0}
        w.drain()


def test_a_takeover_knows_what_failed_too_often() -> None:
    w = world(SHARED, max_deliveries=1)
    w.pull(A, 1)
    w.nack([0], 0.0)
    w.confirm()
    w.take_over(0)
    assert w.pull(A) == [1, 2, 3]
    assert w.forwarded == {0}


# -- limits --------------------------------------------------------------------------------------


def test_too_many_holes_stop_what_is_new_until_they_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_base, "MAX_ACK_RANGES", 2)
    w = world(SHARED, "." * 8)
    assert w.pull(A, 6) == [0, 1, 2, 3, 4, 5]
    w.ack([1, 3])
    assert w.pull(A) == []
    w.pass_time(LEASE_S)
    assert w.pull(A) == [0, 2, 4, 5]
    w.ack([2])
    assert w.pull(A) == [6, 7]
    w.drain()


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED, FAILOVER])
def test_too_many_holes_are_filled_after_a_takeover(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The next owner has delivered nothing yet, and finds the ranges."""
    monkeypatch.setattr(dispatch_base, "MAX_ACK_RANGES", 2)
    w = world(kind, "." * 8)
    assert w.pull(A, 6) == [0, 1, 2, 3, 4, 5]
    w.ack([1, 3])
    w.confirm()
    w.take_over(0)
    assert w.dispatch.is_ready(A, w.now, w.tail)
    assert w.pull(A) == [0, 2]
    assert w.pull(A) == []
    w.ack([2])
    assert w.pull(A) == [4, 5, 6, 7]
    w.drain()


def test_too_many_that_wait_stop_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_base, "MAX_HELD_MESSAGES", 2)
    w = World(KEY_SHARED)
    for key in (b"k", b"k", b"k", b"k", None):
        w.append(key)
    assert w.pull(A, 1) == [0]
    assert w.pull(B) == []  # looks at 1 and 2, and no further
    assert not w.dispatch.is_ready(B, w.now, w.tail)
    assert w.pull(A, 2) == [1, 2]
    assert w.pull(B) == [4]
    w.ack([0])
    assert w.pull(A) == [3]
    w.drain()


# -- key-shared ----------------------------------------------------------------------------------


def test_a_key_stays_with_its_consumer_until_nothing_of_it_is_out() -> None:
    w = world(KEY_SHARED, "klkl.")
    assert w.pull(A, 1) == [0]
    assert w.pull(B) == [1, 3, 4]
    assert w.pull(A) == [2]
    w.append(b"k")
    assert w.pull(B) == []
    w.ack([0])
    assert w.pull(B) == []
    w.ack([2])
    assert w.pull(B) == [5]


def test_an_earlier_message_of_a_key_holds_later_ones_up_and_no_others() -> None:
    w = world(KEY_SHARED, "kkl")
    assert w.pull(A) == [0, 1, 2]
    w.nack([0], 5.0)
    w.append(b"k")
    assert w.pull(A) == []  # 0 backs off, 1 is still out
    w.pass_time(5)
    assert w.pull(B) == []
    assert w.pull(A) == []
    w.ack([1])
    assert w.pull(B) == [0, 3]
    w.ack([2])
    w.nack([0, 3], 1.0)
    w.pass_time(1)
    assert w.pull(A) == [0, 3]


def test_one_that_is_due_takes_its_place_among_its_key() -> None:
    w = World(KEY_SHARED)
    w.append(b"k", due=5.0)
    w.append(b"k")
    w.append(b"k")
    assert w.pull(A, 1) == [1]
    w.pass_time(5)
    assert w.pull(B) == []
    w.ack([1])
    assert w.pull(B) == [0, 2]


def test_waiting_messages_of_many_keys_fill_a_pull_up_to_its_limit() -> None:
    w = world(KEY_SHARED, "kkkllmm" + "..")
    found = w.pull(A)
    w.nack(found, 0.0)
    assert w.pull(B, 4) == [0, 1, 2, 3]
    assert w.pull(B, 1) == [4]
    w.ack([5, 7])  # they wait
    assert w.pull(B, 9) == [6, 8]


def test_long_keys_are_told_apart() -> None:
    w = World(KEY_SHARED)
    for key in (b"x" * 100 + b"1", b"x" * 100 + b"2", b"x" * 100 + b"1"):
        w.append(key)
    assert w.pull(A, 1) == [0]
    assert w.pull(B) == [1]
    assert w.pull(A) == [2]
    w.ack([0, 1, 2])
    assert isinstance(w.dispatch, KeySharedDispatch)
    assert not w.dispatch._keys
    assert not w.dispatch._bound
