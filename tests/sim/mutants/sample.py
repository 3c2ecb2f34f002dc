"""A small module that the tests of the mutation engine and of its runner change."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

SAMPLE = '''"""A sample."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass

LIMIT = 3


def is_enough(count: int, *, limit: int = 2) -> bool:
    return count >= limit


def make_adder(step: int):
    def add(value: int) -> int:
        return value + step

    return add


@contextmanager
def opened():
    yield "open"


class Base:
    def name(self) -> str:
        return "base"


class Account(Base):
    __secret = 7

    def __init__(self) -> None:
        self.total = 0

    def pay(self, amount: int) -> int:
        self.total += amount
        return self.total

    def name(self) -> str:
        return super().name() + "!"

    def secret(self) -> int:
        return self.__secret + 1

    @property
    def doubled(self) -> int:
        return self.total * 2

    @functools.cached_property
    def tripled(self) -> int:
        return self.total * 3

    @classmethod
    def called(cls) -> str:
        return cls.__name__ + " class"

    @staticmethod
    def sign(value: int) -> int:
        return 1 if value > 0 else -1

    async def later(self) -> str:
        return "later"

    def counter(self):
        def count() -> int:
            return self.total + 10

        return count

    def fails(self) -> None:
        raise ValueError("failed")


@dataclass(frozen=True, slots=True)
class Point:
    x: int

    def moved(self, by: int) -> Point:
        return Point(self.x + by)


class Odd:
    @property
    def twice(self) -> int:
        return 1

    @twice.setter
    def twice(self, value: int) -> None:
        raise ValueError

    borrowed = Base.name
'''

NAME = "mutation_sample"


def mutant(*edits: tuple[str, str, str]) -> Mutant:
    return Mutant("sample", "none", "Nothing.", tuple(Edit(NAME, *edit) for edit in edits))
