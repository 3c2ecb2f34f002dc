"""Writes and syncs by a real ring of the kernel's."""

from __future__ import annotations

import gc
import os
import platform
import resource
import select
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EBADF, ECANCELED, EFBIG, EINVAL, ENOSPC
from pathlib import Path

import pytest

from fencelog.bookie.disk import io_uring
from fencelog.bookie.disk.io_uring import Ring
from fencelog.bookie.disk.port import Buffer


@pytest.fixture
def ring() -> Iterator[Ring]:
    ring = Ring.open()
    if ring is None:
        pytest.skip("this system allows no ring, and has its writes done by threads")
    yield ring
    ring.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def write(
    ring: Ring, descriptor: int, data: bytes, offset: int = 0, *, sync: bool = True
) -> tuple[int, int | None]:
    """Write by the ring; return the number of bytes written, and the error's number."""
    ends: list[tuple[int, int | None]] = []

    def ended(size: int, error: OSError | None) -> None:
        ends.append((size, error.errno if error is not None else None))

    assert ring.submit(descriptor, data, offset, sync=sync, ended=ended)
    while ring.is_busy:
        ready, _, _ = select.select([ring.descriptor], [], [], 20)
        assert ready, "nothing completes"
        ring.reap()
    (end,) = ends
    return end


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Let this process write no file beyond a size."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@pytest.mark.parametrize("sync", [True, False])
def test_bytes_are_written_where_they_belong(ring: Ring, file: int, sync: bool) -> None:
    for index in range(50):  # the queues go round several times
        assert write(ring, file, b"%02d" % index * 999, index * 1998, sync=sync) == (1998, None)
    assert os.pread(file, 200_000, 0) == b"".join(b"%02d" % index * 999 for index in range(50))


def test_nothing_is_reported_twice(ring: Ring, file: int) -> None:
    write(ring, file, b"once")
    assert select.select([ring.descriptor], [], [], 0.05)[0] == []
    ring.reap()
    assert not ring.is_busy


def test_an_error_of_the_write_is_the_end(ring: Ring, file: int) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    closed = os.dup(file)
    os.close(closed)
    try:
        for sync in (True, False):
            assert write(ring, closed, b"lost", sync=sync) == (0, EBADF)
            assert write(ring, full, b"lost", sync=sync) == (0, ENOSPC)
    finally:
        os.close(full)
    assert write(ring, file, b"later") == (5, None)


def test_an_error_of_the_sync_is_the_end(ring: Ring) -> None:
    unsyncable = os.eventfd(0)
    try:
        assert write(ring, unsyncable, bytes(7) + b"\1", sync=False) == (8, None)
        assert write(ring, unsyncable, bytes(7) + b"\1") == (8, EINVAL)
    finally:
        os.close(unsyncable)


def test_a_write_that_ends_early_says_how_far_it_came(ring: Ring, file: int) -> None:
    with file_size_limit(6_000):
        assert write(ring, file, b"x" * 10_000) == (6_000, None)
        assert write(ring, file, b"x" * 10, 6_000) == (0, EFBIG)
    assert os.fstat(file).st_size == 6_000
    assert write(ring, file, b"y" * 10, 6_000) == (10, None)


def test_a_write_that_has_not_begun_is_no_error_and_a_sync_is(
    ring: Ring, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread of the kernel's could be made, for example."""
    unpack = io_uring._CQE.unpack_from

    class Cancelled:
        @staticmethod
        def unpack_from(buffer: Buffer, place: int) -> tuple[int, int]:
            number, _ = unpack(buffer, place)
            return number, -ECANCELED

    monkeypatch.setattr(io_uring, "_CQE", Cancelled)
    assert write(ring, file, b"nothing", sync=False) == (0, None)
    assert write(ring, file, b"written") == (7, ECANCELED)


def test_what_is_in_flight_stays_in_memory(file: int) -> None:
    """A ring that is forgotten in the middle of a write does not write other bytes."""
    size = 4 << 20
    for letter in (b"a", b"b", b"c"):
        ring = Ring.open()
        if ring is None:
            pytest.skip("this system allows no ring, and has its writes done by threads")
        assert ring.submit(file, letter * size, 0, sync=True, ended=lambda *_: None)
        forgotten = weakref.ref(ring)
        del ring
        gc.collect()
        garbage = [b"z" * size for _ in range(4)]
        ring = forgotten()
        assert ring is not None
        assert select.select([ring.descriptor], [], [], 20)[0]
        assert os.pread(file, size, 0) == letter * size
        ring.reap()
        ring.close()
        del garbage


def test_there_is_no_ring_where_stores_may_be_seen_in_another_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert Ring.open() is None


def test_no_descriptor_is_left_open(ring: Ring) -> None:
    before = os.listdir("/proc/self/fd")
    other = Ring.open()
    assert other is not None
    other.close()
    assert os.listdir("/proc/self/fd") == before
