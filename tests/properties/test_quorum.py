"""Quorum arithmetic against naive definitions, with random sizes and with every small one.

"Covered" can be said in four ways (Vanlightly's QuorumCoverage.tla shows them equal). Each stands
here as it is said, in sets and quantifiers, without arithmetic that the code could share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.quorum import (
    coverage_threshold,
    is_ensemble_covered,
    validate_quorums,
    write_set,
)

Bookies = frozenset[int]
Sizes = tuple[int, int, int]

LARGEST = 6
EVERY_SIZE = [
    (ensemble, write, ack)
    for ensemble in range(1, LARGEST + 1)
    for write in range(1, ensemble + 1)
    for ack in range(1, write + 1)
]


def subsets(members: Bookies) -> Iterator[Bookies]:
    ordered = sorted(members)
    sizes = (combinations(ordered, size) for size in range(len(ordered) + 1))
    return map(frozenset, chain.from_iterable(sizes))


def ack_quorums(cohort: Bookies, ack: int) -> list[Bookies]:
    return [quorum for quorum in subsets(cohort) if len(quorum) == ack]


def enough_satisfy(satisfied: Bookies, cohort: Bookies, ack: int) -> bool:
    """(cohort - Qa) + 1 bookies of the cohort satisfy the property."""
    return len(satisfied & cohort) >= (len(cohort) - ack) + 1


def every_ack_quorum_is_hit(satisfied: Bookies, cohort: Bookies, ack: int) -> bool:
    """Tell whether at least one bookie of every ack quorum of the cohort satisfies it."""
    return all(quorum & satisfied for quorum in ack_quorums(cohort, ack))


def too_few_do_not_satisfy(satisfied: Bookies, cohort: Bookies, ack: int) -> bool:
    """Fewer than Qa bookies of the cohort do not satisfy it."""
    return len(cohort - satisfied) < ack


def no_ack_quorum_is_free_of_it(satisfied: Bookies, cohort: Bookies, ack: int) -> bool:
    """Tell whether no ack quorum of the cohort has only bookies that do not satisfy it."""
    return not any(quorum <= cohort - satisfied for quorum in ack_quorums(cohort, ack))


Definition = Callable[[Bookies, Bookies, int], bool]
DEFINITIONS = [
    enough_satisfy,
    every_ack_quorum_is_hit,
    too_few_do_not_satisfy,
    no_ack_quorum_is_free_of_it,
]

every_definition = pytest.mark.parametrize("covers", DEFINITIONS, ids=lambda f: f.__name__)


def write_sets(sizes: Sizes) -> list[Bookies]:
    """Every write set there is, drawn on a ring by hand."""
    ensemble, write, _ = sizes
    ring = [*range(ensemble), *range(ensemble)]
    return [frozenset(ring[start : start + write]) for start in range(ensemble)]


@every_definition
def test_fencing_is_covered_when_each_write_set_is(covers: Definition) -> None:
    """The cohort is the ensemble, write set by write set (rule 4)."""
    for sizes in EVERY_SIZE:
        ensemble, write, ack = sizes
        for fenced in subsets(frozenset(range(ensemble))):
            expected = all(covers(fenced, cohort, ack) for cohort in write_sets(sizes))
            assert expected == is_ensemble_covered(
                fenced, ensemble_size=ensemble, write_quorum=write, ack_quorum=ack
            ), (sizes, fenced)


@every_definition
def test_a_recovery_read_is_negative_when_its_write_set_is_covered(covers: Definition) -> None:
    """The cohort is the write set of the entry; the property: "does not have it" (rule 4)."""
    for sizes in EVERY_SIZE:
        _, write, ack = sizes
        for cohort in write_sets(sizes):
            for negative in subsets(cohort):
                enough = len(negative) >= coverage_threshold(cohort=write, ack_quorum=ack)
                assert covers(negative, cohort, ack) == enough, (sizes, cohort, negative)


def test_an_acknowledged_entry_is_never_declared_absent_and_others_can_be() -> None:
    """A bookie that says "no" has no copy. So with Qa copies or more there are too few to say it,
    and with fewer there may be enough."""
    for sizes in EVERY_SIZE:
        _, write, ack = sizes
        need = coverage_threshold(cohort=write, ack_quorum=ack)
        for cohort in write_sets(sizes):
            for holders in subsets(cohort):
                assert (len(cohort - holders) >= need) == (len(holders) < ack)


def test_covering_the_ensemble_of_seed_002_is_the_same_or_stronger() -> None:
    """(E - Qa) + 1 bookies of the ensemble: equal without striping, more than is needed with it."""
    for ensemble, write, ack in EVERY_SIZE:
        for fenced in subsets(frozenset(range(ensemble))):
            covered = is_ensemble_covered(
                fenced, ensemble_size=ensemble, write_quorum=write, ack_quorum=ack
            )
            as_in_seed_002 = len(fenced) >= (ensemble - ack) + 1
            assert covered or not as_in_seed_002
            assert covered == as_in_seed_002 or ensemble > write


def test_write_sets_are_neighbours_on_a_ring() -> None:
    for ensemble, write, ack in EVERY_SIZE:
        rings = write_sets((ensemble, write, ack))
        for entry_id in range(3 * ensemble):
            members = write_set(entry_id, ensemble_size=ensemble, write_quorum=write)
            assert frozenset(members) == rings[entry_id % ensemble]


@st.composite
def quorums(draw: st.DrawFn) -> Sizes:
    ensemble = draw(st.integers(1, 9))
    write = draw(st.integers(1, ensemble))
    return ensemble, write, draw(st.integers(1, write))


@given(quorums(), st.data())
def test_four_definitions_of_coverage_agree(sizes: Sizes, data: st.DataObject) -> None:
    cohort_size, _, ack = sizes
    cohort = frozenset(range(cohort_size))
    satisfied = data.draw(st.frozensets(st.sampled_from(sorted(cohort))))
    by_count = len(satisfied) >= coverage_threshold(cohort=cohort_size, ack_quorum=ack)
    assert {covers(satisfied, cohort, ack) for covers in DEFINITIONS} == {by_count}


@given(quorums(), st.data())
def test_fence_coverage_means_that_no_entry_can_reach_its_ack_quorum(
    sizes: Sizes, data: st.DataObject
) -> None:
    ensemble, write, ack = sizes
    fenced = data.draw(st.sets(st.integers(0, ensemble - 1)))
    covered = is_ensemble_covered(
        fenced, ensemble_size=ensemble, write_quorum=write, ack_quorum=ack
    )
    could_be_acked = any(
        len(set(write_set(entry, ensemble_size=ensemble, write_quorum=write)) - fenced) >= ack
        for entry in range(3 * ensemble)
    )
    assert covered == (not could_be_acked)


@given(quorums(), st.integers(0, 2**62))
def test_write_set(sizes: Sizes, entry_id: int) -> None:
    ensemble, write, _ = sizes
    members = write_set(entry_id, ensemble_size=ensemble, write_quorum=write)
    assert len(set(members)) == write
    assert members[0] == entry_id % ensemble
    assert all(after == (before + 1) % ensemble for before, after in pairwise(members))


def test_seed_000_table() -> None:
    table = {(2, 1): 2, (2, 2): 1, (3, 1): 3, (3, 2): 2, (3, 3): 1, (4, 2): 3, (4, 3): 2, (4, 4): 1}
    for (write, ack), negatives in table.items():
        assert coverage_threshold(cohort=write, ack_quorum=ack) == negatives


@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0), (33, 3, 2)])
def test_impossible_quorums_are_refused(sizes: Sizes) -> None:
    ensemble, write, ack = sizes
    with pytest.raises(FencelogError, match="E >= Qw >= Qa"):
        validate_quorums(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
