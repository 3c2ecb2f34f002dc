"""Services of a bookie: one that dies comes back, and none outlives the bookie."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from fencelog.bookie.maintenance import maintenance
from fencelog.bookie.maintenance.maintenance import running
from tests.support.bookie_stage import Requests


async def test_a_service_that_dies_or_ends_is_reported_and_started_again(
    requests: Requests, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintenance, "_PAUSE_S", 0.0)
    starts = {"dies": 0, "ends": 0, "stays": 0}
    left: list[str] = []

    async def dies() -> None:
        starts["dies"] += 1
        raise ValueError("a bug")

    async def ends() -> None:
        starts["ends"] += 1

    async def stays() -> None:
        starts["stays"] += 1
        try:
            await asyncio.Event().wait()
        finally:
            left.append("stays")

    async with running("b1", {"dies": dies, "ends": ends, "stays": stays}):
        await requests.until(lambda: min(starts["dies"], starts["ends"]) > 2)
    assert (starts["stays"], left) == (1, ["stays"])
    died = [r for r in caplog.records if "its service dies died" in r.getMessage()]
    assert died[0].exc_info is not None
    assert "its service ends ended" in caplog.text
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    before = dict(starts)
    await asyncio.sleep(0)
    assert starts == before


async def test_who_leaves_waits_for_services_that_tidy_up() -> None:
    tidied = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            tidied.set()

    with contextlib.suppress(ZeroDivisionError):
        async with running("b1", {"slow": slow}):
            await asyncio.sleep(0)
            raise ZeroDivisionError
    assert tidied.is_set()
