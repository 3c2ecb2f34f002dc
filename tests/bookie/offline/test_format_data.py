"""Removing all data by hand: of what was begun, nothing passes for a bookie."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.offline.format_data import remove_data, what_goes
from fencelog.ledgers.errors import FencelogError
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.offline_data import opened


class CrashingDisk(PosixDisk):
    """Gone for good after so many removals."""

    def __init__(self, calls_left: int) -> None:
        self.calls_left = calls_left

    def remove(self, path: Path) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise OSError("power failure")
        super().remove(path)


async def test_no_start_goes_on_with_a_part(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    data, given = tmp_path / "data", (tmp_path / "a", tmp_path / "b")
    bookie = await open_bookie(ledger_dirs=given)
    await requests.add(bookie, requests.run(1, 0, 2))
    await bookie.close()
    crashes = 0
    while (data / "identity").exists():
        with opened(data, CrashingDisk(1), ledger_dirs=given) as found:
            try:
                remove_data(found)
            except OSError:
                crashes += 1
        if (data / "identity").exists():
            with pytest.raises(FencelogError):
                await open_bookie(ledger_dirs=given)
    assert crashes > 10
    assert [list(path.iterdir()) for path in given] == [[], []]
    assert [path.name for path in data.iterdir()] == ["lock"]


async def test_it_says_how_many_ledgers_go(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    """One that was deleted is gone already; that it was, is remembered for ever."""
    bookie = await open_bookie()
    for ledger_id in (1, 2, 3):
        await requests.add(bookie, requests.run(ledger_id, 0))
    await bookie.shard(3).remove(3, deleted=True)
    await bookie.close()
    with opened(tmp_path / "data", PosixDisk()) as found:
        assert what_goes(found)["ledgers"] == 2


async def test_damaged_data_goes_too(open_bookie: OpenBookie, tmp_path: Path) -> None:
    await (await open_bookie()).close()
    for name in ("identity", "index/CURRENT"):
        (tmp_path / "data" / name).write_bytes(b"?")
    with opened(tmp_path / "data", PosixDisk()) as found:
        goes = what_goes(found)
        assert str(goes["bookie"]).startswith("unknown: ")
        assert str(goes["ledgers"]).startswith("unknown: ")
        remove_data(found)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["x", "index/x", "journal/1.journal", "entrylog/x/y"])
async def test_what_is_not_ours_stays(name: str, open_bookie: OpenBookie, tmp_path: Path) -> None:
    await (await open_bookie()).close()
    path = tmp_path / "data" / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    before = sorted((tmp_path / "data").rglob("*"))
    with (
        opened(tmp_path / "data", PosixDisk()) as found,
        pytest.raises(FencelogError, match="is no part of a bookie's data"),
    ):
        remove_data(found)
    assert sorted((tmp_path / "data").rglob("*")) == before


async def test_a_directory_behind_a_link_is_emptied_and_the_link_goes(
    open_bookie: OpenBookie, tmp_path: Path
) -> None:
    data, journal = tmp_path / "data", tmp_path / "fast"
    await (await open_bookie()).close()
    (data / "journal").rename(journal)
    (data / "journal").symlink_to(journal)
    with opened(data, PosixDisk()) as found:
        remove_data(found)
    assert [path.name for path in data.iterdir()] == ["lock"]
    assert list(journal.iterdir()) == []
