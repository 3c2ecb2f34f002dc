"""Groups of batches: large ones alone, small ones together, none too large."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.record_batch import encode_values
from fencelog.ledgers.record_batch.codecs import CODEC_ZSTD
from fencelog.ledgers.record_batch.format import BODY_START
from fencelog.spark_connector.read.decode import (
    SMALL_BATCH_BYTES,
    SMALL_BATCH_ROWS,
    grouped,
    uncompressed_bytes,
)

batches = st.lists(
    st.tuples(
        st.integers(1, 3000) | st.just(SMALL_BATCH_ROWS),
        st.integers(0, 300_000) | st.just(SMALL_BATCH_BYTES),
    ),
    max_size=30,
)


@given(batches)
def test_groups_are_of_a_size(shapes: list[tuple[int, int]]) -> None:
    counts, sizes = [count for count, _ in shapes], [size for _, size in shapes]
    groups = list(grouped(counts, sizes))
    assert [index for group in groups for index in group] == list(range(len(shapes)))
    for group in groups:
        assert len(group) == 1 or sum(counts[group.start : group.stop]) < 2 * SMALL_BATCH_ROWS
        assert len(group) == 1 or sum(sizes[group.start : group.stop]) < 2 * SMALL_BATCH_BYTES
    for one, other in itertools.pairwise(groups):
        small = sum(counts[one.start : one.stop]) < SMALL_BATCH_ROWS
        small = small and sum(sizes[one.start : one.stop]) < SMALL_BATCH_BYTES
        large = counts[other.start] >= SMALL_BATCH_ROWS or sizes[other.start] >= SMALL_BATCH_BYTES
        assert not small or large


def test_a_compressed_batch_counts_as_it_was_before() -> None:
    values = [bytes(1000)] * 100
    plain, packed = encode_values(values), encode_values(values, codec=CODEC_ZSTD)
    assert uncompressed_bytes(memoryview(packed)) == len(plain) - BODY_START
