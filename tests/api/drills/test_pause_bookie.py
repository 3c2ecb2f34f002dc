"""What the drill that pauses bookies sees of their registrations, on a scripted cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.api.drills.bookie import pause
from fencelog.api.drills.bookie.bookie import BookieDrill

LATE = 3
"""The looks of the drill that still show what was before."""


@dataclass
class Victim:
    """The only bookie, and the directory in which it is."""

    leaves: bool = True
    name: str = "bookie-1"
    is_stopped: bool = False
    is_known: bool = True
    looks: int = 0

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.is_stopped, self.looks = True, 0
        yield
        self.is_stopped, self.looks = False, 0

    def available(self) -> list[str]:
        """Return who is registered, as a drill hears of it that stood still itself."""
        self.looks += 1
        if self.looks > LATE:
            self.is_known = not (self.is_stopped and self.leaves)
        return [self.name] if self.is_known else []


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAUSE_S", "SETTLE_S"):
        monkeypatch.setattr(pause, name, 0.01)


async def seen_of(victim: Victim) -> Any:
    nothing: Any = None
    cluster: Any = SimpleNamespace(bookies=[victim])
    directory: Any = victim
    drill = BookieDrill(cluster, directory, nothing, {}, nothing)
    return await pause._load_and_pause(drill, [], 2)


async def test_a_drill_that_hears_late_of_the_end_of_a_session_waits_for_it() -> None:
    seen = await seen_of(Victim())
    assert (seen.all_left, seen.all_back) == (True, True)


async def test_a_bookie_that_stays_registered_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause, "LEFT_S", 0.2)
    seen = await seen_of(Victim(leaves=False))
    assert (seen.all_left, seen.all_back) == (False, True)
