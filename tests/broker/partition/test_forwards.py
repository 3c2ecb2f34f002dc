"""Requests to an owner that may go silent: they end soon after its node and its registration are
gone, and not before."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.partition import forwards as forwards_module
from fencelog.broker.partition.forwards import Forwards, OwnerLost
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError

OWNER, OTHER = "http://owner", "http://other"


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards_module, "OWNER_LOST_MS", 30)
    monkeypatch.setattr(forwards_module, "OWNER_MOVED_MS", 60_000)


def is_gone(url: str) -> bool:
    return False


def sent(forwards: Forwards) -> AppendFuture:
    """A single message in flight to the owner."""
    future: AppendFuture = asyncio.get_running_loop().create_future()
    forwards.appends(OWNER).futures[future] = None
    return future


async def never() -> None:
    await asyncio.Event().wait()


async def test_an_answer_is_passed_on_also_when_the_owner_has_just_gone() -> None:
    forwards = Forwards(is_gone)
    answered = asyncio.Event()

    async def slow() -> str:
        await answered.wait()
        return "answer"

    request = asyncio.create_task(forwards.run(OWNER, slow, owner_url=OWNER))
    await asyncio.sleep(0)
    forwards.owner_is(None)
    answered.set()
    assert await request == "answer"


@pytest.mark.parametrize("successor", [None, OTHER])
async def test_a_request_to_a_silent_owner_ends_when_it_owns_nothing_any_more(
    successor: str | None,
) -> None:
    forwards = Forwards(is_gone)
    request = asyncio.create_task(forwards.run(OWNER, never, owner_url=OWNER))
    await asyncio.sleep(0.05)
    assert not request.done()
    forwards.owner_is(successor)
    with pytest.raises(OwnerLost) as raised:
        async with asyncio.timeout(10):
            await request
    assert raised.value.code.effects is Effects.MAYBE
    forwards.owner_is(OWNER)  # of no concern to it any more


async def test_an_owner_that_was_gone_before_the_request_began_is_not_waited_for_either() -> None:
    with pytest.raises(OwnerLost):
        async with asyncio.timeout(10):
            await Forwards(is_gone).run(OWNER, never, owner_url=None)


async def test_an_owner_that_puts_its_node_back_is_waited_for() -> None:
    forwards = Forwards(is_gone)
    request = asyncio.create_task(forwards.run(OWNER, never, owner_url=OWNER))
    await asyncio.sleep(0)
    forwards.owner_is(None)
    forwards.owner_is(OWNER)
    await asyncio.sleep(0.08)
    assert not request.done()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_a_living_broker_that_gives_the_partition_up_is_waited_for() -> None:
    """It passes the request on to the next owner, which may take it some seconds to open."""
    registered = {OWNER}
    forwards = Forwards(registered.__contains__)
    request = asyncio.create_task(forwards.run(OWNER, never, owner_url=OWNER))
    await asyncio.sleep(0)
    forwards.owner_is(OTHER)
    await asyncio.sleep(0.12)
    assert not request.done()
    registered.clear()  # its session has ended, or it has ended by itself
    with pytest.raises(OwnerLost):
        async with asyncio.timeout(10):  # long before OWNER_MOVED_MS
            await request


async def test_a_broker_that_is_registered_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwards_module, "OWNER_MOVED_MS", 100)
    forwards = Forwards(lambda url: True)
    with pytest.raises(OwnerLost):
        async with asyncio.timeout(10):
            await forwards.run(OWNER, never, owner_url=OTHER)


async def test_a_look_of_an_earlier_loss_ends_nothing() -> None:
    """An owner was lost, has come back, and is lost again: its time begins anew."""
    forwards = Forwards(is_gone)
    request = asyncio.create_task(forwards.run(OWNER, never, owner_url=None))
    await asyncio.sleep(0.02)
    forwards.owner_is(OWNER)
    forwards.owner_is(None)
    lost_s = asyncio.get_running_loop().time()
    with pytest.raises(OwnerLost):
        async with asyncio.timeout(10):
            await request
    assert asyncio.get_running_loop().time() - lost_s >= 0.029


async def test_a_time_out_of_the_requests_own_is_not_mistaken_for_it() -> None:
    async def timed_out() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await Forwards(is_gone).run(OWNER, timed_out, owner_url=OWNER)


@pytest.mark.parametrize("successor", [None, OTHER])
async def test_single_messages_to_a_silent_owner_are_unknown_when_it_owns_nothing_any_more(
    successor: str | None,
) -> None:
    forwards = Forwards(is_gone)
    futures = [sent(forwards) for _ in range(20)]
    futures[0].cancel()
    await asyncio.sleep(0.05)
    assert not futures[1].done()
    ended = list[AppendFuture]()
    for future in futures[1:]:
        future.add_done_callback(ended.append)
    forwards.owner_is(successor)
    for future in futures[1:]:
        with pytest.raises(FencelogError) as raised:
            async with asyncio.timeout(10):
                await future
        assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    await asyncio.sleep(0)  # the others of that turn are told
    assert ended == futures[1:]
    assert not forwards.appends(OWNER).futures
    forwards.owner_is(OWNER)
    later = sent(forwards)
    await asyncio.sleep(0.08)
    assert not later.done()  # that broker owns the partition again


async def test_single_messages_wait_for_an_owner_that_puts_its_node_back() -> None:
    forwards = Forwards(is_gone)
    future = sent(forwards)
    forwards.owner_is(None)
    forwards.owner_is(OWNER)
    await asyncio.sleep(0.08)
    assert not future.done()


async def test_owners_that_nothing_is_in_flight_to_are_forgotten() -> None:
    forwards = Forwards(is_gone)
    appends = forwards.appends(OWNER)
    assert forwards.appends(OWNER) is appends
    forwards.owner_is(OTHER)
    assert appends.when() is None
    assert forwards.appends(OWNER) is not appends
