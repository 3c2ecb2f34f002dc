"""Directories of a bookie that would get in each other's way are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.identity.cookies import DATA, Kind
from fencelog.bookie.identity.data_directory import places_of
from fencelog.bookie.storage.shard_directory import shard_paths
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_BOOKIE_DIRECTORIES


def config(journals: list[str], ledgers: list[str], data: str = "/d") -> BookieConfig:
    return BookieConfig(Path(data), tuple(map(Path, journals)), tuple(map(Path, ledgers)))


MANY = [f"/m{number}" for number in range(MAX_BOOKIE_DIRECTORIES + 1)]


@pytest.mark.parametrize(
    ("journals", "ledgers", "reason"),
    [
        (["/a", "/b"], ["/1", "/2", "/3"], "2 journal_dirs do not divide the 3 shards"),
        (["/1", "/2", "/3"], ["/a", "/b"], "2 ledger_dirs do not divide the 3 shards"),
        (MANY, [], "journal_dirs are more than"),
        (["/a"], ["/a"], "/a lies in /a"),
        (["/a", "/a"], [], "/a lies in /a"),
        (["/a"], ["/a/b"], "/a/b lies in /a"),
        ([], ["/"], "/d lies in /"),
        ([], ["/d"], "/d lies in /d"),
        ([], ["/d/journal"], "/d/journal lies in /d/journal"),
        (["/d/index/x"], [], "/d/index/x lies in /d/index"),
        (["/d/shard-01", "/j"], [], "/d/shard-01 lies in /d/shard-01"),
    ],
)
def test_it_is_refused(journals: list[str], ledgers: list[str], reason: str) -> None:
    with pytest.raises(FencelogError) as caught:
        config(journals, ledgers)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert reason in caught.value.detail


@pytest.mark.parametrize(
    ("journals", "ledgers", "places"),
    [
        ([], [], [(DATA, DATA)]),
        (["/d/j"], [], [((Kind.JOURNAL, 0), DATA)]),
        ([], ["/d/1", "/2"], [(DATA, (Kind.LEDGER, 0)), (DATA, (Kind.LEDGER, 1))]),
        (
            ["/j", "/k"],
            ["/d/x"],
            [((Kind.JOURNAL, 0), (Kind.LEDGER, 0)), ((Kind.JOURNAL, 1), (Kind.LEDGER, 0))],
        ),
    ],
)
def test_each_shard_has_its_places(
    journals: list[str], ledgers: list[str], places: list[object]
) -> None:
    wanted = config(journals, ledgers)
    assert places_of(wanted) == places
    paths = [path for shard in shard_paths(wanted) for path in (shard.journal, shard.index)]
    assert len(set(paths)) == 2 * len(places)
