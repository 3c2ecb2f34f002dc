"""Quorum arithmetic against naive definitions (QuorumCoverage.tla has four equivalent ones)."""

from __future__ import annotations

from itertools import combinations, pairwise

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


@st.composite
def quorums(draw: st.DrawFn) -> tuple[int, int, int]:
    ensemble = draw(st.integers(1, 6))
    write = draw(st.integers(1, ensemble))
    return ensemble, write, draw(st.integers(1, write))


@given(quorums(), st.data())
def test_four_definitions_of_coverage_agree(
    sizes: tuple[int, int, int], data: st.DataObject
) -> None:
    cohort_size, _, ack_quorum = sizes
    ack_quorum = min(ack_quorum, cohort_size)
    cohort = set(range(cohort_size))
    satisfied = data.draw(st.sets(st.sampled_from(sorted(cohort))))
    ack_quorums = [set(quorum) for quorum in combinations(cohort, ack_quorum)]
    by_count = len(satisfied) >= coverage_threshold(cohort=cohort_size, ack_quorum=ack_quorum)
    assert by_count == all(quorum & satisfied for quorum in ack_quorums)
    assert by_count == (len(cohort - satisfied) < ack_quorum)
    assert by_count == (not any(quorum <= cohort - satisfied for quorum in ack_quorums))


@given(quorums(), st.data())
def test_fence_coverage_means_that_no_entry_can_reach_its_ack_quorum(
    sizes: tuple[int, int, int], data: st.DataObject
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
def test_write_set(sizes: tuple[int, int, int], entry_id: int) -> None:
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
def test_impossible_quorums_are_refused(sizes: tuple[int, int, int]) -> None:
    ensemble, write, ack = sizes
    with pytest.raises(FencelogError, match="E >= Qw >= Qa"):
        validate_quorums(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
