"""The mutation engine on small modules, and every mutant against the code as it is now."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tests.sim import run_mutants
from tests.sim.mutants.catalogue import MUTANTS, UNIT_MUTANTS
from tests.sim.mutants.mutation import Edit, Mutant, MutationError, applied
from tests.sim.run_mutants import AS_IT_IS, Row, examine

SAMPLE = '''"""A sample."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass

LIMIT = 3


def is_enough(count: int, *, limit: int = 2) -> bool:
    return count >= limit


def make_adder(step: int):
    def add(value: int) -> int:
        return value + step

    return add


@contextmanager
def opened():
    yield "open"


class Base:
    def name(self) -> str:
        return "base"


class Account(Base):
    __secret = 7

    def __init__(self) -> None:
        self.total = 0

    def pay(self, amount: int) -> int:
        self.total += amount
        return self.total

    def name(self) -> str:
        return super().name() + "!"

    def secret(self) -> int:
        return self.__secret + 1

    @property
    def doubled(self) -> int:
        return self.total * 2

    @functools.cached_property
    def tripled(self) -> int:
        return self.total * 3

    @classmethod
    def called(cls) -> str:
        return cls.__name__ + " class"

    @staticmethod
    def sign(value: int) -> int:
        return 1 if value > 0 else -1

    async def later(self) -> str:
        return "later"

    def counter(self):
        def count() -> int:
            return self.total + 10

        return count

    def fails(self) -> None:
        raise ValueError("failed")


@dataclass(frozen=True, slots=True)
class Point:
    x: int

    def moved(self, by: int) -> Point:
        return Point(self.x + by)


class Odd:
    @property
    def twice(self) -> int:
        return 1

    @twice.setter
    def twice(self, value: int) -> None:
        raise ValueError

    borrowed = Base.name
'''

NAME = "mutation_sample"


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / f"{NAME}.py").write_text(SAMPLE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(NAME)
    del sys.modules[NAME]


def mutant(*edits: tuple[str, str, str]) -> Mutant:
    return Mutant("sample", "none", "Nothing.", tuple(Edit(NAME, *edit) for edit in edits))


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


# -- the battery ---------------------------------------------------------------------------------


@dataclass
class Result:
    violations: list[str]


def rows(
    mutants: list[Mutant], run_seed: Callable[[int], Result], *, seconds: float = 60.0
) -> list[Row]:
    return list(examine(mutants, run_seed, seeds=4, jobs=2, seconds=seconds))


def test_a_mutant_is_caught_by_the_first_seed_with_a_violation(sample: ModuleType) -> None:
    def run_seed(seed: int) -> Result:
        return Result([f"seed {seed} sees it"] if seed >= 3 and not sample.is_enough(2) else [])

    (row,) = rows([mutant(("is_enough", ">=", ">"))], run_seed)
    assert (row.caught, row.seeds, row.says) == (True, 3, "seed 3 sees it")
    assert sample.is_enough(2)


def test_a_seed_that_is_known_to_catch_it_comes_first(sample: ModuleType) -> None:
    """Where it does not any more, the others do, from 1 on."""

    def run_seed(seed: int) -> Result:
        is_broken = not sample.is_enough(2)
        return Result([f"seed {seed} sees it"] if is_broken and seed in (2, 70) else [])

    broken = mutant(("is_enough", ">=", ">"))
    found = [
        next(examine([broken], run_seed, seeds=4, jobs=1, seconds=60.0, known={"sample": seed}))
        for seed in (70, 71)
    ]
    assert [(row.caught, row.seeds, row.was_known) for row in found] == [
        (True, 70, True),
        (True, 2, False),
    ]
    assert "known" in str(found[0])


def test_a_known_seed_has_to_be_clean_without_the_mutant(sample: ModuleType) -> None:
    broken, known = mutant(("is_enough", ">=", ">")), {"sample": 70}
    (row,) = examine(
        [broken], lambda seed: Result(["always"]), seeds=4, jobs=1, seconds=60.0, known=known
    )
    assert not row.caught
    assert row.says == "seed 70 has a violation without the mutant: always"


def test_one_that_no_seed_sees_has_survived(sample: ModuleType) -> None:
    (row,) = rows([mutant(("is_enough", ">=", ">"))], lambda seed: Result([]))
    assert (row.caught, row.seeds) == (False, 4)
    assert "SURVIVED after 4 seeds" in str(row)


def test_a_violation_that_is_there_without_the_mutant_catches_nothing(
    sample: ModuleType,
) -> None:
    (row,) = rows([mutant(("is_enough", ">=", ">"))], lambda seed: Result(["always"]))
    assert not row.caught
    assert row.says == "seed 1 has a violation without the mutant: always"


def test_what_crashes_or_does_not_fit_ends_its_own_row_only(sample: ModuleType) -> None:
    def run_seed(seed: int) -> Result:
        match sample.Account.sign(0):
            case 2:
                os._exit(3)
            case 3:
                raise KeyError(seed)
        return Result([] if sample.Account.sign(0) == -1 else ["seen"])

    def saying(value: int) -> Mutant:
        return mutant(("Account.sign", "1 if value > 0 else -1", str(value)))

    misfit = mutant(("Account.sign", "nothing", ""))
    found = rows([saying(2), saying(3), misfit, saying(4)], run_seed)
    by_value = {row.mutant.edits[0].new: row for row in found}
    assert [by_value[key].caught for key in ("2", "3", "", "4")] == [False] * 3 + [True]
    assert "exit code 3" in by_value["2"].says
    assert "KeyError" in by_value["3"].says
    assert "found 0 times" in by_value[""].says


def test_one_that_hangs_is_ended() -> None:
    def run_seed(seed: int) -> Result:
        threading.Event().wait()
        return Result([])

    (row,) = rows([AS_IT_IS], run_seed, seconds=0.1)
    assert (row.caught, row.says) == (False, "it does not end")


def test_one_that_is_busy_for_ever_is_ended_at_its_limit_of_cpu_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a loaded machine too, where a second of CPU time may take minutes."""
    monkeypatch.setattr(run_mutants, "_WALL_PER_CPU", 250)

    def run_seed(seed: int) -> Result:
        while seed:
            pass
        return Result([])

    (row,) = rows([AS_IT_IS], run_seed, seconds=1)
    assert (row.caught, row.says) == (False, "over 1 s of CPU")


def test_the_code_as_it_is_can_be_examined_too() -> None:
    (clean,) = rows([AS_IT_IS], lambda seed: Result([]))
    (other,) = rows([AS_IT_IS], lambda seed: Result(["wrong"] if seed == 2 else []))
    assert (clean.says, other.says) == ("", "wrong")


# -- the mutants ---------------------------------------------------------------------------------


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
