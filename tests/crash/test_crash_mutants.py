"""Crash images that find nothing are either right or blind: each wrong order has to show."""

from __future__ import annotations

import pytest

from tests.crash.mutants import MUTANTS, first_failure
from tests.crash.workloads import WORKLOADS
from tests.sim.mutants.mutation import Mutant

CASES = [(workload, mutant) for workload, mutants in MUTANTS.items() for mutant in mutants]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("workload", "mutant"), CASES, ids=[mutant.name for _, mutant in CASES])
def test_what_is_broken_is_seen(workload: str, mutant: Mutant) -> None:
    failure = first_failure(workload, mutant)
    assert failure is not None, f"{mutant.name} breaks nothing that {workload} shows"
    assert failure.name.startswith(f"{workload}/")


def test_their_workloads_are_known() -> None:
    assert MUTANTS.keys() <= WORKLOADS.keys()
