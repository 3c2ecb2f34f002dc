"""The options and columns of a write: what is wrong is named."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.write.options import (
    ExactlyOnce,
    WriteOptions,
    check_columns,
    parse_write_options,
)

GIVEN = {"server": "http://a:1,http://b:1", "topic": "orders"}


def test_options_become_values() -> None:
    assert parse_write_options(GIVEN) == WriteOptions(
        ("http://a:1", "http://b:1"), "default/orders", ExactlyOnce.NONE
    )
    found = parse_write_options(GIVEN | {"ExactlyOnce": "Segments", "checkpointLocation": "/x"})
    assert found.exactly_once is ExactlyOnce.SEGMENTS


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"server": ""}, "'server' is missing"),
        ({"topic": "a/b/c"}, "'topic'"),
        ({"exactlyOnce": "twice"}, "'exactlyOnce' is none of none, dedup, segments"),
        ({"exactlyonc": "none"}, "did you mean exactlyOnce"),
        ({"startingOffsets": "latest"}, "unknown option"),
    ],
)
def test_wrong_options_are_named(change: dict[str, str], named: str) -> None:
    with pytest.raises(FencelogError, match=named) as raised:
        parse_write_options(GIVEN | change)
    assert raised.value.code is ErrorCode.BAD_REQUEST


def test_columns_are_those_of_a_message() -> None:
    check_columns([("value", "string")])
    check_columns([("partition", "int"), ("key", "binary"), ("value", "binary")])
    for columns, named in (
        ([("value", "bigint")], "column value bigint"),
        ([("value", "binary"), ("offset", "bigint")], "column offset bigint"),
        ([("key", "binary")], "'value'"),
        ([("value", "binary"), ("value", "string")], "several columns 'value'"),
    ):
        with pytest.raises(FencelogError, match=named):
            check_columns(columns)
