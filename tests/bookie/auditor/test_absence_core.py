"""Absences: a restart is none, however many bookies restart, and only what was seen counts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.auditor.absence_core import MAX_LOOK_GAP_S, Absences

ALL = ("b1", "b2", "b3")


def looked(absences: Absences, now: float, *present: str, session_id: int = 1) -> Absences:
    return absences.after_look(ALL, present, session_id=session_id, now=now)


def test_a_bookie_is_lost_after_the_grace_time() -> None:
    absences = looked(Absences(), 100.0, "b1", "b2")
    assert absences.lost(grace_s=50, now=149.0) == frozenset()
    assert absences.next_lost_at(grace_s=50, now=149.0) == 150.0
    absences = looked(absences, 125.0, "b1", "b2")
    absences = looked(absences, 150.0, "b1", "b2")
    assert absences.lost(grace_s=50, now=150.0) == {"b3"}
    assert absences.next_lost_at(grace_s=50, now=150.0) is None


def test_a_bookie_that_was_back_begins_anew() -> None:
    absences = looked(Absences(), 100.0, "b1", "b2")
    absences = looked(absences, 120.0, "b1", "b2")
    absences = looked(absences, 140.0, *ALL)
    absences = looked(absences, 145.0, "b1", "b2")
    assert absences.lost(grace_s=50, now=160.0) == frozenset()
    assert absences.since == {"b3": 145.0}


def test_several_that_are_absent_at_once_wait_as_long_as_one() -> None:
    absences = looked(Absences(), 0.0, "b1", "b2")
    absences = looked(absences, 30.0, "b1")
    assert absences.lost(grace_s=50, now=50.0) == {"b3"}
    assert absences.next_lost_at(grace_s=50, now=50.0) == 80.0


def test_the_clocks_begin_anew_with_another_session() -> None:
    """The store was away: all sessions may have ended with ours."""
    absences = looked(Absences(), 0.0, "b1", "b2")
    absences = looked(absences, 29.0, "b1", "b2")
    absences = looked(absences, 49.0, "b1", "b2", session_id=2)
    assert absences.lost(grace_s=50, now=60.0) == frozenset()


def test_the_clocks_begin_anew_after_a_time_without_looks() -> None:
    absences = looked(Absences(), 0.0, "b1", "b2")
    absences = looked(absences, MAX_LOOK_GAP_S + 1, "b1", "b2")
    assert absences.since == {"b3": MAX_LOOK_GAP_S + 1}
    absences = looked(absences, 2 * MAX_LOOK_GAP_S + 1, "b1", "b2")
    assert absences.since == {"b3": MAX_LOOK_GAP_S + 1}


def test_nothing_is_lost_by_a_look_of_long_ago() -> None:
    """An auditor that was suspended: the bookie may be back."""
    absences = looked(Absences(), 100.0, "b1", "b2")
    assert absences.lost(grace_s=5, now=100.0 + MAX_LOOK_GAP_S) == {"b3"}
    assert absences.lost(grace_s=5, now=100.1 + MAX_LOOK_GAP_S) == frozenset()


def test_no_grace_is_no_grace() -> None:
    assert looked(Absences(), 5.0, "b1").lost(grace_s=0, now=5.0) == {"b2", "b3"}


@given(st.floats(0, 1e6), st.floats(0, 1e4))
def test_a_bookie_is_lost_at_the_time_that_was_told(since: float, grace_s: float) -> None:
    """To the last bit: an auditor that waits until then must not find that it is too early."""
    absences = looked(Absences(), since, "b1", "b2")
    due = absences.next_lost_at(grace_s=grace_s, now=since) or since
    absences = replace(absences, seen_at=due)  # it has looked meanwhile
    assert absences.lost(grace_s=grace_s, now=due) == {"b3"}
