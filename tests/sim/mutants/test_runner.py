"""The runner of mutants: which seed catches one, and what it says of one that none does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.sim import run_mutants
from tests.sim.mutants.mutation import Mutant
from tests.sim.mutants.sample import mutant
from tests.sim.run_mutants import AS_IT_IS, Row, examine


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
    """The other seeds follow, from 1 on, where it does not catch it any more."""

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


@pytest.mark.parametrize("known", [{"sample": 71}, {}])
def test_without_other_seeds_the_known_one_alone_catches(
    sample: ModuleType, known: dict[str, int]
) -> None:
    def run_seed(seed: int) -> Result:
        is_broken = not sample.is_enough(2)
        return Result([f"seed {seed} sees it"] if is_broken and seed != 71 else [])

    broken = mutant(("is_enough", ">=", ">"))
    (row,) = examine([broken], run_seed, seeds=0, jobs=1, seconds=60.0, known=known)
    assert (row.caught, row.says) == (False, "")
    (row,) = examine([broken], run_seed, seeds=0, jobs=1, seconds=60.0, known={"sample": 70})
    assert (row.caught, row.seeds) == (True, 70)


def test_a_known_seed_has_to_be_clean_without_the_mutant(sample: ModuleType) -> None:
    broken, known = mutant(("is_enough", ">=", ">")), {"sample": 70}
    (row,) = examine(
        [broken], lambda seed: Result(["always"]), seeds=4, jobs=1, seconds=60.0, known=known
    )
    assert not row.caught
    assert row.says == "seed 70 has a violation without the mutant: always"


def test_a_seed_that_is_known_to_be_clean_is_not_run_without_the_mutant(
    sample: ModuleType,
) -> None:
    broken, known = mutant(("is_enough", ">=", ">")), {"sample": 70}
    found = [
        next(
            examine(
                [broken],
                lambda seed: Result(["always"]),
                seeds=4,
                jobs=1,
                seconds=60.0,
                clean_up_to=clean_up_to,
                known=known,
            )
        )
        for clean_up_to in (69, 70)
    ]
    assert [row.caught for row in found] == [False, True]


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
    """A loaded machine may take minutes for a second of CPU time."""
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
