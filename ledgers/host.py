"""The Host port: wall clock and randomness, the two things that a process needs from its machine.

Time that passes (timeouts, delays) is the event loop's; only dates and chance come from here, so
that a simulator can supply both.
"""

from __future__ import annotations

import os
import random  # noqa: TID251 - the port itself
import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


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
