"""The bench of a bookie where the bookie refuses: it ends, and says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.api.bench import bookie as bench
from fencelog.ledgers.errors import ErrorCode, FencelogError


class FullDisk:
    """A bookie that stores four runs."""

    def __init__(self) -> None:
        self.asked = 0

    def add(
        self, _run: bytes, *, on_reply: Callable[[FencelogError | None], None], **_options: Any
    ) -> None:
        self.asked += 1
        refusal = FencelogError(ErrorCode.OUT_OF_SPACE, "the disk is full")
        reply = None if self.asked < 5 else refusal
        asyncio.get_running_loop().call_later(0.001, on_reply, reply)


async def test_a_bookie_that_refuses_runs_ends_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    full = FullDisk()

    @asynccontextmanager
    async def connected(_bookie: object) -> AsyncIterator[FullDisk]:
        yield full

    monkeypatch.setattr(bench, "_connected", connected)
    bookie: Any = SimpleNamespace(announcement={"incarnation": 1})
    async with asyncio.timeout(10):
        with pytest.raises(FencelogError, match="the disk is full"):
            await bench._store(bookie, (b"x" for _ in range(1000)))
    assert full.asked < 1000
