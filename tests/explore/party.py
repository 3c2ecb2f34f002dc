"""One step of a party of a small world: its input and its effects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.rpc.bookie_port import BookieInfo
from tests.explore.messages import Outcome, Request
from tests.explore.metadata import NodeStore, Told, ledgers_over


@dataclass(slots=True)
class Scene:
    """The surroundings of one step. What chance would decide is ``choice``: a step that could have
    been another is taken again with each other choice."""

    bookies: tuple[str, ...]
    store: NodeStore
    incarnations: Mapping[str, str]
    choice: int = 0
    choices: int = 1
    sent: list[tuple[str, Request]] = field(default_factory=list)

    @property
    def ledgers(self) -> LedgerStore:
        return ledgers_over(self.store)

    def send(self, bookie_id: str, request: Request) -> None:
        self.sent.append((bookie_id, request))

    # -- what ``WriterMetadata`` asks a directory and a placement for ------------------------------

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id, self.incarnations[bookie_id])

    def replace(
        self,
        ensemble: tuple[str, ...],
        failed: Iterable[int],
        *,
        write_quorum: int,
        exclude: Collection[str] = (),
    ) -> tuple[str, ...]:
        """Replace members as ``Placement.replace``, without its preferences: any bookie may be
        taken."""
        free = [b for b in self.bookies if b not in ensemble and b not in exclude]
        if not free:
            raise FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "no other bookie is there")
        self.choices = len(free)
        taken = iter(free[self.choice :] + free[: self.choice])
        members = list(ensemble)
        for index in failed:
            members[index] = next(taken, members[index])
        return tuple(members)


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A change of metadata whose answer was lost, and what it was made with: it goes on as it
    began."""

    choice: int
    incarnations: tuple[tuple[str, str], ...]
    told: Told

    @classmethod
    def of(cls, scene: Scene) -> Unresolved:
        return cls(scene.choice, tuple(sorted(scene.incarnations.items())), tuple(scene.store.told))

    def restore(self, scene: Scene) -> None:
        scene.choice, scene.choices = self.choice, 1
        scene.incarnations = dict(self.incarnations)
        scene.store.replay(self.told)


Move = tuple[Any, ...]
"""A step that a party takes by itself: its name and arguments. The steps of ``CHANGES`` touch
metadata."""

LOOK_AGAIN: Move = ("look again",)
"""The wait for a bookie that may have registered; a writer never waits for that alone."""

CHANGES = frozenset({"change", "close", "begin", "delete"})


class Party:
    """One client. ``broken``: what went wrong in it, where nothing may."""

    broken: str

    def moves(self) -> list[Move]:
        """Return what it may do by itself now."""
        raise NotImplementedError

    def perform(self, move: Move, scene: Scene) -> None:
        raise NotImplementedError

    def cares(self, request: Request, bookie_id: str) -> bool:
        """Tell whether it would use an answer."""
        raise NotImplementedError

    def hear(self, bookie_id: str, request: Request, outcome: Outcome, scene: Scene) -> None:
        raise NotImplementedError

    def hangs(self) -> str:
        """Return what it waits for, at an end where nothing comes any more; empty if it does
        not."""
        raise NotImplementedError


def error_of(outcome: Outcome) -> FencelogError | None:
    return FencelogError(outcome, outcome.slug) if isinstance(outcome, ErrorCode) else None
