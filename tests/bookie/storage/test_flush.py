"""A flush moves runs from the cache to the disk, and reads find them at any moment of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.bookie_stage import OpenBookie, Requests


async def test_entries_are_found_while_they_are_flushed(
    open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has them only when the flush has ended: until then the cache does."""
    bookie = await open_bookie(flush_interval_ms=3_600_000)
    shard = bookie.shard(1)
    shard.flusher.request()  # what the start of a bookie has left to do
    await requests.until(lambda: shard.flusher.completed > 0 and shard.flusher._begun is None)
    before = shard.flusher.completed
    run = requests.run(1, 0, 5)
    assert await requests.add(bookie, run) is None
    store = shard.storage.store
    has_begun, goes_on = threading.Event(), threading.Event()

    def slow(*args: Any) -> None:
        has_begun.set()
        assert goes_on.wait(60)
        store(*args)

    monkeypatch.setattr(shard.storage, "store", slow)
    shard.flusher.request()
    try:
        await requests.until(has_begun.is_set)
        assert await requests.read(bookie, 1, 0) == run
    finally:
        goes_on.set()
    await requests.until(lambda: shard.flusher.completed > before)
    assert await requests.read(bookie, 1, 0) == run
