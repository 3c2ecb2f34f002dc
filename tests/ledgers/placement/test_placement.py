"""The shell of placement: who is there, who failed, and when they may be chosen again."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded, so that a failure can be repeated
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.placement.core import LAST_RESORT_S, MAX_QUARANTINE_S
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.bookie_port import BookieClient, BookieInfo

T = TypeVar("T")


@dataclass
class Directory:
    infos: dict[str, BookieInfo] = field(default_factory=dict)

    def client(self, bookie_id: str) -> BookieClient:
        return AbsentBookie(bookie_id)

    def available(self) -> list[str]:
        return sorted(b for b, info in self.infos.items() if not info.is_read_only)

    def read_only(self) -> list[str]:
        return sorted(b for b, info in self.infos.items() if info.is_read_only)

    def describe(self, bookie_id: str) -> BookieInfo:
        return self.infos.get(bookie_id) or BookieInfo(bookie_id)


class SeededHost:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def now_us(self) -> int:
        return 0

    def random_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self._random.sample(items, len(items))

    def fraction(self) -> float:
        return self._random.random()


class Clock:
    """The running loop's time, moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


def placement_over(racks: str) -> tuple[Placement, Directory]:
    """b0, b1, … in the racks that the letters name."""
    infos = {f"b{n}": BookieInfo(f"b{n}", "1", rack) for n, rack in enumerate(racks)}
    directory = Directory(infos)
    return Placement(directory, host=SeededHost(1)), directory


def refused(call: Callable[[], object]) -> FencelogError:
    with pytest.raises(FencelogError) as caught:
        call()
    assert caught.value.code is ErrorCode.NOT_ENOUGH_BOOKIES
    return caught.value


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_only_writable_bookies_that_are_not_excluded() -> None:
    placement, directory = placement_over("aaaaa")
    directory.infos["b4"] = BookieInfo("b4", is_read_only=True)
    for _ in range(20):
        assert set(placement.choose(3, exclude={"b0"})) == {"b1", "b2", "b3"}
    assert str(refused(lambda: placement.choose(4, exclude={"b0"}))) == (
        "not_enough_bookies: need 4 bookies that take adds, there are 3 besides ['b0']; "
        "no adds are taken by b4 (read-only)"
    )
    assert "there are 4" in str(refused(lambda: placement.choose(5)))
    placement.check(4)


def test_full_disks_are_the_reason_only_where_they_suffice() -> None:
    placement, directory = placement_over("aaaa")
    directory.infos["b0"] = BookieInfo("b0", is_read_only=True, is_full=True)
    directory.infos["b1"] = BookieInfo("b1", is_read_only=True)
    with pytest.raises(FencelogError) as caught:
        placement.check(3)
    assert caught.value.code is ErrorCode.OUT_OF_SPACE
    assert caught.value.detail == (
        "need 3 bookies that take adds, there are 2; "
        "no adds are taken by b0 (its disk is full), b1 (read-only)"
    )
    assert "b1 (read-only)" in str(refused(lambda: placement.check(4)))
    assert "b0 " not in str(refused(lambda: placement.check(3, exclude={"b0"})))


async def test_one_that_failed_comes_last_until_its_quarantine_ends(clock: Clock) -> None:
    placement, _ = placement_over("aaaa")
    for _ in range(100):
        placement.report_failure("b1")  # everything that was on its way to it
    assert all("b1" not in placement.choose(3) for _ in range(50))
    assert "b1" in placement.choose(4)
    clock.now += 1
    assert any("b1" in placement.choose(3) for _ in range(50))


async def test_repeated_failures_count_longer(clock: Clock) -> None:
    placement, _ = placement_over("aaaa")
    for length in (1, 2, 4, 8):
        placement.report_failure("b1")
        clock.now += length - 0.5
        assert all("b1" not in placement.choose(3) for _ in range(50))
        clock.now += 0.5
        assert any("b1" in placement.choose(3) for _ in range(50))


async def test_forgotten_failures_take_no_memory(clock: Clock) -> None:
    placement, _ = placement_over("aaaa")
    for number in range(1000):
        placement.report_failure(f"gone{number}")
        clock.now += 1
    assert len(placement._quarantine) < 100


async def test_a_replacement_keeps_the_others_and_comes_from_outside() -> None:
    placement, _ = placement_over("aaaaaa")
    for _ in range(20):
        changed = placement.replace(("b0", "b1", "b2"), [1], write_quorum=3)
        assert (changed[0], changed[2]) == ("b0", "b2")
        assert changed[1] in {"b3", "b4", "b5"}
        assert set(placement.replace(("b0", "b1", "b2"), [0, 1, 2], write_quorum=3)) == {
            "b3",
            "b4",
            "b5",
        }
        assert (
            placement.replace(("b0", "b1", "b2"), [1], exclude={"b3", "b5"}, write_quorum=3)[1]
            == "b4"
        )


async def test_as_many_are_replaced_as_can_be() -> None:
    placement, _ = placement_over("aaaa")
    assert placement.replace(("b0", "b1", "b2"), [0, 2], write_quorum=3) == ("b3", "b1", "b2")
    placement, _ = placement_over("aaa")
    assert "no other is there" in str(
        refused(lambda: placement.replace(("b0", "b1", "b2"), [0], write_quorum=3))
    )


async def test_a_replacement_keeps_the_racks_apart() -> None:
    placement, directory = placement_over("abaaaab")
    for _ in range(20):  # b1 was the only one in rack b, b6 is the other one there
        assert placement.replace(("b0", "b1", "b2"), [1], write_quorum=3) == ("b0", "b6", "b2")
        changed = placement.replace(("b0", "b1", "b2", "b3"), [3], write_quorum=2)
        assert changed == ("b0", "b1", "b2", "b6")
    del directory.infos["b6"]
    assert placement.replace(("b0", "b1", "b2"), [1], write_quorum=3)[1] in {"b3", "b4", "b5"}


async def test_a_bookie_moves_only_to_where_its_write_sets_stand_in_more_racks() -> None:
    placement, directory = placement_over("aabca")
    ensemble = ("b0", "b1", "b2")
    assert placement.spread(ensemble, [0], write_quorum=3) == ("b3", "b1", "b2")
    assert placement.spread(ensemble, [0], write_quorum=3, exclude={"b3"}) is None
    assert placement.spread(("b0", "b3", "b2"), [0], write_quorum=3) is None
    directory.infos = {name: directory.infos[name] for name in ensemble}
    assert placement.spread(ensemble, [0], write_quorum=3) is None


async def test_dead_bookies_do_not_replace_each_other_without_end(clock: Clock) -> None:
    """Three that answer nothing: tried once each, and then once in LAST_RESORT_S at most."""
    placement, _ = placement_over("aaaaaa")
    ensemble = ("b0", "b1", "b2")
    tries = 0
    for _ in range(600):  # once a second, as a writer does
        try:
            changed = placement.replace(ensemble, [0], write_quorum=3)
        except FencelogError:
            pass
        else:
            tries += 1
            placement.report_failure(changed[0])
        clock.now += 1
    assert 0 < tries <= 3 * (600 / LAST_RESORT_S + 4)


async def test_after_an_outage_of_all_a_replacement_is_found_in_seconds(clock: Clock) -> None:
    placement, directory = placement_over("aaaa")
    for _ in range(300):  # five minutes in which nobody reaches anybody
        for bookie in directory.infos:
            placement.report_failure(bookie)
        clock.now += 1
    assert all("b3" in placement.choose(4) for _ in range(5))  # a new ensemble at once
    refused(lambda: placement.replace(("b0", "b1", "b2"), [1], write_quorum=3))
    clock.now += LAST_RESORT_S
    assert placement.replace(("b0", "b1", "b2"), [1], write_quorum=3) == ("b0", "b3", "b2")


async def test_a_last_resort_is_not_taken_while_another_is_well(clock: Clock) -> None:
    placement, _ = placement_over("aaaaa")
    for _ in range(10):
        placement.report_failure("b3")
        clock.now += MAX_QUARANTINE_S
    placement.report_failure("b3")
    clock.now += LAST_RESORT_S
    assert all(
        placement.replace(("b0", "b1", "b2"), [1], write_quorum=3)[1] == "b4" for _ in range(30)
    )


async def test_a_bookie_that_is_named_takes_a_place_if_it_may(clock: Clock) -> None:
    placement, directory = placement_over("aabcab")
    ensemble = ("b0", "b1", "b2")
    moved = partial(placement.moved, ensemble, write_quorum=3)
    assert moved(0, "b4") == ("b4", "b1", "b2")
    assert moved(0, "b3") == ("b3", "b1", "b2"), "in more racks"
    assert moved(2, "b5") == ("b0", "b1", "b5")
    assert moved(2, "b4") is None, "in fewer racks"
    assert moved(0, "b1") is None, "it is a member"
    assert moved(0, "b9") is None, "it is gone"
    directory.infos["b4"] = replace(directory.infos["b4"], is_read_only=True)
    assert moved(0, "b4") is None, "it takes no adds"
    placement.report_failure("b3")
    assert moved(0, "b3") is None, "it failed just now"
