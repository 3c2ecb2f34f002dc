"""The Host port: wall clock and randomness, the two things that a process needs from its machine.

Time that passes (timeouts, delays) is the event loop's; only dates and chance come from here, so
that a simulator can supply both.
"""

from __future__ import annotations

import ctypes
import os
import random  # noqa: TID251 - the port itself
import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024


class Host(Protocol):
    """Wall clock and randomness."""

    def now_us(self) -> int:
        """Return microseconds since 1970 UTC. The value may jump in either direction."""

    def random_bytes(self, size: int) -> bytes:
        """Return unpredictable bytes, for tokens and ids."""

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in random order."""

    def fraction(self) -> float:
        """Return a random number, 0 <= it < 1."""


class SystemHost:
    """The machine this process runs on."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return random.sample(items, len(items))

    def fraction(self) -> float:
        return random.random()


def keep_freed_memory(size: int) -> None:
    """Let this process keep up to ``size`` bytes that it has freed, for its next buffers.

    By default glibc returns large buffers to the system at once, and each page of the next one is
    faulted in anew, which takes several times as long as to fill it: runs of a megabyte come and go
    with every read and every append. With another C library nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, size)
