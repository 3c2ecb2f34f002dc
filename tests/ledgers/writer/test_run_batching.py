"""The ends of runs: at their limits, and never before one entry is in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.ledgers.limits import MAX_RUN_ENTRIES, TARGET_RUN_BYTES
from fencelog.ledgers.writer.run_batching import RunBatching


def batching(*, ensemble: str = "b1 b2 b3", digest: DigestType = DigestType.CRC32C) -> RunBatching:
    metadata = new_metadata(
        1,
        ensemble=tuple(ensemble.split()),
        write_quorum=3,
        ack_quorum=2,
        token="t",
        digest_type=digest,
    )
    return RunBatching.of(metadata)


def test_a_run_of_a_striped_ledger_holds_one_entry() -> None:
    assert batching().max_entries == MAX_RUN_ENTRIES
    striped = batching(ensemble="b1 b2 b3 b4")
    assert striped.max_entries == 1
    assert striped.end_of_run([b"a", b"b", b"c"], 1) == 2


def test_a_digest_takes_its_part_of_a_run() -> None:
    assert batching(digest=DigestType.HMAC_SHA256).overhead == batching().overhead + 24


def test_a_run_ends_with_the_queue_or_at_its_entries() -> None:
    assert batching().end_of_run([b"a"] * 5, 2) == 5
    assert batching().end_of_run([b""] * (MAX_RUN_ENTRIES + 9), 3) == MAX_RUN_ENTRIES + 3


@pytest.mark.parametrize("size", [TARGET_RUN_BYTES, 2 * TARGET_RUN_BYTES])
def test_an_entry_that_fills_a_run_is_alone_in_it(size: int) -> None:
    queue = [bytes(size), b"a", b"b"]
    assert batching().end_of_run(queue, 0) == 1
    assert batching().end_of_run(queue[::-1], 0) == 2


@given(st.lists(st.integers(0, TARGET_RUN_BYTES // 2), min_size=1, max_size=8))
def test_a_run_takes_what_fits_and_nothing_more(sizes: list[int]) -> None:
    rules = batching()
    end = rules.end_of_run([bytes(size) for size in sizes], 0)
    taken = [size + rules.overhead for size in sizes[:end]]
    assert sum(taken) <= TARGET_RUN_BYTES
    if end < len(sizes):
        assert sum(taken) + sizes[end] + rules.overhead > TARGET_RUN_BYTES
