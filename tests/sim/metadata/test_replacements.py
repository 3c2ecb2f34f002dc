"""Tests of the check of replaced bookies."""

from __future__ import annotations

from dataclasses import replace

from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata, LedgerState
from tests.sim.metadata.replacements import check_replacement
from tests.sim.oracle.history import History

_BEFORE = LedgerMetadata(
    7,
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(0, ("b1", "b2")),),
    token="",
    state=LedgerState.CLOSED,
    last_entry_id=1,
    length=2,
)
_NOW = replace(_BEFORE, fragments=(Fragment(0, ("b1", "b3")),))


def _moved(history: History) -> list[str]:
    history.causes[7, "b2"] = {"balance"}
    check_replacement(history, _BEFORE, _NOW, 0)
    return history.violations


def test_a_bookie_that_gave_a_ledger_up_has_to_be_given_it_again() -> None:
    history = History()
    target = history.bookie("b3")
    target.entries = {(7, 0): 1, (7, 1): 2}
    assert _moved(history) == []
    target.forget(7)
    target.listed.add((7, 1))
    assert "ledger 7 names b3 for entry 0, which it never had" in _moved(history)[0]
    assert len(history.violations) == 1
