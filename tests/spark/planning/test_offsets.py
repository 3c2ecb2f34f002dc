"""Offsets as JSON: one text for equal offsets, and nothing else accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.offsets import (
    AtTime,
    Bound,
    End,
    canonical,
    parse_offsets,
    to_json,
)

offsets = st.dictionaries(
    st.text(max_size=5), st.dictionaries(st.integers(0, 20), st.integers(0, 1 << 62), max_size=5)
)


@given(offsets)
def test_equal_offsets_have_the_same_text_whatever_their_order(
    given_offsets: dict[str, dict[int, int]],
) -> None:
    turned = {
        topic: dict(reversed(partitions.items()))
        for topic, partitions in reversed(given_offsets.items())
    }
    assert to_json(turned) == to_json(given_offsets)
    assert parse_offsets(json.loads(to_json(given_offsets))) == given_offsets
    assert parse_offsets(canonical(given_offsets)) == given_offsets


def test_partitions_are_in_order_of_number() -> None:
    assert to_json({"b/t": {10: 1, 9: 2}, "a/ü": {0: 3}}) == '{"a/ü":{"0":3},"b/t":{"9":2,"10":1}}'


@pytest.mark.parametrize(
    "members", [[], 7, None, {"t": [1]}, {"t": {"x": 1}}, {"t": {"0": -1}}, {"t": {"0": True}}]
)
def test_anything_else_is_refused(members: Any) -> None:
    with pytest.raises(FencelogError, match="no offsets of topics") as raised:
        parse_offsets(members)
    assert raised.value.code is ErrorCode.BAD_REQUEST


def test_a_bound_falls_back_for_partitions_it_does_not_name() -> None:
    bound = Bound(End.LATEST, {"a/t": {1: 5, 2: AtTime(7)}})
    assert bound.of("a/t", 1) == 5
    assert bound.of("a/t", 2) == AtTime(7)
    assert bound.of("a/t", 0) is bound.of("a/other", 1) is End.LATEST
