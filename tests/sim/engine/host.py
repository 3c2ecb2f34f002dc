"""A simulated machine's wall clock and chance: the Host port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tests.sim.engine.engine import Engine

T = TypeVar("T")

_START_US = 1_700_000_000_000_000
"""The date at which every run begins."""


class SimHost:
    """Implements ``Host`` for a machine. ``skew_us`` moves its clock, in either direction."""

    def __init__(self, engine: Engine, machine: str) -> None:
        self.skew_us = 0
        self._engine = engine
        self._chance = engine.random(f"host {machine}")

    def now_us(self) -> int:
        return _START_US + self._engine.now_us + self.skew_us

    def random_bytes(self, size: int) -> bytes:
        return self._chance.randbytes(size)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self._chance.sample(items, len(items))

    def fraction(self) -> float:
        return self._chance.random()
