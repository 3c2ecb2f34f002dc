"""The output of a topic's messages while something happens to the topic: against a real service."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fencelog.api.client import FencelogClient, RawPage
from fencelog.api.streams.read_lines import ReadLinesOptions, read_lines
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_values
from tests.support.network.http_client import TIMEOUT_S, plain_http
from tests.support.until import PATIENCE_S


class Output(io.BytesIO):
    """An output whose first lines have a consequence before anything else is read."""

    def __init__(self, consequence: Callable[[], None]) -> None:
        super().__init__()
        self._consequences = [consequence]

    def flush(self) -> None:
        if self._consequences:
            self._consequences.pop()()


def recreate(service: str, topic: str, lines: bytes) -> None:
    """Delete a topic and create another of its name with these messages."""
    path = f"/v1/topics/{topic}"
    plain = {"content-type": "text/plain"}
    with httpx.Client(
        base_url=service, trust_env=False, verify=plain_http(), timeout=TIMEOUT_S
    ) as http:
        http.delete(path).raise_for_status()
        http.put(path).raise_for_status()
        http.post(f"{path}/messages:batch", content=lines, headers=plain).raise_for_status()


@pytest.mark.parametrize("as_json", [False, True])
async def test_following_ends_with_its_topic(service: str, topic: str, *, as_json: bool) -> None:
    """A new topic of the name has other messages at the offsets that are still to come."""
    async with FencelogClient(service) as client:
        await client.append_batch(topic, encode_values([b"old"] * 3), partition=0)
        old_id = (await client.topic(topic))["topic_id"]
        out = Output(lambda: recreate(service, topic, b"new\n" * 5))
        options = ReadLinesOptions(topic, service, follow=True, limit=5, as_json=as_json)
        with pytest.raises(FencelogError, match=old_id) as raised:
            await asyncio.wait_for(read_lines(options, out), PATIENCE_S)
        assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
        assert (out.getvalue().count(b"old"), out.getvalue().count(b"new")) == (3, 0)
        with pytest.raises(FencelogError, match=old_id):
            assert [batch async for batch in client.batches(topic, 0, topic_id=old_id)] == []
        assert [batch.count async for batch in client.batches(topic, 0)] == [5]


async def test_a_topic_is_read_as_fast_as_it_may_be(service: str, topic: str) -> None:
    lines = [b"%d" % number for number in range(300)]
    async with FencelogClient(service) as client:
        slow = f"{topic}.slow"
        await client.create_topic(slow, partitions=1, dispatch_messages_per_s=100)
        for first in range(0, len(lines), 100):
            batch = encode_values(lines[first : first + 100])
            await client.append_batch(slow, batch, partition=0)
    out = io.BytesIO()
    await asyncio.wait_for(read_lines(ReadLinesOptions(slow, service), out), PATIENCE_S)
    assert out.getvalue().splitlines() == lines


class LossyClient(FencelogClient):
    """A client whose first wait has no answer; a message is appended meanwhile."""

    was_lost = False

    async def read_as(self, media_type: str, topic: str, *place: Any, **bounds: Any) -> RawPage:
        if bounds["wait_s"] and not self.was_lost:
            self.was_lost = True
            await self.append(topic, b"meanwhile", partition=0)
            raise FencelogError(ErrorCode.REQUEST_TIMEOUT, "the answer was lost")
        return await super().read_as(media_type, topic, *place, **bounds)


async def test_following_from_the_end_leaves_out_nothing_where_a_wait_is_lost(
    service: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is that of the beginning, however often a request is repeated."""
    monkeypatch.setattr("fencelog.api.streams.read_lines.FencelogClient", LossyClient)
    async with FencelogClient(service) as client:
        await client.append(topic, b"before", partition=0)
        out = Output(lambda: None)
        options = ReadLinesOptions(topic, service, start="latest", follow=True, limit=1)
        reading = asyncio.create_task(read_lines(options, out))
        try:
            await asyncio.wait_for(asyncio.shield(reading), 3)
        except TimeoutError:  # it waits at a later end
            await client.append(topic, b"after", partition=0)
        await asyncio.wait_for(reading, PATIENCE_S)
    assert out.getvalue() == b"meanwhile\n"
