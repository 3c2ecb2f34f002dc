"""Decommissions: what forbids them, what remains, and how they are stored."""

from __future__ import annotations

import json

import pytest

from fencelog.bookie.auditor.decommission_core import (
    MAX_NAMED_LEDGERS,
    Decommission,
    Demand,
    Phase,
    Remainder,
    decode_decommission,
    encode_decommission,
    refusal,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata


def ledger(ledger_id: int, ensemble: str = "b1 b2 b3", write_quorum: int = 3) -> LedgerMetadata:
    return new_metadata(
        ledger_id,
        ensemble=tuple(ensemble.split()),
        write_quorum=write_quorum,
        ack_quorum=2,
        token="t",
    )


def refused(*ledgers: LedgerMetadata, remaining: dict[str, str], own_rack: str = "x") -> str | None:
    demand = Demand()
    for metadata in ledgers:
        demand.add(metadata, "b1", remaining)
    return refusal("b1", demand, remaining, own_rack=own_rack, min_racks=2)


def test_a_bookie_may_leave_where_others_take_its_place() -> None:
    assert refused(ledger(1), remaining={"b2": "x", "b3": "x", "b4": "x"}) is None
    assert refused(remaining={}) is None, "an empty cluster needs none"


def test_ensembles_have_to_fit() -> None:
    why = refused(ledger(1, "b2 b3 b4"), remaining={"b2": "x", "b3": "x"})
    assert why is not None
    assert "ledgers on 3 bookies, and without b1 only 2 take adds" in why


def test_the_largest_ledger_counts_whichever_is_read_last() -> None:
    wide, narrow = ledger(1, "b2 b3 b4"), ledger(2, "b2 b3", 2)
    for ledgers in ((wide, narrow), (narrow, wide)):
        why = refused(*ledgers, remaining={"b2": "x", "b3": "x"})
        assert why is not None
        assert "ledgers on 3 bookies" in why


def test_an_earlier_fragment_needs_a_bookie_too() -> None:
    demand = Demand()
    moved_on = ledger(1, "b1 b2 b3").with_ensemble(5, ("b2", "b3", "b4"))
    demand.add(moved_on, "b1", {"b2", "b3"})
    assert demand.irreplaceable == [1]


def test_each_fragment_needs_a_bookie_that_is_not_in_it() -> None:
    """Three take adds, which is enough for new ledgers; but one of them may be read-only and in
    the ensemble, so that no one is left for this fragment."""
    remaining = {"b2": "x", "b3": "x", "b4": "x"}
    ledgers = [ledger(n, "b1 b2 b3 b4") for n in range(1, MAX_NAMED_LEDGERS + 3)]
    demand = Demand()
    for metadata in ledgers:
        demand.add(metadata, "b1", remaining)
    assert demand.irreplaceable == list(range(1, MAX_NAMED_LEDGERS + 1))
    demand.ensemble_size = 3
    why = refusal("b1", demand, remaining, own_rack="x", min_racks=2)
    assert why is not None
    assert why.startswith("no bookie could take the copies that b1 has of ledgers 1, 2, 3")


def test_the_last_bookie_of_a_needed_rack_stays() -> None:
    why = refused(ledger(1, "b2 b3 b4"), remaining={"b2": "y", "b3": "y", "b4": "y"})
    assert why is not None
    assert "1 of the 2 racks" in why
    assert refused(ledger(1), remaining={"b2": "x", "b3": "x", "b4": "x"}) is None
    assert refused(ledger(1), remaining={"b2": "y", "b3": "y", "b4": "y"}, own_rack="") is None
    single = ledger(1, "b2 b3 b4", 2)
    assert refused(single, remaining={"b2": "y", "b3": "z", "b4": "y"}) is None


def test_a_remainder_counts_fragments_and_names_ledgers() -> None:
    remainder = Remainder(5)
    assert remainder.is_empty
    assert not Remainder(5, unreadable=1).is_empty
    two = ledger(1).with_ensemble(4, ("b2", "b4", "b3")).with_ensemble(7, ("b1", "b4", "b3"))
    remainder = remainder.with_ledger(two, "b1").with_ledger(ledger(2, "b2 b3 b4"), "b1")
    remainder = remainder.with_ledger(ledger(3).closed(last_entry_id=1, length=1), "b1")
    assert remainder == Remainder(5, 3, 2, 1, 0, (1, 3))
    assert not remainder.is_empty
    for ledger_id in range(10, 100):
        remainder = remainder.with_ledger(ledger(ledger_id), "b1")
    assert len(remainder.first) == MAX_NAMED_LEDGERS
    assert remainder.ledgers == 92


@pytest.mark.parametrize("remainder", [None, Remainder(7, 3, 2, 1, 0, (1, 3))])
def test_a_node_is_read_as_it_was_written(remainder: Remainder | None) -> None:
    job = Decommission("b1", 5, Phase.REMOVING, True, "ab" * 16, remainder)
    assert decode_decommission("/p", encode_decommission(job)) == job
    assert json.loads(encode_decommission(job))["phase"] == "removing"


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"v": 2}', b'{"v": 1, "remainder": 5}'])
def test_anything_else_is_refused(value: bytes) -> None:
    with pytest.raises(FencelogError, match="/p is not valid") as caught:
        decode_decommission("/p", value)
    assert caught.value.code is ErrorCode.CORRUPT
