"""The choice of moves: each brings bookies closer, none worsens the spread, and they come to an
end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencelog.bookie.balance.core import BalanceVerdict, Fills, MovePlanner, shares, stored_bytes
from fencelog.bookie.replication.store import FragmentMove
from fencelog.ledgers.format.run import ENTRY_HEADER
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.transitions import with_replaced_bookie
from fencelog.ledgers.placement.core import spread_of
from fencelog.ledgers.rpc.bookie_port import BookieInfo

END_SHARE = 0.1


def ledger(
    ledger_id: int,
    bookies: str = "a b c",
    *,
    size: int = 1_000,
    last: int = 9,
    write_quorum: int | None = None,
    then: Iterable[tuple[int, str]] = (),
) -> LedgerMetadata:
    """Return a closed ledger whose entries have so many bytes, with their headers."""
    ensemble = tuple(bookies.split())
    metadata = new_metadata(
        ledger_id,
        ensemble=ensemble,
        write_quorum=write_quorum or len(ensemble),
        ack_quorum=1,
        token="t",
    )
    for first, others in then:
        metadata = metadata.with_ensemble(first, tuple(others.split()))
    return metadata.closed(last_entry_id=last, length=size - ENTRY_HEADER.size * (last + 1))


def infos(names: str, **changes: BookieInfo) -> dict[str, BookieInfo]:
    return {name: changes.get(name, BookieInfo(name, "1")) for name in names.split()}


def fills_of(bookies: Mapping[str, BookieInfo], ledgers: Iterable[LedgerMetadata]) -> Fills:
    stored = Counter[str]()
    for metadata in ledgers:
        stored.update(stored_bytes(metadata))
    return Fills(bookies, stored)


def planner_of(
    bookies: Mapping[str, BookieInfo],
    ledgers: list[LedgerMetadata],
    *,
    most: int = 100,
    most_bytes: int = 1 << 60,
    avoid: Iterable[tuple[int, int, str]] = (),
) -> MovePlanner:
    planner = MovePlanner(
        fills_of(bookies, ledgers),
        most=most,
        most_bytes=most_bytes,
        end_share=END_SHARE,
        avoid=set(avoid),
    )
    for metadata in ledgers:
        planner.offer(metadata)
    return planner


# -- what bookies have -----------------------------------------------------------------------------


def test_a_ledger_counts_by_its_length_and_the_share_of_each_bookie() -> None:
    assert stored_bytes(ledger(1)) == {"a": 1_000, "b": 1_000, "c": 1_000}
    striped = ledger(2, "a b c d", write_quorum=2)
    assert stored_bytes(striped) == dict.fromkeys("abcd", 500)
    changed = ledger(3, then=[(4, "a d c")])
    assert stored_bytes(changed) == {"a": 1_000, "b": 400, "c": 1_000, "d": 600}


def test_ledgers_without_a_known_length_count_nothing() -> None:
    is_open = new_metadata(1, ensemble=("a",), write_quorum=1, ack_quorum=1, token="t")
    assert list(shares(is_open)) == []
    assert list(shares(is_open.in_recovery())) == []
    assert list(shares(is_open.closed(last_entry_id=-1, length=0))) == []
    empty_end = replace(ledger(2), fragments=(Fragment(0, ("a",)), Fragment(10, ("b",))))
    assert [share.first_entry_id for share in shares(empty_end)] == [0]


def test_the_mean_and_the_distance_are_those_of_bookies_that_count() -> None:
    read_only = BookieInfo("e", "1", is_read_only=True)
    fills = fills_of(infos("a b c d e", e=read_only), [ledger(1)])
    assert (fills.mean, fills.distance) == (750.0, 1_000.0)
    assert (fills.fullest, fills.takers) == ("c", ["d", "a", "b", "c"])
    assert Fills({}, {}).distance == Fills({}, {}).mean == 0.0
    assert Fills(infos("a"), {}).verdict(above_share=0.1) is BalanceVerdict.EVEN


def test_bytes_are_weighted_by_the_size_of_disks_if_all_state_it() -> None:
    large = BookieInfo("a", total_bytes=4_000)
    small = BookieInfo("b", total_bytes=1_000)
    stored = {"a": 400, "b": 100}
    assert Fills({"a": large, "b": small}, stored).distance == 0.0
    assert Fills({"a": large, "b": BookieInfo("b")}, stored).distance == 300.0


def test_a_small_distance_is_no_reason_to_begin() -> None:
    fills = Fills(infos("a b"), {"a": 110, "b": 90})
    assert fills.verdict(above_share=0.2) is BalanceVerdict.EVEN
    assert fills.verdict(above_share=0.1) is BalanceVerdict.UNEVEN


def test_nothing_is_moved_while_a_bookie_that_has_copies_is_away() -> None:
    fills = fills_of(infos("a b d"), [ledger(1)])
    assert fills.verdict(above_share=0.2) is BalanceVerdict.ABSENT


# -- one move --------------------------------------------------------------------------------------


def test_the_fullest_member_gives_to_the_emptiest_bookie() -> None:
    ledgers = [ledger(1), ledger(2, "a b d")]
    planner = planner_of(infos("a b c d e"), ledgers, most=1)
    assert planner.planned == {1: (FragmentMove(0, "a", "e"),)}
    assert planner.planned_bytes == 1_000
    assert planner.is_done


def test_no_more_is_planned_than_was_asked_for() -> None:
    ledgers = [ledger(n) for n in range(1, 21)]
    bookies = infos("a b c d e")
    assert len(planner_of(bookies, ledgers, most=3).planned) == 3
    assert len(planner_of(bookies, ledgers, most_bytes=2_500).planned) == 3
    assert len(planner_of(bookies, ledgers, most_bytes=1).planned) == 1


def test_a_fragment_that_is_larger_than_the_distance_stays() -> None:
    assert planner_of(infos("a b"), [ledger(1, "a")]).planned == {}
    assert planner_of(infos("a b"), [ledger(1, "a"), ledger(2, "a")]).planned == {
        1: (FragmentMove(0, "a", "b"),)
    }


def test_a_target_takes_adds_is_no_member_and_has_space() -> None:
    ledgers = [ledger(n, "a") for n in range(4)]
    read_only = BookieInfo("b", "1", is_read_only=True)
    assert planner_of(infos("a b", b=read_only), ledgers).planned == {}
    full = BookieInfo("b", "1", free_bytes=1_500)
    assert len(planner_of(infos("a b", b=full), ledgers).planned) == 1
    members = [ledger(n, "a b") for n in range(2)] + [ledger(n, "a") for n in range(2, 4)]
    assert planner_of(infos("a b"), members).planned == {2: (FragmentMove(0, "a", "b"),)}


def test_a_read_only_bookie_gives() -> None:
    read_only = BookieInfo("a", "1", is_read_only=True)
    assert (
        len(planner_of(infos("a b", a=read_only), [ledger(n, "a") for n in range(4)]).planned) == 2
    )


def test_a_move_that_was_dropped_is_left_out() -> None:
    ledgers = [ledger(n) for n in range(2)]
    planner = planner_of(infos("a b c d"), ledgers, avoid=[(0, 0, "a"), (0, 0, "b")], most=2)
    assert planner.planned[0] == (FragmentMove(0, "c", "d"),)


def test_a_write_set_does_not_end_in_fewer_racks() -> None:
    racks = {"a": "r1", "b": "r1", "c": "r2", "d": "r1"}
    bookies = {name: BookieInfo(name, "1", rack) for name, rack in racks.items()}
    ledgers = [ledger(n) for n in range(6)]
    moves = [move for some in planner_of(bookies, ledgers).planned.values() for move in some]
    assert len(moves) > 1
    assert {move.bookie_id for move in moves} <= {"a", "b"}, "c is the only one of its rack"
    bookies["d"] = BookieInfo("d", "1", "r2")
    moves = [move for some in planner_of(bookies, ledgers).planned.values() for move in some]
    assert {move.bookie_id for move in moves} == {"a", "b", "c"}


def test_a_fragment_of_an_unknown_bookie_stays() -> None:
    planner = planner_of(infos("a b c d"), [ledger(n, "a b x") for n in range(4)])
    assert planner.planned == {}


# -- many moves ------------------------------------------------------------------------------------

NAMES = tuple("abcdefg")


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, BookieInfo], list[LedgerMetadata]]:
    names = NAMES[: draw(st.integers(2, len(NAMES)))]
    has_sizes = draw(st.booleans())
    bookies = {
        name: BookieInfo(
            name,
            "1",
            rack=draw(st.sampled_from(("r1", "r1", "r2", "r3"))),
            total_bytes=draw(st.integers(10_000, 90_000)) if has_sizes else 0,
            free_bytes=draw(st.sampled_from((0, 0, 0, 5_000))),
            is_read_only=draw(st.integers(0, 5)) == 0,
        )
        for name in names
    }
    size = draw(st.integers(1, min(4, len(names))))
    ledgers = []
    for ledger_id in range(draw(st.integers(1, 15))):
        write_quorum = draw(st.integers(1, size))
        chosen = st.permutations(names).map(lambda order: " ".join(order[:size]))
        then = [(5, draw(chosen))] if draw(st.booleans()) else []
        ledgers.append(
            ledger(
                ledger_id,
                draw(chosen),
                size=draw(st.integers(400, 9_000)),
                write_quorum=write_quorum,
                then=then,
            )
        )
    return bookies, ledgers


def potential(fills: Fills) -> Fraction:
    """Return the sum of the squares of what bookies have, weighted by their size."""
    has_sizes = all(info.total_bytes > 0 for info in fills.bookies.values())
    return sum(
        (
            Fraction(stored * stored, fills.bookies[b].total_bytes if has_sizes else 1)
            for b, stored in fills.stored.items()
        ),
        Fraction(0),
    )


def moved(metadata: LedgerMetadata, move: FragmentMove) -> LedgerMetadata:
    """Return the metadata after a move. The real step of the worker refuses what is not valid."""
    fragment = metadata.fragment_of(move.first_entry_id)
    following = [
        f.first_entry_id for f in metadata.fragments if f.first_entry_id > move.first_entry_id
    ]
    changed = with_replaced_bookie(
        metadata,
        first_entry_id=move.first_entry_id,
        last_entry_id=min(following) - 1 if following else metadata.last_entry_id,
        index=fragment.bookies.index(move.bookie_id),
        old=move.bookie_id,
        new=move.target,
    )
    assert changed is not None
    return changed


def check_round(
    bookies: Mapping[str, BookieInfo], ledgers: dict[int, LedgerMetadata], planner: MovePlanner
) -> None:
    """Apply a plan move by move, and check each of them."""
    for ledger_id, moves in planner.planned.items():
        for move in moves:
            before = fills_of(bookies, ledgers.values())
            old = ledgers[ledger_id].fragment_of(move.first_entry_id).bookies
            ledgers[ledger_id] = moved(ledgers[ledger_id], move)
            after = fills_of(bookies, ledgers.values())
            assert potential(after) < potential(before)
            assert after.fill(move.bookie_id) >= after.fill(move.target) * (1 - 1e-12)
            assert max(map(after.fill, bookies)) <= max(map(before.fill, bookies))
            assert not bookies[move.target].is_read_only
            new = ledgers[ledger_id].fragment_of(move.first_entry_id).bookies
            was, now = (
                spread_of([bookies[b].rack for b in members], ledgers[ledger_id].write_quorum)
                for members in (old, new)
            )
            assert now[0] >= was[0]
            assert now[1] >= was[1]


@settings(max_examples=150)
@given(clusters(), st.integers(1, 5), st.sampled_from((1, 3_000, 1 << 40)))
def test_moves_bring_bookies_closer_and_come_to_an_end(
    cluster: tuple[dict[str, BookieInfo], list[LedgerMetadata]], most: int, most_bytes: int
) -> None:
    bookies, found = cluster
    ledgers = {metadata.ledger_id: metadata for metadata in found}
    seen = set[str]()
    for _ in range(400):
        state = tuple(ledgers.values())
        assert str(state) not in seen, "a state has come back"
        seen.add(str(state))
        planner = planner_of(bookies, list(state), most=most, most_bytes=most_bytes)
        assert len(planner.planned) <= most
        if not planner.planned:
            return
        largest = max(share.share_bytes for metadata in state for share in shares(metadata))
        fragments = max(len(moves) for moves in planner.planned.values())
        assert planner.planned_bytes <= most_bytes + fragments * largest
        check_round(bookies, ledgers, planner)
        told = fills_of(bookies, ledgers.values())
        assert planner.fills.stored == told.stored
    raise AssertionError("moves without end")


@settings(max_examples=25)
@given(st.integers(3, 5), st.integers(1, 4), st.integers(20, 60), st.integers(300, 4_000))
def test_added_bookies_end_as_full_as_the_others(
    old: int, added: int, count: int, size: int
) -> None:
    names = [f"b{n}" for n in range(old + added)]
    bookies = infos(" ".join(names))
    ledgers = {
        n: ledger(n, " ".join(names[i % old] for i in range(n, n + 3)), size=size)
        for n in range(count)
    }
    for _ in range(1_000):
        planner = planner_of(bookies, list(ledgers.values()), most=10)
        if not planner.planned:
            break
        check_round(bookies, ledgers, planner)
    fills = fills_of(bookies, ledgers.values())
    assert fills.distance <= max(END_SHARE * fills.mean, 2 * size)


@pytest.mark.parametrize("most", [1, 7])
def test_moves_take_little_more_than_what_the_new_bookies_lack(most: int) -> None:
    bookies, ledgers = infos("a b c d e"), {n: ledger(n) for n in range(100)}
    bytes_moved = 0
    while (planner := planner_of(bookies, list(ledgers.values()), most=most)).planned:
        bytes_moved += planner.planned_bytes
        check_round(bookies, ledgers, planner)
    assert bytes_moved <= 2 * 60_000 + 2 * 1_000
    fills = fills_of(bookies, ledgers.values())
    assert fills.distance <= END_SHARE * fills.mean
