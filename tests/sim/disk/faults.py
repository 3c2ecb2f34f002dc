"""The faults of a simulated disk, decided call by call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from errno import ENOSPC
from random import Random  # noqa: TID251 - for its type: the streams are the engine's


class Death(Enum):
    """The moment of a process's death, relative to the operation at which it dies."""

    BEFORE = "before"
    AMID = "amid"
    AFTER = "after"


@dataclass(slots=True)
class _Rule:
    operation: str
    suffix: str
    error: int
    count: int


class Faults:
    """The failures planned for one disk."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._rules: list[_Rule] = []
        self._effects_left: int | None = None
        self.is_full = False

    def fail(self, operation: str, suffix: str, error: int, count: int) -> None:
        self._rules.append(_Rule(operation, suffix, error, count))

    def stop_failing(self) -> None:
        self._rules.clear()

    def die_after(self, operations: int | None) -> None:
        self._effects_left = operations

    def error(self, operation: str, name: str, *, takes_space: bool) -> OSError | None:
        """Return what the next call is to raise."""
        if not self._rules and not self.is_full:  # mostly
            return None
        for rule in self._rules:
            if rule.operation == operation and name.endswith(rule.suffix):
                rule.count -= 1
                if rule.count <= 0:
                    self._rules.remove(rule)
                return OSError(rule.error, f"{operation} was made to fail", name)
        if self.is_full and takes_space:
            return OSError(ENOSPC, "the disk is full", name)
        return None

    def death(self) -> Death | None:
        """Count an effect, and return the death that it brings if it is the last one."""
        if self._effects_left is None:
            return None
        self._effects_left -= 1
        if self._effects_left > 0:
            return None
        self._effects_left = None
        return self._random.choice(tuple(Death))
