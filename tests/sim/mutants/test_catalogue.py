"""Every mutant against the code as it is now."""

from __future__ import annotations

import asyncio
import re
import ssl

import pytest

from tests.sim.mutants.catalogue import MUTANTS, UNIT_MUTANTS
from tests.sim.mutants.mutation import Mutant, applied
from tests.support.house import PACKAGES, ROOT


@pytest.mark.parametrize("one", [*MUTANTS, *UNIT_MUTANTS], ids=lambda one: one.name)
def test_every_mutant_fits_the_code(one: Mutant) -> None:
    with applied(one):
        pass


def test_mutants_have_names_rules_and_descriptions() -> None:
    names = [one.name for one in (*MUTANTS, *UNIT_MUTANTS)]
    assert len(set(names)) == len(names) >= 60
    assert [one.name for one in MUTANTS if not one.name.replace("-", "").isalnum()] == []
    assert [one.name for one in MUTANTS if not one.rule or not one.what.endswith(".")] == []
    assert [
        one.name for one in MUTANTS if any("fencelog." not in e.module for e in one.edits)
    ] == []


def test_no_two_mutants_are_the_same() -> None:
    assert len({one.edits for one in MUTANTS}) == len(MUTANTS)


def test_edits_name_nothing_that_the_code_no_longer_has() -> None:
    """One that does ends with an error instead of breaking its rule."""
    sources = [path for part in PACKAGES for path in (ROOT / part).rglob("*.py")]
    known = set(re.findall(r"\w+", "\n".join(path.read_text("utf-8") for path in sources)))
    known.update(*map(dir, (asyncio, ssl.SSLContext, set, str, bytes, list, dict)))
    unknown = {
        (one.name, name)
        for one in [*MUTANTS, *UNIT_MUTANTS]
        for edit in one.edits
        for name in re.findall(r"\.(_*[a-z]\w+)", re.sub(r'"[^"]*"', "", edit.new))
        if name not in known and f" {name} = " not in edit.new
    }
    assert unknown == set()
