"""The reserve of a standalone service: there while there is space, gone when it is needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from fencelog.api.processes.disk_reserve import DiskReserve, kept_reserve
from fencelog.ledgers.limits import DISK_RESERVE_SHARE, MAX_DISK_RESERVE_FILE_BYTES, MIB

SetFree = Callable[[int, int], None]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SetFree:
    """Return a function that sets the size and the free bytes of the disk."""

    def set_free(total_bytes: int, free_bytes: int) -> None:
        status = SimpleNamespace(f_blocks=total_bytes, f_bavail=free_bytes, f_frsize=1)
        monkeypatch.setattr(os, "statvfs", lambda _path: status)

    return set_free


def test_it_is_released_when_the_rest_is_nearly_used_up(tmp_path: Path, disk: SetFree) -> None:
    total = 160 * MIB
    size = total // DISK_RESERVE_SHARE
    reserve, file = DiskReserve(tmp_path), tmp_path / "reserve"
    for free, is_there in (
        (3 * size - 1, False),
        (3 * size, True),
        (size, True),
        (size // 2, True),
        (size // 2 - 1, False),
        (0, False),
        (2 * size, False),
        (3 * size, True),
    ):
        disk(total, free)
        reserve.check()
        assert file.exists() == is_there
    assert file.stat().st_blocks * 512 >= size


def test_one_whose_making_was_interrupted_is_made_whole(tmp_path: Path, disk: SetFree) -> None:
    file = tmp_path / "reserve"
    file.touch()  # the process died before it had reserved anything
    disk(160 * MIB, 160 * MIB)
    DiskReserve(tmp_path).check()
    assert file.stat().st_blocks * 512 >= 160 * MIB // DISK_RESERVE_SHARE


def test_a_large_disk_spares_a_small_part(tmp_path: Path, disk: SetFree) -> None:
    disk(1 << 42, 1 << 42)
    DiskReserve(tmp_path).check()
    assert (tmp_path / "reserve").stat().st_size == MAX_DISK_RESERVE_FILE_BYTES


def test_a_disk_that_refuses_it_is_reported_and_left_clean(
    tmp_path: Path, disk: SetFree, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refused)
    disk(100 * MIB, 100 * MIB)
    DiskReserve(tmp_path).check()
    assert list(tmp_path.iterdir()) == []
    assert "No space left" in caplog.text


async def test_it_is_checked_at_once_and_then_periodically(
    tmp_path: Path, disk: SetFree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.api.processes.disk_reserve.DISK_WATCH_MS", 1)
    disk(100 * MIB, 100 * MIB)
    file = tmp_path / "reserve"
    async with kept_reserve(tmp_path):
        assert file.exists()
        disk(100 * MIB, 0)
        with anyio.fail_after(30):
            while file.exists():  # noqa: ASYNC110 - no event follows a file
                await anyio.sleep(0.001)
    disk(100 * MIB, 100 * MIB)
    assert not file.exists()
