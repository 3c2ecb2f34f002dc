"""The append of lines to a topic with a rate: against a real service."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.streams import append_lines as module
from fencelog.api.streams.append_lines import AppendOptions, Summary, append_lines
from fencelog.ledgers.record_batch import open_batch
from tests.support.until import PATIENCE_S

BATCH = 100
"""The lines of one append here."""

LINES = [b"%d" % number for number in range(3 * BATCH)]

each_way = pytest.mark.parametrize("producer_id", [None, "p"])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of three appends."""
    monkeypatch.setattr(module, "MAX_LINES", BATCH)
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(LINES))
    return file


async def append(options: AppendOptions, file: Path) -> Summary:
    appending = append_lines(options, file, on_progress=lambda _: None)
    return await asyncio.wait_for(appending, PATIENCE_S)


async def values_of(client: FencelogClient, topic: str) -> list[bytes]:
    batches = [found.batch async for found in client.batches(topic, 0)]
    return [value for batch in batches for value in open_batch(batch)[1].values()]


@each_way
async def test_lines_are_appended_as_fast_as_the_topic_takes_them(
    service: str, topic: str, file: Path, producer_id: str | None
) -> None:
    async with FencelogClient(service) as client:
        slow = f"{topic}.slow"
        await client.create_topic(slow, partitions=1, publish_messages_per_s=BATCH)
        await append(AppendOptions(slow, service, producer_id=producer_id), file)
        assert await values_of(client, slow) == LINES


@each_way
async def test_an_interrupt_ends_the_pause_that_a_topic_asks_for(
    service: str,
    topic: str,
    file: Path,
    producer_id: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = module._Pauses.take

    async def interrupted(pauses: module._Pauses, pause_s: float) -> bool:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        return await take(pauses, pause_s)

    monkeypatch.setattr(module._Pauses, "take", interrupted)
    async with FencelogClient(service) as client:
        slow = f"{topic}.slow"
        await client.create_topic(slow, partitions=1, publish_messages_per_s=1)
        summary = await append(AppendOptions(slow, service, producer_id=producer_id), file)
        assert summary.interrupted
        assert summary.appended.startswith(f"{BATCH} messages")
        assert await values_of(client, slow) == LINES[:BATCH]
