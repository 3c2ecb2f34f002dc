"""Written bytes that go to the disk without a commit."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from errno import EBADF, EIO, ENOSYS
from pathlib import Path

import pytest

from fencelog.bookie.disk import write_back as module
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.disk.write_back import write_back

WAIT_WRITE_WAIT = 7
"""The flags of ``sync_file_range`` with which all is on the disk when it returns."""


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_the_call_covers_the_range_and_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int, int]] = []
    called = module._sync_file_range

    def call(descriptor: int, offset: int, size: int, flags: int) -> int:
        calls.append((offset, size, flags))
        return 0 if called is None else called(descriptor, offset, size, flags)

    monkeypatch.setattr(module, "_sync_file_range", call)
    file = PosixDisk().create(tmp_path / "file")
    file.write([b"x" * 8192], 0)
    file.write_back(4096, 100)
    file.close()
    assert calls == [(4096, 100, WAIT_WRITE_WAIT)]
    assert (tmp_path / "file").read_bytes() == b"x" * 8192


def failing(error: int) -> object:
    def call(_descriptor: int, _offset: int, _size: int, _flags: int) -> int:
        ctypes.set_errno(error)
        return -1

    return call


def test_an_error_of_the_disk_is_raised(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_sync_file_range", failing(EIO))
    with pytest.raises(OSError, match="rror") as caught:
        write_back(descriptor, 0, 1)
    assert caught.value.errno == EIO


def test_an_error_of_the_call_is_raised() -> None:
    with pytest.raises(OSError, match="descriptor") as caught:
        write_back(-1, 0, 1)
    assert caught.value.errno == EBADF


@pytest.mark.parametrize("call", [None, failing(ENOSYS)])
def test_a_system_without_the_call_syncs(
    descriptor: int, monkeypatch: pytest.MonkeyPatch, call: object
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(module, "_sync_file_range", call)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    write_back(descriptor, 0, 1)
    assert synced == [descriptor]
