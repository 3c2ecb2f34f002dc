"""When ledgers are looked at, who is accused, and what is verified; bits and their bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.recent.core import (
    Look,
    Pauses,
    RecentLedgers,
    TrackedLedger,
    VerifiedLedgers,
    after_look,
)
from fencelog.ledgers.metastore.port import Version

PAUSES = Pauses(interval_s=60.0, settle_s=15.0, last_s=600.0)
V0, V1 = Version(7, 0), Version(7, 1)
B1, B2 = frozenset({"b1"}), frozenset({"b2"})


def look(
    version: Version = V0,
    *,
    closed: bool = False,
    missing: frozenset[str] = frozenset(),
    unknown: frozenset[str] = frozenset(),
) -> Look:
    return Look(version, closed, 0, missing, unknown)


def recent(most: int = 1000) -> RecentLedgers:
    return RecentLedgers(PAUSES, most=most)


def test_a_closed_ledger_that_is_whole_is_never_looked_at_again() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    assert ledgers.take(9, 0.0) == [1]
    assert ledgers.looked(1, look(closed=True), is_watched=False, now=0.0) == frozenset()
    ledgers.listed([1], are_new=True, now=60.0)
    assert ledgers.next_due(60.0) is None
    assert 1 in ledgers.verified
    assert ledgers.verified.changed == {0}


def test_an_open_ledger_that_is_watched_is_looked_at_when_it_has_changed() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    ledgers.take(9, 0.0)
    ledgers.looked(1, look(), is_watched=True, now=0.0)
    assert ledgers.next_due(1e9) is None
    assert not ledgers.changed(1, V0, 5.0), "the first value of the watch"
    assert ledgers.changed(1, V1, 100.0)
    assert ledgers.next_due(100.0) == 115.0
    assert ledgers.take(9, 114.0) == []
    assert ledgers.take(9, 115.0) == [1]
    assert 1 not in ledgers.verified


def test_a_change_during_a_look_is_not_lost() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    ledgers.take(9, 0.0)
    ledgers.changed(1, V1, 0.1)
    ledgers.looked(1, look(V0), is_watched=True, now=0.2)
    assert ledgers.next_due(0.2) == 15.2
    assert ledgers.take(9, 20.0) == [1]
    ledgers.looked(1, look(V1), is_watched=True, now=20.0)
    assert ledgers.next_due(20.0) is None


def test_an_open_ledger_that_is_not_watched_is_read_again_at_every_interval() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    ledgers.take(9, 0.0)
    ledgers.looked(1, look(), is_watched=False, now=0.0)
    assert ledgers.next_due(0.0) == 60.0


def test_only_what_is_missing_twice_is_accused() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    ledgers.take(9, 0.0)
    assert ledgers.looked(1, look(missing=B1), is_watched=False, now=0.0) == frozenset()
    assert ledgers.lacking(9) == [1]
    assert ledgers.take(9, 14.9) == []
    assert ledgers.take(9, 15.0) == [1]
    assert ledgers.looked(1, look(missing=B1 | B2), is_watched=False, now=15.0) == B1
    assert ledgers.take(9, 30.0) == [1], "another bookie was seen for the first time"
    assert ledgers.looked(1, look(missing=B2), is_watched=False, now=30.0) == B2


def test_what_arrives_between_two_looks_is_not_accused() -> None:
    first, _ = after_look(
        TrackedLedger(0.0), look(missing=B1), pauses=PAUSES, is_watched=False, now=0.0
    )
    assert first is not None
    after, accused = after_look(first, look(closed=True), pauses=PAUSES, is_watched=False, now=15.0)
    assert (after, accused) == (None, frozenset())


def test_a_ledger_that_was_accused_is_looked_at_until_it_is_whole() -> None:
    tracked, now, pauses = TrackedLedger(0.0), 0.0, []
    for _ in range(8):
        after, _ = after_look(
            tracked, look(closed=True, missing=B1), pauses=PAUSES, is_watched=False, now=now
        )
        assert after is not None
        assert after.due is not None
        pauses.append(after.due - now)
        tracked, now = after, after.due
    assert pauses == [15, 60, 120, 240, 480, 600, 600, 600]
    assert after_look(tracked, look(closed=True), pauses=PAUSES, is_watched=False, now=now) == (
        None,
        frozenset(),
    )


def test_who_could_not_tell_is_asked_again_later_and_soon_when_it_is_back() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    ledgers.take(9, 0.0)
    assert not ledgers.looked(1, look(closed=True, unknown=B1), is_watched=False, now=0.0)
    assert 1 not in ledgers.verified
    assert ledgers.next_due(0.0) == 60.0
    assert ledgers.take(9, 60.0) == [1]
    assert not ledgers.looked(1, look(closed=True, unknown=B1), is_watched=False, now=60.0)
    assert ledgers.next_due(60.0) == 180.0
    assert not ledgers.returned(["b2"], 70.0)
    assert ledgers.returned(["b1", "b2"], 70.0)
    assert ledgers.next_due(70.0) == 85.0


def test_new_ledgers_come_before_old_ones_and_the_newest_old_one_first() -> None:
    ledgers = recent()
    ledgers.listed([1, 2, 3], are_new=False, now=0.0)
    ledgers.listed([1, 2, 3, 4, 5], are_new=True, now=0.0)
    assert ledgers.take(3, 0.0) == [4, 5, 3]
    assert ledgers.has_backlog
    assert ledgers.next_due(0.0) == 0.0
    assert ledgers.take(3, 0.0) == [2, 1]
    assert not ledgers.has_backlog


def test_a_look_that_failed_is_due_again() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    assert ledgers.take(9, 0.0) == [1]
    assert ledgers.next_due(0.0) == 60.0
    ledgers.put_off(1, 60.0)
    assert ledgers.next_due(60.0) == 120.0


def test_a_deleted_ledger_is_forgotten() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    ledgers.listed([2], are_new=True, now=0.0)
    ledgers.forget(1)
    assert ledgers.next_due(0.0) == 0.0
    assert ledgers.take(9, 0.0) == [2]
    ledgers.forget(2)
    assert ledgers.next_due(0.0) is None
    assert not ledgers.changed(1, None, 0.0)


def test_more_ledgers_than_are_tracked_are_found_by_a_later_listing() -> None:
    ledgers = recent(most=2)
    ledgers.listed([1, 2, 3], are_new=True, now=0.0)
    assert ledgers.take(9, 0.0) == [1, 2]
    for ledger_id in (1, 2):
        ledgers.looked(ledger_id, look(closed=True), is_watched=False, now=0.0)
    ledgers.listed([1, 2, 3], are_new=True, now=60.0)
    assert ledgers.take(9, 60.0) == [3]


def test_entries_that_were_whole_are_remembered_while_a_ledger_is_open() -> None:
    ledgers = recent()
    ledgers.listed([1], are_new=True, now=0.0)
    ledgers.take(9, 0.0)
    assert ledgers.whole_below(1) == 0
    ledgers.looked(1, Look(V0, is_closed=False, settled=70), is_watched=True, now=0.0)
    assert ledgers.whole_below(1) == 70


def test_counts_say_what_is_open_lacking_and_late() -> None:
    ledgers = recent()
    ledgers.listed([1, 2, 3, 4], are_new=True, now=0.0)
    assert ledgers.counts(12.0)["behind_s"] == 12.0
    assert ledgers.take(3, 12.0) == [1, 2, 3]
    ledgers.looked(1, look(), is_watched=True, now=12.0)
    ledgers.looked(2, look(missing=B1), is_watched=True, now=12.0)
    ledgers.looked(3, look(closed=True), is_watched=True, now=12.0)
    assert ledgers.counts(20.0) == {
        "open_ledgers": 2,
        "missing_copies": 1,
        "ledgers_to_look_at": 1,
        "behind_s": 20.0,
    }


@given(st.sets(st.integers(0, 400_000)), st.sets(st.integers(0, 400_000)))
def test_bits_are_a_set_of_ids(ours: set[int], theirs: set[int]) -> None:
    one, other = VerifiedLedgers(), VerifiedLedgers()
    for ledger_id in ours:
        one.add(ledger_id)
    for ledger_id in theirs:
        other.add(ledger_id)
    for directory in other.changed:
        one.merge(directory, other.directory(directory))
    tried = ours | theirs | {ledger_id + 1 for ledger_id in ours | theirs}
    assert {ledger_id for ledger_id in tried if ledger_id in one} == ours | theirs
    assert one.changed == {ledger_id >> 16 for ledger_id in ours}


@dataclass
class World:
    """One ledger by a naive definition: the copies that bookies have, and when they are missed."""

    missing: set[str] = field(default_factory=set)
    version: int = 0
    is_closed: bool = False


@given(st.data())
def test_every_loss_is_accused_in_time_and_nothing_else(data: st.DataObject) -> None:
    """Whatever changes between looks, a copy that stays away is accused within an interval and two
    settling times of the last change, and a copy that is there at any look since is not."""
    ledgers, world, now = recent(), World(), 0.0
    ledgers.listed([1], are_new=True, now=now)
    away_since: dict[str, float] = {}
    changed_at = 0.0
    at_last_look: set[str] = set()
    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from([0.5, 5.0, 15.0, 40.0]))
        event = data.draw(st.sampled_from(["loss", "arrival", "close", "nothing", "nothing"]))
        if event == "loss" and not world.is_closed:
            bookie = data.draw(st.sampled_from(["b1", "b2"]))
            world.missing.add(bookie)
            away_since.setdefault(bookie, now)
            world.version += 1  # an ensemble change made these entries settled
            changed_at = now
        elif event == "arrival":
            world.missing.clear()
            away_since.clear()
        elif event == "close" and not world.is_closed and 1 not in ledgers.verified:
            world.is_closed, world.version, changed_at = True, world.version + 1, now
        ledgers.changed(1, Version(7, world.version), now)
        for ledger_id in ledgers.take(9, now):
            version = Version(7, world.version)
            seen = frozenset(world.missing)
            found = Look(version, world.is_closed, 0, missing=seen)
            accused = ledgers.looked(ledger_id, found, is_watched=True, now=now)
            assert accused <= seen & at_last_look
            at_last_look = set(seen)
            if world.is_closed and not seen:
                assert 1 in ledgers.verified
                return
        assert not (world.is_closed and 1 in ledgers.verified)
    # From here on nothing happens any more: what is away is accused.
    settled = max([now, changed_at])
    accused_in_the_end: set[str] = set()
    while (due := ledgers.next_due(now)) is not None and due <= settled + 60.0 + 2 * 15.0 + 600.0:
        now = max(now, due)
        for ledger_id in ledgers.take(9, now):
            found = Look(
                Version(7, world.version), world.is_closed, 0, missing=frozenset(world.missing)
            )
            accused_in_the_end |= ledgers.looked(ledger_id, found, is_watched=True, now=now)
        if not world.missing or world.missing <= accused_in_the_end:
            break
    assert world.missing <= accused_in_the_end
