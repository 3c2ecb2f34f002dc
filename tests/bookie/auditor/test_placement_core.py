"""The placement policy: no rack has all copies of an entry while there are others."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.auditor.placement_core import (
    PoorFragment,
    needed_racks,
    placement_violations,
    poor_fragments,
)
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.quorum import write_set

NAMES = [f"b{n}" for n in range(1, 7)]


def ledger(size: int, copies: int, *, last: int | None = 9) -> LedgerMetadata:
    metadata = new_metadata(
        1, ensemble=tuple(NAMES[:size]), write_quorum=copies, ack_quorum=1, token="t"
    )
    return metadata if last is None else metadata.closed(last_entry_id=last, length=0)


def test_every_write_set_counts() -> None:
    metadata = ledger(4, 2)
    racks = {"b1": "x", "b2": "y", "b3": "y", "b4": "x", "b5": "x"}
    assert list(poor_fragments(metadata, racks, min_racks=2)) == [
        PoorFragment(0, ("b2", "b3"), ("y",), 2)
    ]
    (violation,) = placement_violations(metadata, racks, min_racks=2)
    assert violation.detail == ("fragment at 0: b2, b3 are in rack y alone, 2 racks are possible")


def test_more_racks_may_be_asked_for() -> None:
    metadata = ledger(3, 3)
    racks = {"b1": "x", "b2": "y", "b3": "y", "b4": "z"}
    assert list(poor_fragments(metadata, racks, min_racks=2)) == []
    (poor,) = poor_fragments(metadata, racks, min_racks=3)
    assert (poor.racks, poor.needed) == (("x", "y"), 3)
    (violation,) = placement_violations(metadata, racks, min_racks=3)
    assert "in racks x, y alone, 3 racks are possible" in violation.detail


def test_fragments_without_entries_violate_nothing() -> None:
    metadata = ledger(3, 3, last=None).with_ensemble(5, ("b2", "b3", "b4"))
    racks = {"b1": "y", "b2": "x", "b3": "x", "b4": "x"}
    assert [p.first_entry_id for p in poor_fragments(metadata, racks, min_racks=2)] == [5]
    closed = metadata.closed(last_entry_id=4, length=0)
    assert list(poor_fragments(closed, racks, min_racks=2)) == []


def test_single_copies_and_single_racks_violate_nothing() -> None:
    assert list(poor_fragments(ledger(3, 1), dict.fromkeys(NAMES, "x"), min_racks=2)) == []
    assert list(poor_fragments(ledger(3, 3), dict.fromkeys(NAMES, "x"), min_racks=2)) == []
    assert needed_racks(["x", "y", "y"], write_quorum=3, min_racks=5) == 2


def test_write_sets_with_a_bookie_of_unknown_rack_are_left_out() -> None:
    racks = {"b1": "x", "b2": "x", "b4": "y"}
    assert list(poor_fragments(ledger(3, 2), racks, min_racks=2)) == [
        PoorFragment(0, ("b1", "b2"), ("x",), 2)
    ]


@given(st.data())
def test_no_accusation_holds_for_some_racks_alone(data: st.DataObject) -> None:
    """Whatever the racks of bookies that are not registered: the violation is one."""
    size = data.draw(st.integers(1, 5))
    metadata = ledger(size, data.draw(st.integers(1, size)))
    racks = data.draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from("xyz")))
    unknown = [name for name in NAMES[:size] if name not in racks]
    for poor in poor_fragments(metadata, racks, min_racks=2):
        for guess in product("xyz", repeat=len(unknown)):
            full = {**racks, **dict(zip(unknown, guess, strict=True))}
            members = {full[bookie] for bookie in poor.crowded}
            assert len(members) < poor.needed


@given(st.data())
def test_violations_are_those_of_some_write_set(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5))
    copies = data.draw(st.integers(1, size))
    metadata = ledger(size, copies)
    racks = dict(
        zip(NAMES, data.draw(st.lists(st.sampled_from("xy"), min_size=6, max_size=6)), strict=True)
    )
    poorest = min(
        len({racks[NAMES[i]] for i in write_set(start, ensemble_size=size, write_quorum=copies)})
        for start in range(size)
    )
    needed = min(len(set(racks.values())), copies, 2)
    assert len(list(poor_fragments(metadata, racks, min_racks=2))) == (poorest < needed)
