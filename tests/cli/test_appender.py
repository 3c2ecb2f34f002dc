"""Appending in order through refusals, lost answers and takeovers: against a scripted service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.client import Appended, FencelogClient, ReadPage
from fencelog.api.streams import appender as module
from fencelog.api.streams.appender import PartitionAppender
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import FramedBatch, encode_values, open_batch

WRITTEN, REFUSED, LOST, LOST_BUT_WRITTEN, LOST_AND_TAKEN_OVER, WRITTEN_AND_TAKEN_OVER = range(6)
"""The ways in which the service treats an append; the last four give no answer."""


@dataclass
class ScriptedService:
    """A partition of a log whose answers are scripted; after the script everything is written."""

    script: list[int]
    values: list[bytes] = field(default_factory=list)
    epoch: int = 1
    takeover_due: bool = False
    sent: list[bytes] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    async def append_batch(
        self, _topic: str, batch: bytes, *, partition: int | None, key: str | None
    ) -> Appended:
        fate = self.script.pop(0) if self.script else WRITTEN
        if fate == REFUSED:
            raise FencelogError(ErrorCode.NO_OWNER, "nobody owns it now")
        values = open_batch(batch)[1].values()
        self.sent += values
        self.keys.append(key)
        offset = len(self.values)
        if fate in (WRITTEN, LOST_BUT_WRITTEN, WRITTEN_AND_TAKEN_OVER):
            self.values += values
        if fate == WRITTEN:
            return Appended(partition or 0, offset, len(values))
        self.takeover_due = fate in (LOST_AND_TAKEN_OVER, WRITTEN_AND_TAKEN_OVER)
        raise FencelogError(ErrorCode.APPEND_UNKNOWN, "the answer was lost")

    async def owners(self, _topic: str) -> list[dict[str, Any]]:
        owner = {"partition": 0, "epoch": self.epoch}
        if self.takeover_due:
            self.epoch += 1
            self.takeover_due = False
        return [{"partition": 1, "epoch": 99}, owner]

    async def read(
        self, _topic: str, _partition: int, start: int | str, **_limits: Any
    ) -> ReadPage:
        tail = len(self.values)
        first = tail if isinstance(start, str) else max(0, start - 1)
        page = self.values[first : first + 2]
        frames = []
        if page:
            frames.append(FramedBatch(first, 0, len(page), memoryview(encode_values(page))))
        end = first + len(page)
        return ReadPage(end, tail, end == tail, frames)


def appender_to(service: ScriptedService, **options: Any) -> PartitionAppender:
    options = {"partition": 0, "resume": True} | options
    return PartitionAppender(cast("FencelogClient", service), "a/b", **options)


@pytest.fixture(autouse=True, scope="module")
def _no_delays() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PROOF_DELAY_S", 0.001)
        patch.setattr(module, "RETRY_S", 0.05)
        patch.setattr("fencelog.api.client.retry._DELAYS_S", (0.0,))
        yield


BATCHES = [[b"one", b"two", b"three"], [b"four"], [b"five", b"six"]]
EVERYTHING = [value for batch in BATCHES for value in batch]


PROVABLE = [WRITTEN, REFUSED, LOST_BUT_WRITTEN, LOST_AND_TAKEN_OVER, WRITTEN_AND_TAKEN_OVER]


@given(st.lists(st.sampled_from(PROVABLE), max_size=8))
def test_with_proof_everything_is_written_once_and_in_order(script: list[int]) -> None:
    service = ScriptedService(list(script))
    appender = appender_to(service)

    async def main() -> None:
        for batch in BATCHES:
            await appender.append(batch)

    asyncio.run(main())
    assert service.values == EVERYTHING
    assert (appender.acknowledged, appender.end) == (6, 6)


async def test_without_proof_the_outcome_stays_unknown_and_nothing_is_sent_again() -> None:
    service = ScriptedService([LOST])
    with pytest.raises(FencelogError, match="the answer was lost") as raised:
        await appender_to(service).append([b"one"])
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert service.sent == [b"one"]


@pytest.mark.parametrize("fate", [LOST, LOST_BUT_WRITTEN, LOST_AND_TAKEN_OVER])
async def test_without_the_promise_nothing_is_looked_for(fate: int) -> None:
    service = ScriptedService([fate])
    with pytest.raises(FencelogError) as raised:
        await appender_to(service, resume=False).append([b"one"])
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert service.sent == [b"one"]


async def test_another_producer_makes_it_unknown_for_good() -> None:
    service = ScriptedService([WRITTEN, LOST_AND_TAKEN_OVER])
    appender = appender_to(service)
    await appender.append([b"one"])
    service.values.append(b"somebody else's")
    with pytest.raises(FencelogError, match="the answer was lost") as raised:
        await appender.append([b"two"])
    assert "another producer" in raised.value.detail
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert service.sent.count(b"two") == 1


async def test_a_partition_that_has_messages_is_continued() -> None:
    service = ScriptedService([WRITTEN_AND_TAKEN_OVER], values=[b"old", b"older"])
    appender = appender_to(service)
    await appender.append([b"new"])
    assert service.values == [b"old", b"older", b"new"]
    assert appender.end == 3


async def test_a_definite_error_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    service = ScriptedService([])

    async def refuse(*_arguments: Any, **_options: Any) -> Appended:
        raise FencelogError(ErrorCode.PAYLOAD_TOO_LARGE, "too large")

    monkeypatch.setattr(service, "append_batch", refuse)  # this one answers differently
    with pytest.raises(FencelogError, match="too large"):
        await appender_to(service).append([b"one"])


async def test_a_key_is_sent_along_and_the_partition_it_chose_is_kept() -> None:
    service = ScriptedService([])
    appender = appender_to(service, partition=None, key="k", resume=False)
    await appender.append([b"one"])
    assert (service.keys, appender.partition) == (["k"], 0)


async def test_an_owner_that_comes_back_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session expired and it put its node back: the same log, the append still under way."""
    service = ScriptedService([LOST])
    owned, absent = service.owners, [True]

    async def owners(_topic: str) -> list[dict[str, Any]]:
        return [] if absent and absent.pop() else await owned(_topic)

    monkeypatch.setattr(service, "owners", owners)  # it is away for a moment
    with pytest.raises(FencelogError, match="the answer was lost"):
        await appender_to(service).append([b"one"])
    assert service.sent == [b"one"]
