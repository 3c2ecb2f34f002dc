"""The machine's own limits, measured in the same run and on the same directory as the metrics.

A metric of a bench means little without them: 100,000 durable adds a second are many on one disk
and few on another. Everything here blocks, so it runs before an event loop is started.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB, MIB

SYNC_WRITE_BYTES = 4 * KIB
SEQUENTIAL_WRITE_BYTES = MIB
LOOPBACK_WRITE_BYTES = 256 * KIB
PREALLOCATED_BYTES = 256 * MIB
CHILD_START_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The machine's rates without the service; names as they are printed, units last."""

    fdatasync_per_s: float
    fdatasync_p50_ms: float
    loopback_mb_per_s: float
    sequential_sync_mb_per_s: float
    new_page_mb_per_s: float
    """The rate at which the kernel takes what is written to a new file into its page cache. Entry
    logs are such files. A virtual machine that returns free memory to its host gets each page of it
    anew, at a tenth of the rate; one whose page cache is full does not."""


@dataclass(frozen=True, slots=True)
class SyncRate:
    """The rate of synchronous writes of one size: how many a second, and how long the median one
    takes."""

    per_s: float
    p50_ms: float


def percentile(sorted_values: list[float], share: float) -> float:
    """Return the value below which ``share`` (0..1) of the values lie; 0.0 of none."""
    if not sorted_values:
        return 0.0
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def measure_limits(directory: Path, seconds: float) -> Limits:
    """Measure disk and loopback, ``seconds`` each. ``directory`` must exist; files are removed."""
    new_page_mb_per_s = measure_new_pages(directory, seconds)  # before others leave free pages
    small = measure_sync(directory, SYNC_WRITE_BYTES, seconds)
    large = measure_sync(directory, SEQUENTIAL_WRITE_BYTES, seconds)
    return Limits(
        fdatasync_per_s=small.per_s,
        fdatasync_p50_ms=small.p50_ms,
        loopback_mb_per_s=measure_loopback(seconds),
        sequential_sync_mb_per_s=large.per_s * SEQUENTIAL_WRITE_BYTES / 1e6,
        new_page_mb_per_s=new_page_mb_per_s,
    )


def measure_new_pages(directory: Path, seconds: float) -> float:
    """Return the MB/s that are written into a new file, without a sync, for ``seconds`` or up to
    PREALLOCATED_BYTES."""
    path = directory / "limit.bin"
    block = os.urandom(SEQUENTIAL_WRITE_BYTES)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        position = 0
        begin = now = time.perf_counter()
        while now - begin < seconds and position < PREALLOCATED_BYTES:
            position += os.pwrite(descriptor, block, position)
            now = time.perf_counter()
    finally:
        os.close(descriptor)
        path.unlink()
    return position / (now - begin) / 1e6


def measure_sync(directory: Path, write_bytes: int, seconds: float) -> SyncRate:
    """Write and ``fdatasync`` one block after the other into a preallocated file.

    Blocks are allocated beforehand, as a bookie's journal does it.
    """
    path = directory / "limit.bin"
    block = os.urandom(write_bytes)
    times_s: list[float] = []
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, PREALLOCATED_BYTES)
        os.fsync(descriptor)
        position = 0
        begin = now = time.perf_counter()
        while now - begin < seconds:
            os.pwrite(descriptor, block, position)
            os.fdatasync(descriptor)
            position = (position + write_bytes) % PREALLOCATED_BYTES
            before, now = now, time.perf_counter()
            times_s.append(now - before)
    finally:
        os.close(descriptor)
        path.unlink()
    return SyncRate(len(times_s) / (now - begin), percentile(sorted(times_s), 0.5) * 1e3)


def measure_loopback(seconds: float) -> float:
    """Return the MB/s that one process can send to another over TCP on 127.0.0.1, as received."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(CHILD_START_TIMEOUT_S)
        port = listener.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "fencelog.api.bench.harness.limits",
            str(port),
            str(seconds),
        ]
        sender = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            connection, _ = listener.accept()
            with connection:
                return _receive_all(connection)
        except TimeoutError:
            raise FencelogError(
                ErrorCode.INTERNAL, "the process that measures the loopback did not start"
            ) from None
        finally:
            sender.kill()
            sender.wait()


def _receive_all(connection: socket.socket) -> float:
    buffer = bytearray(4 * LOOPBACK_WRITE_BYTES)
    received = connection.recv_into(buffer)
    begin, total = time.perf_counter(), 0
    while received := connection.recv_into(buffer):
        total += received
    return total / (time.perf_counter() - begin) / 1e6


def _send_for(port: int, seconds: float) -> None:
    block = os.urandom(LOOPBACK_WRITE_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            connection.sendall(block)


if __name__ == "__main__":
    _send_for(int(sys.argv[1]), float(sys.argv[2]))
