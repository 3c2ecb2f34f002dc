"""The mutation engine on a small module."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from types import ModuleType

import pytest

from tests.sim.mutants.mutation import MutationError, applied
from tests.sim.mutants.sample import NAME, SAMPLE, mutant


def test_a_function_is_changed_for_everyone_who_imported_it_and_restored(
    sample: ModuleType,
) -> None:
    imported_elsewhere = sample.is_enough
    with applied(mutant(("is_enough", ">=", ">"))):
        assert not imported_elsewhere(2)
        assert sample.is_enough is imported_elsewhere
    assert imported_elsewhere(2)


CASES = [
    ("method", ("Account.pay", "+= amount", "-= amount"), "a.pay(5)", 5, -5),
    ("super", ("Account.name", '"!"', '"?"'), "a.name()", "base!", "base?"),
    ("private name", ("Account.secret", "+ 1", "+ 2"), "a.secret()", 8, 9),
    ("property", ("Account.doubled", "* 2", "* 4 + 1"), "a.doubled", 0, 1),
    ("cached property", ("Account.tripled", "* 3", "* 3 + 1"), "a.tripled", 0, 1),
    ("class method", ("Account.called", " class", ""), "a.called()", "Account class", "Account"),
    ("static method", ("Account.sign", "> 0", ">= 0"), "a.sign(0)", -1, 1),
    ("coroutine", ("Account.later", '"later"', '"now"'), "run(a.later())", "later", "now"),
    ("nested function", ("make_adder.add", "+ step", "- step"), "m.make_adder(2)(5)", 7, 3),
    ("nested in a method", ("Account.counter.count", "+ 10", "+ 20"), "a.counter()()", 10, 20),
    ("frozen dataclass", ("Point.moved", "+ by", "- by"), "m.Point(3).moved(1).x", 4, 2),
    ("decorated", ("opened", '"open"', '"shut"'), "m.opened().__enter__()", "open", "shut"),
]


@pytest.mark.parametrize(
    ("edit", "expression", "right", "wrong"),
    [case[1:] for case in CASES],
    ids=[c[0] for c in CASES],
)
def test_every_kind_of_function_can_be_changed(
    sample: ModuleType, edit: tuple[str, str, str], expression: str, right: object, wrong: object
) -> None:
    def value() -> object:
        names = {"m": sample, "a": sample.Account(), "run": asyncio.run}
        return eval(expression, names)

    assert value() == right
    with applied(mutant(edit)):
        assert value() == wrong
    assert value() == right


def test_several_edits_are_one_mutant(sample: ModuleType) -> None:
    edits = (
        ("Account.pay", "+= amount", "-= amount"),
        ("Account.pay", "return self.total", "return -self.total + 1"),
        ("is_enough", ">=", ">"),
    )
    with applied(mutant(*edits)):
        assert sample.Account().pay(5) == 6
        assert not sample.is_enough(2)
    assert sample.Account().pay(5) == 5
    assert sample.is_enough(2)


def test_mutants_may_lie_in_one_another(sample: ModuleType) -> None:
    with applied(mutant(("is_enough", ">=", ">"))):
        with applied(mutant(("Account.sign", "> 0", ">= 0"))):
            assert (sample.is_enough(2), sample.Account.sign(0)) == (False, 1)
        assert (sample.is_enough(2), sample.Account.sign(0)) == (False, -1)


REFUSED = [
    ("text not there", ("is_enough", "<=", "<"), "found 0 times"),
    ("text there twice", ("Account.pay", "total", "sum"), "found 2 times"),
    ("text elsewhere in the module", ("is_enough", "self.total", "0"), "found 0 times"),
    ("no such function", ("is_enough_for", ">=", ">"), "there are 0 such functions"),
    ("no such nested function", ("make_adder.sub", "+", "-"), "there are 0 such functions"),
    ("defined twice", ("Odd.twice", "return 1", "return 2"), "there are 2 such functions"),
    ("assigned only", ("Odd.borrowed", "base", "odd"), "there are 0 such functions"),
    ("not Python", ("is_enough", "return", "retrun"), "does not compile"),
    ("another closure", ("Account.pay", "self.total\n", "__class__\n"), "of what is around it"),
    ("a name of another module", ("is_enough", ">= limit", ">= inf"), "inf is no name of"),
    ("such a name within", ("make_adder.add", "+ step", "+ floor(step)"), "floor is no name of"),
    ("no change", ("is_enough", ">= limit", ">= (limit)"), "changes nothing"),
    ("a default", ("is_enough", "limit: int = 2", "limit: int = 3"), "changes nothing"),
    ("a decorator", ("Account.doubled", "@property", ""), "found 0 times"),
]


@pytest.mark.parametrize(
    ("edit", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_does_not_fit_is_refused_before_anything_changes(
    sample: ModuleType, edit: tuple[str, str, str], reason: str
) -> None:
    with (
        pytest.raises(MutationError, match=reason),
        applied(mutant(("Account.sign", "> 0", ">= 0"), edit)),
    ):
        pytest.fail("was applied")
    assert sample.Account.sign(0) == -1


def test_a_mutant_is_not_applied_twice(sample: ModuleType) -> None:
    twice = mutant(("is_enough", ">=", ">"))
    with applied(twice), pytest.raises(MutationError, match="in memory"), applied(twice):
        pytest.fail("was applied")
    assert sample.is_enough(2)


def test_code_that_changed_on_disk_since_it_was_imported_is_refused(
    sample: ModuleType, tmp_path: Path
) -> None:
    text = SAMPLE.replace("count >= limit", "limit <= count")
    (tmp_path / f"{NAME}.py").write_text(text, encoding="utf-8")
    with (
        pytest.raises(MutationError, match="in memory is not that"),
        applied(mutant(("is_enough", "<=", "<"))),
    ):
        pytest.fail("was applied")


def test_everything_is_restored_after_an_exception(sample: ModuleType) -> None:
    with (
        pytest.raises(KeyError),
        applied(mutant(("is_enough", ">=", ">"), ("Account.sign", "> 0", ">= 0"))),
    ):
        raise KeyError
    assert (sample.is_enough(2), sample.Account.sign(0)) == (True, -1)


def test_a_traceback_shows_the_mutants_lines(sample: ModuleType) -> None:
    edit = ("Account.fails", "        raise", '        moved = "moved"\n        raise')
    with applied(mutant(edit)):
        with pytest.raises(ValueError, match="failed") as caught:
            sample.Account().fails()
        frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert frame.filename.endswith(f"{NAME}.py <sample>")
    assert frame.line == 'raise ValueError("failed")'
