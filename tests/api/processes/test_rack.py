"""The rack of a bookie: named, that of its node, or that of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.api.processes.rack import rack_of, read_rack_file
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.rpc.bookie_port import DEFAULT_RACK

MAPPING = """
# node   zone
node-1   a
node-2   b  # the old one
"""


def test_what_is_named_wins_over_the_node() -> None:
    assert rack_of("c", "node-1", MAPPING) == "c"
    assert rack_of("", "node-1", MAPPING) == "a"
    assert rack_of("", "node-2", MAPPING) == "b"
    assert rack_of("", "node-3", MAPPING) == DEFAULT_RACK
    assert rack_of("", "", "") == DEFAULT_RACK


@pytest.mark.parametrize("wrong", ["node-1", "node-1 a b", "node-1 a\nnode-1 b"])
def test_a_mapping_that_says_nothing_definite_is_refused(wrong: str) -> None:
    with pytest.raises(FencelogError, match=r"line [12] of the racks") as caught:
        rack_of("c", "node-9", wrong)
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_a_file_that_is_missing_maps_nothing(tmp_path: Path) -> None:
    file = tmp_path / "racks"
    assert read_rack_file(None) == read_rack_file(file) == ""
    file.write_text(MAPPING)
    assert read_rack_file(file) == MAPPING
    with pytest.raises(FencelogError, match="cannot read the racks"):
        read_rack_file(tmp_path)
