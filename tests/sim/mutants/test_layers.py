"""The table of rules and who holds them."""

from __future__ import annotations

import pytest

from tests.sim.mutants.catalogue import MUTANTS, UNIT_MUTANTS
from tests.sim.mutants.layers import LAYERS, Verdict, rules_of, table
from tests.sim.mutants.unit_layer import TESTS, fails, forked


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("PROTOCOL.md rule 6", ("PROTOCOL.md rule 6",)),
        ("PROTOCOL.md rule 2; BK#4097", ("PROTOCOL.md rule 2",)),
        ("PROTOCOL.md rules 1 and 4", ("PROTOCOL.md rule 1", "PROTOCOL.md rule 4")),
        ("PROTOCOL.md rules 7, 9 and 10", tuple(f"PROTOCOL.md rule {n}" for n in (7, 9, 10))),
        ("STORAGE.md: journal; NATS", ("STORAGE.md: journal",)),
        ("STORAGE.md: journal; rule 6", ("PROTOCOL.md rule 6", "STORAGE.md: journal")),
        ("PROTOCOL.md rule 7; STORAGE.md: flush", ("PROTOCOL.md rule 7", "STORAGE.md: flush")),
        ("PROTOCOL.md: Metadata", ("PROTOCOL.md: Metadata",)),
        ("unknown is not no", ("unknown is not no",)),
    ],
)
def test_a_mutant_names_its_rules(text: str, rules: tuple[str, ...]) -> None:
    assert rules_of(text) == rules


def test_a_rule_that_one_layer_holds_alone_stands_out() -> None:
    verdicts = [
        Verdict("one", "a", "PROTOCOL.md rule 10", True),
        Verdict("one", "b", "PROTOCOL.md rule 9", True),
        Verdict("two", "c", "PROTOCOL.md rules 9 and 10", False),
        Verdict("two", "d", "PROTOCOL.md rule 9", True),
        Verdict("two", "e", "PROTOCOL.md rule 2", False),
    ]
    _, *rows = table(verdicts, ["one", "two"])
    assert [row.split()[2:] for row in rows] == [
        ["2", "-", "-", "NOBODY"],
        ["9", "1", "1"],
        ["10", "1", "-", "one", "alone"],
    ]


def test_what_unit_tests_see_are_mutants_each_once() -> None:
    names = [name for some in TESTS.values() for name in some]
    assert len(set(names)) == len(names)
    assert set(names) <= {mutant.name for mutant in (*MUTANTS, *UNIT_MUTANTS)}
    assert {mutant.name for mutant in UNIT_MUTANTS} <= set(names)


def test_two_layers_hold_every_rule() -> None:
    """Besides the simulator, which tries all of them."""
    tried = {name for some in TESTS.values() for name in some}
    assert {mutant.name for mutant in MUTANTS} <= tried


def test_layers_have_names() -> None:
    assert set(LAYERS) == {"small worlds", "crash images", "unit tests"}


def test_a_run_of_tests_that_breaks_off_catches_nothing() -> None:
    assert not fails("there is none of this name")


def test_mutants_are_judged_side_by_side_each_in_a_process_of_its_own() -> None:
    caught = TESTS["tests/ledgers/writer/test_core.py"][0]
    judged = dict(forked([caught, "there is none of this name"], 2))
    assert judged == {caught: True, "there is none of this name": False}
