"""The Python client's consumer: leases that are kept, acknowledgements that are gathered."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace

import anyio
import pytest

from fencelog.api.client import retry
from fencelog.api.client.consumer import Consumer
from fencelog.api.client.subscription import LeasedMessage, SubscriptionCalls
from fencelog.ledgers.errors import ErrorCode, FencelogError


def leased(number: int) -> LeasedMessage:
    return LeasedMessage(0, number, 0, b"%d" % number, None, None, (), f"id-{number}", 1)


class Calls(SubscriptionCalls):
    """A service that hands out ``batches``, then waits."""

    def __init__(self, *batches: Sequence[int]) -> None:
        self.batches = [[leased(n) for n in batch] for batch in batches]
        self.acks: list[list[str]] = []
        self.nacks: list[tuple[list[str], int | None]] = []
        self.unused: list[list[str]] = []
        self.did: list[str] = []
        self.type = "shared"
        self.extended: list[list[str]] = []
        self.stale: list[str] = []
        self.failures: list[FencelogError] = []
        self.lost_pulls: list[FencelogError] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.extension = asyncio.Event()
        self.acknowledged = asyncio.Event()

    async def subscription(self, topic: str, subscription: str) -> dict[str, object]:
        return {"lease_ms": 30, "type": self.type}

    async def pull(self, topic: str, subscription: str, **_: object) -> list[LeasedMessage]:
        self.did.append("pull")
        if self.lost_pulls:
            raise self.lost_pulls.pop(0)
        if not self.batches:
            await asyncio.Event().wait()
        return self.batches.pop(0)

    async def ack(self, topic: str, subscription: str, ack_ids: Sequence[str]) -> list[str]:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.did.append("ack")
        self.acks.append(list(ack_ids))
        self.acknowledged.set()
        return []

    async def nack(
        self,
        topic: str,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        delay_ms: int | None = None,
        failed: bool = True,
    ) -> list[str]:
        if self.failures:
            raise self.failures.pop(0)
        if failed:
            self.nacks.append((sorted(ack_ids), delay_ms))
        else:
            self.unused.append(sorted(ack_ids))
        return []

    async def give_back(self, topic: str, subscription: str, consumer: str) -> None:
        self.did.append(f"give back {consumer}")
        if self.failures:
            raise self.failures.pop(0)

    async def extend(
        self, topic: str, subscription: str, ack_ids: Sequence[str], lease_ms: int, **_: object
    ) -> list[str]:
        self.extended.append(sorted(ack_ids))
        self.extension.set()
        return self.stale


def consume(calls: Calls) -> Consumer:
    return Consumer(calls, "t", "s")


async def test_what_is_acknowledged_meanwhile_goes_together() -> None:
    calls = Calls(range(5))
    async with consume(calls) as messages:
        calls.gate.clear()
        for _ in range(5):
            messages.ack(await anext(messages))
            await asyncio.sleep(0)
        calls.gate.set()
    assert sorted(ack_id for ids in calls.acks for ack_id in ids) == [f"id-{n}" for n in range(5)]
    assert len(calls.acks) <= 3
    assert calls.nacks == []


async def test_what_was_not_acknowledged_is_given_back_at_the_end() -> None:
    """What the loop has not come to has not failed."""
    calls = Calls(range(5))

    async def work() -> None:
        async with consume(calls) as messages:
            messages.ack(await anext(messages))
            messages.nack(await anext(messages), delay_ms=50)
            await anext(messages)
            raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        await work()
    assert calls.acks == [["id-0"]]
    assert sorted(calls.nacks) == [(["id-1"], 50), (["id-2"], 0)]
    assert calls.unused == [["id-3", "id-4"]]


async def test_what_was_not_acknowledged_is_given_back_when_the_block_is_cancelled() -> None:
    calls = Calls(range(3))
    with anyio.CancelScope() as scope:
        async with consume(calls) as messages:
            messages.ack(await anext(messages))
            scope.cancel()
            await anext(messages)
            await messages.flush()
    assert scope.cancelled_caught
    assert calls.acks == [["id-0"]]
    assert calls.nacks == [(["id-1"], 0)]
    assert calls.unused == [["id-2"]]


async def test_leases_are_kept_and_what_was_lost_is_not_handed_out() -> None:
    calls = Calls(range(3))
    calls.stale = ["id-2"]
    async with consume(calls) as messages:
        first = await anext(messages)
        messages.ack(first)
        await messages.flush()
        await calls.extension.wait()
        await asyncio.sleep(0)
        assert calls.extended[0] == ["id-1", "id-2"]
        calls.batches.append([leased(9)])
        assert [(await anext(messages)).offset for _ in range(2)] == [1, 9]


async def test_flush_waits_for_what_is_on_its_way() -> None:
    calls = Calls([0])
    calls.gate.clear()
    async with consume(calls) as messages:
        messages.ack(await anext(messages))
        await asyncio.sleep(0)
        flushing = asyncio.create_task(messages.flush())
        await asyncio.sleep(0)
        assert not flushing.done()
        calls.gate.set()
        await flushing
        assert calls.acks == [["id-0"]]


async def test_an_acknowledgement_of_unknown_outcome_is_repeated() -> None:
    calls = Calls([0])
    calls.failures = [FencelogError(ErrorCode.STATE_UNKNOWN, "no answer")]
    async with consume(calls) as messages:
        messages.ack(await anext(messages))
        await messages.flush()
    assert calls.acks == [["id-0"]]


PASSING = (
    ErrorCode.STATE_UNKNOWN,
    ErrorCode.NO_OWNER,
    ErrorCode.RATE_LIMITED,
    ErrorCode.DRAINING,
    ErrorCode.REQUEST_TIMEOUT,
)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return what is slept between repeated requests, which takes no time."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        slept.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(retry, "anyio", SimpleNamespace(**vars(anyio) | {"sleep": note}))
    return slept


async def test_pulls_go_on_whatever_becomes_of_brokers_and_answers(pauses: list[float]) -> None:
    calls = Calls([7])
    calls.lost_pulls = [FencelogError(code, "away") for code in PASSING * 5]
    async with consume(calls) as messages:
        assert (await anext(messages)).offset == 7
    assert len(pauses) == len(PASSING) * 5
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.05, 5.0)


@pytest.mark.parametrize("code", [ErrorCode.SUBSCRIPTION_BUSY, ErrorCode.TOPIC_NOT_FOUND])
async def test_what_does_not_pass_ends_the_loop(pauses: list[float], code: ErrorCode) -> None:
    calls = Calls()
    calls.lost_pulls = [FencelogError(ErrorCode.NO_OWNER, "away"), FencelogError(code, "no")]
    with pytest.raises(FencelogError) as raised:
        async with consume(calls) as messages:
            await anext(messages)
    assert raised.value.code is code


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_after_a_failure_in_order_nothing_behind_it_is_handed_out(
    pauses: list[float], kind: str
) -> None:
    """The service delivers all that is not acknowledged again, once it knows of the failure."""
    calls = Calls(range(3))
    calls.type = kind
    calls.batches[0].insert(1, replace(leased(9), partition=1))
    calls.failures = [FencelogError(ErrorCode.NO_OWNER, "away")]
    async with consume(calls) as messages:
        messages.nack(await anext(messages), delay_ms=5)
        other = await anext(messages)
        assert (other.partition, other.offset) == (1, 9)
        messages.ack(other)
        calls.batches.append([leased(n) for n in range(3)])
        calls.gate.clear()
        async with asyncio.TaskGroup() as group:
            coming = group.create_task(messages.__anext__())
            for _ in range(20):
                await asyncio.sleep(0)
            pulled_before = not calls.batches
            calls.gate.set()
        assert coming.result().offset == 0
        assert not pulled_before, "a pull before the service knows of the failure"
        assert calls.nacks == [(["id-0"], 5)]


LOST = [
    FencelogError(ErrorCode.STATE_UNKNOWN, "no answer"),
    FencelogError(ErrorCode.DRAINING, "the broker that was asked is being closed"),
]


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_nothing_comes_before_what_a_lost_answer_has_leased(
    pauses: list[float], kind: str, lost: FencelogError
) -> None:
    """What was acknowledged does not come again; what was not does, in order."""
    calls = Calls([0, 1], [1, 2])
    calls.type = kind
    async with Consumer(calls, "t", "s", consumer="c") as messages:
        calls.gate.clear()
        messages.ack(await anext(messages))
        await anext(messages)
        calls.lost_pulls = [lost]
        calls.gate.set()
        assert (await anext(messages)).offset == 1
        assert [what for what in calls.did if what != "ack"] == [
            "pull",
            "pull",
            "give back c",
            "pull",
        ]
        assert "ack" in calls.did[: calls.did.index("give back c")]
        assert (await anext(messages)).offset == 2
        assert calls.nacks == []
    assert calls.nacks == [(["id-1", "id-2"], 0)]


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_a_pull_that_is_not_waited_for_may_have_leased(kind: str) -> None:
    calls = Calls()
    calls.type = kind
    async with Consumer(calls, "t", "s", consumer="c") as messages:
        with anyio.move_on_after(0.01) as scope:
            await anext(messages)
        assert scope.cancelled_caught
        calls.batches.append([leased(0)])
        assert (await anext(messages)).offset == 0
    assert calls.did == ["pull", "give back c", "pull"]


@pytest.mark.parametrize(
    ("refused", "asked"), [(ErrorCode.BAD_REQUEST, {1}), (ErrorCode.STATE_UNKNOWN, range(2, 40))]
)
async def test_what_cannot_be_given_back_comes_when_its_leases_have_ended(
    refused: ErrorCode, asked: Collection[int]
) -> None:
    """As at brokers of the version before, or where a partition has no owner for longer."""
    calls = Calls([0])
    calls.type = "failover"
    calls.lost_pulls = [LOST[0]]
    calls.failures = [FencelogError(refused, "not here") for _ in range(40)]
    began_s = asyncio.get_running_loop().time()
    async with Consumer(calls, "t", "s", consumer="c", lease_ms=200) as messages:
        assert (await anext(messages)).offset == 0
        assert asyncio.get_running_loop().time() - began_s >= 0.2
        calls.failures = []
    given_back = calls.did.count("give back c")
    assert given_back in asked
    assert calls.did == ["pull", *["give back c"] * given_back, "pull"]


async def test_what_could_not_be_given_back_is_before_the_next_pull(pauses: list[float]) -> None:
    calls = Calls([0])
    calls.type = "exclusive"
    calls.lost_pulls = [LOST[0]]
    calls.failures = [FencelogError(ErrorCode.NO_OWNER, "away")]
    async with Consumer(calls, "t", "s", consumer="c") as messages:
        assert (await anext(messages)).offset == 0
    assert calls.did == ["pull", *["give back c"] * 2, "pull"]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("exclusive", FencelogError(ErrorCode.NO_OWNER, "nothing was done")),
        ("shared", LOST[0]),
        ("key_shared", LOST[0]),
    ],
)
async def test_nothing_is_given_back_without_need(
    pauses: list[float], kind: str, error: FencelogError
) -> None:
    """Others would get what this consumer is still working on."""
    calls = Calls([0])
    calls.type = kind
    calls.lost_pulls = [error]
    async with consume(calls) as messages:
        assert (await anext(messages)).offset == 0
    assert calls.did == ["pull", "pull"]


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_a_nack_that_comes_too_late_takes_nothing_back(kind: str) -> None:
    """The service goes back for a message that is leased, and for no other one."""
    calls = Calls(range(5), range(5, 10))
    calls.type = kind
    async with consume(calls) as messages:
        first = await anext(messages)
        second = await anext(messages)
        messages.ack(second)
        messages.nack(second, delay_ms=5)
        assert (await anext(messages)).offset == 2
        messages.nack(first, delay_ms=5)
        assert (await anext(messages)).offset == 5  # the service has gone back
        messages.nack(first, delay_ms=5)
        assert (await anext(messages)).offset == 6
        for _ in range(3):
            messages.ack(await anext(messages))
    assert calls.unused == []


async def test_a_refusal_whose_answer_is_lost_is_repeated(pauses: list[float]) -> None:
    calls = Calls([0])
    calls.failures = [FencelogError(ErrorCode.STATE_UNKNOWN, "no answer")]
    async with consume(calls) as messages:
        messages.nack(await anext(messages), delay_ms=5)
        await messages.flush()
    assert calls.nacks == [(["id-0"], 5)]


async def test_an_outage_is_outlasted_by_what_waits_to_be_acknowledged(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls([0], [1])
    away = FencelogError(ErrorCode.NO_OWNER, "away")
    async with consume(calls) as messages:
        monkeypatch.setattr(
            retry.retry_idempotent, "__kwdefaults__", {"timeout_s": -1.0, "passes": False}
        )
        messages.ack(await anext(messages))
        calls.failures = [away, away]
        with pytest.raises(FencelogError):
            await messages.flush()
        assert (await anext(messages)).offset == 1
        await calls.acknowledged.wait()
    assert calls.acks == [["id-0"]]


async def test_a_consumer_that_was_not_entered_gives_no_message() -> None:
    """Nobody would send its acknowledgements."""
    messages = consume(Calls([0]))
    with pytest.raises(FencelogError, match="async with") as raised:
        await anext(messages)
    assert raised.value.code is ErrorCode.BAD_REQUEST


async def test_an_acknowledgement_that_is_refused_ends_the_loop() -> None:
    calls = Calls([0, 1])
    gone = FencelogError(ErrorCode.SUBSCRIPTION_NOT_FOUND, "it was deleted")
    calls.failures = [gone, gone]

    async def work() -> None:
        async with consume(calls) as messages:
            async for message in messages:
                messages.ack(message)

    with pytest.raises(FencelogError) as raised:
        await work()
    assert raised.value is gone
