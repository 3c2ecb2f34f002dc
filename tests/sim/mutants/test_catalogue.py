"""Every mutant against the code as it is now."""

from __future__ import annotations

import pytest

from tests.sim.mutants.catalogue import MUTANTS, UNIT_MUTANTS
from tests.sim.mutants.mutation import Mutant, applied


@pytest.mark.parametrize("one", [*MUTANTS, *UNIT_MUTANTS], ids=lambda one: one.name)
def test_every_mutant_fits_the_code(one: Mutant) -> None:
    with applied(one):
        pass


def test_mutants_have_names_rules_and_descriptions() -> None:
    names = [one.name for one in MUTANTS]
    assert len(set(names)) == len(names) >= 60
    assert [one.name for one in MUTANTS if not one.name.replace("-", "").isalnum()] == []
    assert [one.name for one in MUTANTS if not one.rule or not one.what.endswith(".")] == []
    assert [
        one.name for one in MUTANTS if any("fencelog." not in e.module for e in one.edits)
    ] == []


def test_no_two_mutants_are_the_same() -> None:
    assert len({one.edits for one in MUTANTS}) == len(MUTANTS)
