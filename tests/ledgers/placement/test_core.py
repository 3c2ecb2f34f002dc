"""Weights, racks and quarantine as pure decisions, against naive definitions."""

from __future__ import annotations

import random  # noqa: TID251 - seeded, so that a failure can be repeated
from collections import Counter
from functools import cache
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.placement.core import (
    FIRST_QUARANTINE_S,
    FORGET_S,
    LAST_RESORT_S,
    MAX_QUARANTINE_S,
    MAX_WEIGHT_RATIO,
    Quarantine,
    after_failure,
    choose_ensemble,
    choose_replacement,
    is_as_spread,
    weights,
)
from fencelog.ledgers.rpc.bookie_port import BookieInfo

ALMOST_ONE = 1.0 - 2.0**-53
FRACTIONS = st.floats(0.0, ALMOST_ONE)


def bookies_in(racks: str, free: dict[str, int] | None = None) -> list[BookieInfo]:
    """One bookie for each letter, in the rack of that name: a0, b1, a2 for "aba"."""
    sizes = free or {}
    names = [f"{rack}{number}" for number, rack in enumerate(racks)]
    return [BookieInfo(name, "1", name[0], sizes.get(name, 0)) for name in names]


def racks_in_poorest_write_set(racks: tuple[str, ...], write_quorum: int) -> int:
    size = len(racks)
    return min(
        len({racks[(first + k) % size] for k in range(write_quorum)}) for first in range(size)
    )


@cache
def best_possible(racks: tuple[str, ...], count: int, write_quorum: int) -> int:
    """Find the best possible ensemble by trying every choice in every order."""
    return max(
        racks_in_poorest_write_set(order, write_quorum) for order in set(permutations(racks, count))
    )


# -- weights -------------------------------------------------------------------------------------


def test_weights_are_free_bytes_within_bounds() -> None:
    free = {"a0": 100, "a1": 200, "a2": 100_000}
    assert weights(bookies_in("aaa", free)) == {"a0": 100, "a1": 200, "a2": 300}


def test_who_does_not_say_has_the_median() -> None:
    assert weights(bookies_in("aaaa", {"a0": 10, "a1": 20, "a2": 30})) == {
        "a0": 10,
        "a1": 20,
        "a2": 30,
        "a3": 20,
    }
    assert weights(bookies_in("aaa")) == {"a0": 1, "a1": 1, "a2": 1}
    assert weights([]) == {}


@given(st.lists(st.integers(-5, 2**60), min_size=1, max_size=20))
def test_weights_are_positive_and_their_ratio_is_bounded(free: list[int]) -> None:
    found = weights(BookieInfo(str(n), free_bytes=size) for n, size in enumerate(free)).values()
    assert min(found) > 0
    assert max(found) <= MAX_WEIGHT_RATIO * min(found)


def test_bookies_are_chosen_by_weight() -> None:
    chance = random.Random(7)
    bookies = bookies_in("aaaa", {"a0": 1000, "a1": 1000, "a2": 2000, "a3": 9_000_000})
    times = Counter[str]()
    for _ in range(7000):
        times += Counter(
            choose_ensemble(bookies, [], fractions=[chance.random()], start=chance.random())
        )
    expected = {"a0": 1000, "a1": 1000, "a2": 2000, "a3": 3000}
    assert all(0.85 < times[name] / count < 1.15 for name, count in expected.items()), times


# -- ensembles -----------------------------------------------------------------------------------


@given(
    st.text("abc", min_size=1, max_size=7),
    st.data(),
    st.lists(FRACTIONS, min_size=5, max_size=5),
    FRACTIONS,
)
def test_write_sets_lie_in_two_racks_wherever_that_is_possible(
    racks: str, data: st.DataObject, fractions: list[float], start: float
) -> None:
    count = data.draw(st.integers(1, min(5, len(racks))))
    chosen = choose_ensemble(bookies_in(racks), [], fractions=fractions[:count], start=start)
    assert len(set(chosen)) == count
    assert len({name[0] for name in chosen}) == min(count, len(set(racks)))
    found = tuple(name[0] for name in chosen)
    for write_quorum in range(2, count + 1):
        best = best_possible(tuple(sorted(racks)), count, write_quorum)
        assert racks_in_poorest_write_set(found, write_quorum) >= min(2, best)


@pytest.mark.parametrize(
    ("racks", "count", "write_quorum", "expected"),
    [
        ("aaabbbccc", 9, 3, 3),
        ("aabbcc", 6, 3, 3),
        ("aabbcc", 6, 2, 2),
        ("aaaaaabb", 8, 4, 2),
        ("aaaaaabc", 8, 4, 2),
        ("aaabbbc", 7, 2, 2),
        ("aaaaaaaaab", 3, 2, 1),
        ("aaaaaaaaab", 3, 3, 2),
        ("aaaa", 3, 3, 1),
    ],
)
def test_the_order_spreads_racks_around_the_ring(
    racks: str, count: int, write_quorum: int, expected: int
) -> None:
    for start in (0.0, 0.4, ALMOST_ONE):
        chosen = choose_ensemble(bookies_in(racks), [], fractions=[0.5] * count, start=start)
        found = tuple(name[0] for name in chosen)
        assert racks_in_poorest_write_set(found, write_quorum) == expected


@given(
    st.text("ab", max_size=6),
    st.text("ab", min_size=6, max_size=6),
    st.lists(FRACTIONS, min_size=1, max_size=6),
)
def test_others_come_only_after_all_that_are_preferred(
    preferred: str, others: str, fractions: list[float]
) -> None:
    suspects = [BookieInfo(f"x{n}", rack=rack) for n, rack in enumerate(others)]
    well = bookies_in(preferred)
    chosen = choose_ensemble(well, suspects, fractions=fractions, start=0.0)
    count = len(fractions)
    assert len(set(chosen)) == count
    assert sum(name.startswith("x") for name in chosen) == max(0, count - len(well))


def test_every_bookie_stands_at_every_place() -> None:
    """Readers ask the first one of a write set first: no bookie is the first for ever."""
    chance = random.Random(3)
    seen = {
        (place, name)
        for _ in range(300)
        for place, name in enumerate(
            choose_ensemble(
                bookies_in("aab"),
                [],
                fractions=[chance.random() for _ in range(3)],
                start=chance.random(),
            )
        )
    }
    assert len(seen) == 9


# -- replacements --------------------------------------------------------------------------------


@given(
    st.text("abc", min_size=2, max_size=6),
    st.text("abc", min_size=1, max_size=4),
    st.data(),
    FRACTIONS,
)
def test_a_replacement_is_as_good_as_the_best_candidate(
    ensemble: str, spare: str, data: st.DataObject, fraction: float
) -> None:
    index = data.draw(st.integers(0, len(ensemble) - 1))
    write_quorum = data.draw(st.integers(1, len(ensemble)))
    racks: list[str | None] = [*ensemble]
    racks[index] = None
    bookie = choose_replacement(
        racks, index, bookies_in(spare), write_quorum=write_quorum, fraction=fraction
    )
    assert bookie is not None
    found = {
        rack: racks_in_poorest_write_set((*ensemble[:index], rack, *ensemble[index + 1 :]), qw)
        for rack in spare
        for qw in [write_quorum]
    }
    assert found[bookie.rack] == max(found.values())


def test_a_replacement_helps_the_other_write_sets_where_the_poorest_cannot_be_helped() -> None:
    """The ring a a a ? with Qw = 2 keeps its first two write sets in one rack anyway."""
    candidates = bookies_in("aaaaab")
    for fraction in (0.0, 0.5, ALMOST_ONE):
        bookie = choose_replacement(
            ["a", "a", "a", None], 3, candidates, write_quorum=2, fraction=fraction
        )
        assert bookie is not None
        assert bookie.rack == "b"


def test_members_to_be_replaced_too_do_not_count() -> None:
    """The successor of the second one is not known yet, so a new rack is best."""
    bookie = choose_replacement(
        ["a", None, None], 1, bookies_in("ab"), write_quorum=3, fraction=0.0
    )
    assert bookie is not None
    assert bookie.rack == "b"


def test_without_a_candidate_there_is_no_replacement() -> None:
    assert choose_replacement(["a", None], 1, [], write_quorum=2, fraction=0.5) is None


def test_replacements_are_drawn_by_weight() -> None:
    chance = random.Random(5)
    candidates = bookies_in("aa", {"a0": 1, "a1": 2})
    times = Counter[str]()
    for _ in range(3000):
        bookie = choose_replacement(
            ["a", None], 1, candidates, write_quorum=2, fraction=chance.random()
        )
        assert bookie is not None
        times[bookie.bookie_id] += 1
    assert 1.7 < times["a1"] / times["a0"] < 2.35


@pytest.mark.parametrize(
    ("before", "after", "write_quorum", "expected"),
    [
        ("aabbc", "aaabc", 3, False),  # one write set ends in one rack, others gain as much
        ("aaab", "aaaa", 2, False),  # the poorest stays as it was, others lose
        ("aaab", "aaac", 2, True),
        ("aaaa", "aaab", 2, True),
    ],
)
def test_neither_the_poorest_write_set_nor_all_of_them_end_in_fewer_racks(
    before: str, after: str, write_quorum: int, expected: bool
) -> None:
    assert is_as_spread(before, after, write_quorum) == expected


# -- quarantine ----------------------------------------------------------------------------------


def test_a_first_failure_costs_little() -> None:
    assert after_failure(None, 100.0) == Quarantine(1, 101.0, 101.0)


def test_what_fails_together_is_one_failure() -> None:
    first = after_failure(None, 100.0)
    assert after_failure(first, 100.0) is first
    assert after_failure(first, 100.9) is first


def test_each_further_failure_doubles_it_to_a_limit() -> None:
    now, state, lengths, bars = 0.0, None, [], []
    for _ in range(2000):
        state = after_failure(state, now)
        lengths.append(state.until - now)
        bars.append(state.barred_until - now)
        now = state.until
    assert lengths[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    assert set(lengths[7:]) == {MAX_QUARANTINE_S}
    assert bars[:4] == [1.0, 2.0, 4.0, 5.0]
    assert set(bars[4:]) == {LAST_RESORT_S}


def test_a_failure_as_a_last_resort_counts() -> None:
    """A bookie may be tried while it is still in quarantine; failing then, it is barred again."""
    long = Quarantine(5, until=16.0, barred_until=5.0)
    assert after_failure(long, 5.0) == Quarantine(6, until=37.0, barred_until=10.0)


def test_a_time_without_failures_is_a_new_beginning() -> None:
    state = Quarantine(9, until=100.0, barred_until=50.0)
    assert not state.is_forgotten(100.0 + FORGET_S - 1)
    assert after_failure(state, 100.0 + FORGET_S - 1).failures == 10
    later = 100.0 + FORGET_S
    assert after_failure(state, later) == Quarantine(
        1, later + FIRST_QUARANTINE_S, later + FIRST_QUARANTINE_S
    )
