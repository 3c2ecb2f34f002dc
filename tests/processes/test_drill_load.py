"""The reactions of a drill's clients to answers, refusals and silence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fencelog.api.client.conditions import Producer
from fencelog.api.drills.harness.account import Attempt
from fencelog.api.drills.harness.load import BATCH_MESSAGES, ClientLoad, LoadClient, end_of
from fencelog.ledgers.errors import ErrorCode, FencelogError

REFUSED, LOST = ErrorCode.NO_OWNER, ErrorCode.APPEND_UNKNOWN


class Script:
    """A sender that answers as the test wants it, and then is over."""

    def __init__(self, answers: Sequence[int | ErrorCode]) -> None:
        self._answers = list(answers)
        self.sent: list[tuple[bytes, Producer | None]] = []

    def is_over(self) -> bool:
        return not self._answers

    async def append(self, batch: bytes, producer: Producer | None = None) -> int:
        self.sent.append((batch, producer))
        answer = self._answers.pop(0)
        if isinstance(answer, ErrorCode):
            raise FencelogError(answer, "as the test wants it")
        return answer


class Endless:
    """A sender that acknowledges everything."""

    async def append(self, batch: bytes, producer: Producer | None = None) -> int:
        await asyncio.sleep(0.001)
        return 0


async def play(script: Script, *, producer_id: str | None = None) -> LoadClient:
    client = LoadClient(7, script, producer_id=producer_id, retry_delay_s=0)
    await client.run(is_over=script.is_over, on_acknowledged=lambda sent_at: None)
    return client


def attempts(*offsets: int | None) -> list[Attempt]:
    return [
        Attempt(7, number * BATCH_MESSAGES, BATCH_MESSAGES, offset)
        for number, offset in enumerate(offsets)
    ]


async def test_what_was_refused_is_sent_again() -> None:
    script = Script([REFUSED, REFUSED, 5, 25])
    client = await play(script)
    assert client.attempts == attempts(5, 25)
    assert (client.acknowledged, client.refused) == (2 * BATCH_MESSAGES, 2)
    assert len({batch for batch, _ in script.sent}) == 2


async def test_what_was_lost_is_not() -> None:
    script = Script([LOST, 5])
    client = await play(script)
    assert client.attempts == attempts(None, 5)
    assert script.sent[0] != script.sent[1]


async def test_what_a_producer_has_numbered_is_sent_until_it_is_known() -> None:
    script = Script([LOST, REFUSED, LOST, 5, 25])
    client = await play(script, producer_id="p")
    assert client.attempts == attempts(5, 25)
    assert client.resolved == 1
    sequences = [producer.sequence for _, producer in script.sent if producer is not None]
    assert sequences == [0, 0, 0, 0, BATCH_MESSAGES]
    assert len({batch for batch, _ in script.sent[:4]}) == 1


async def test_what_is_not_known_in_the_end_stays_unknown() -> None:
    assert (await play(Script([5, LOST, REFUSED]), producer_id="p")).attempts == attempts(5, None)
    assert (await play(Script([5, REFUSED]), producer_id="p")).attempts == attempts(5)


async def test_a_producer_that_counts_right_is_never_told_otherwise() -> None:
    with pytest.raises(FencelogError, match="as the test wants it"):
        await play(Script([5, ErrorCode.SEQUENCE_MISMATCH, 25]), producer_id="p")


async def test_an_interruption_ends_with_what_was_sent_since() -> None:
    load = ClientLoad()
    interruption = load.interrupt()
    interruption.ends(interruption.began_at - 1)
    assert not interruption.over.done()
    async with load.running():
        load.start(LoadClient(load.next_number(), Endless()))
        failover_ms = await end_of(interruption)
    assert failover_ms is not None
    assert load.take_silence_ms() > load.take_silence_ms() == 0
    assert load.attempts[0].offset == 0
