"""One auditor at a time, as far as the metadata store can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencelog.bookie.auditor.election import LEADER_PATH, Election, who_is_auditor
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from tests.support.metadata_nodes import overwrite_now, remove_now


class Candidate:
    """A process with a session of its own that notes when it works."""

    def __init__(self, memory: MemoryCluster, name: str, log: list[str]) -> None:
        self.store = MemoryMetadataStore(memory)
        self.name, self.log = name, log
        self.election = Election(self.store, name, host=SystemHost())
        self.task: asyncio.Task[None] | None = None

    async def start(self, work: Callable[[], Awaitable[None]] | None = None) -> None:
        await self.store.start()
        self.task = asyncio.create_task(self.election.run(work or self.work))

    async def work(self) -> None:
        self.log.append(f"{self.name} begins")
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append(f"{self.name} ends")

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.store.close()


async def test_one_works_and_the_next_takes_over() -> None:
    memory, log = MemoryCluster(), list[str]()
    first, second = Candidate(memory, "a", log), Candidate(memory, "b", log)
    await first.start()
    await asyncio.sleep(1)
    await second.start()
    await asyncio.sleep(60)
    assert log == ["a begins"]
    assert (first.election.is_leader, second.election.is_leader) == (True, False)
    leader = await who_is_auditor(second.store)
    assert leader is not None
    assert leader.process_id == "a"
    await first.stop()
    await asyncio.sleep(1)
    assert log == ["a begins", "a ends", "b begins"]
    await second.stop()


async def test_an_expired_session_ends_the_work() -> None:
    memory, log = MemoryCluster(), list[str]()
    first, second = Candidate(memory, "a", log), Candidate(memory, "b", log)
    await first.start()
    await asyncio.sleep(1)
    await second.start()
    await asyncio.sleep(1)
    first.store.disconnect()
    first.store.expire()
    await asyncio.sleep(20)
    assert log == ["a begins", "b begins"], "a cannot know yet: both believe it"
    first.store.reconnect()
    await asyncio.sleep(20)
    assert log == ["a begins", "b begins", "a ends"]
    await first.stop()
    await second.stop()


async def test_a_lost_answer_is_recognised() -> None:
    memory, log = MemoryCluster(), list[str]()
    only = Candidate(memory, "a", log)
    await only.store.start()
    only.store.lose_replies(1)
    only.task = asyncio.create_task(only.election.run(only.work))
    await asyncio.sleep(1)
    assert log == ["a begins"]
    await only.stop()


async def test_a_node_that_was_removed_ends_the_work_and_begins_it_again() -> None:
    memory, log = MemoryCluster(), list[str]()
    only = Candidate(memory, "a", log)
    await only.start()
    await asyncio.sleep(1)
    remove_now(memory, LEADER_PATH)
    await asyncio.sleep(30)
    assert log == ["a begins", "a ends", "a begins"]
    await only.stop()


async def test_work_that_fails_gives_the_office_up(caplog: pytest.LogCaptureFixture) -> None:
    memory, log = MemoryCluster(), list[str]()
    first, second = Candidate(memory, "a", log), Candidate(memory, "b", log)

    async def fail() -> None:
        raise ValueError("a bug")

    await second.store.start()
    await first.start(fail)
    second.task = asyncio.create_task(second.election.run(second.work))
    await asyncio.sleep(1)
    assert log == ["b begins"]
    assert "the auditor has failed" in caplog.text
    await first.stop()
    await second.stop()


async def test_a_store_that_is_away_is_tried_again() -> None:
    memory, log = MemoryCluster(), list[str]()
    only = Candidate(memory, "a", log)
    await only.store.start()
    only.store.disconnect()
    only.task = asyncio.create_task(only.election.run(only.work))
    await asyncio.sleep(30)
    assert log == []
    only.store.reconnect()
    await asyncio.sleep(30)
    assert log == ["a begins"]
    await only.stop()


async def test_while_the_store_is_away_nobody_knows_who_is_auditor() -> None:
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    store.disconnect()
    with pytest.raises(FencelogError) as caught:
        await who_is_auditor(store)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE


async def test_who_is_auditor_without_one_and_with_nonsense() -> None:
    memory = MemoryCluster()
    store = MemoryMetadataStore(memory)
    await store.start()
    assert await who_is_auditor(store) is None
    await store.create(LEADER_PATH, b"{}")
    with pytest.raises(FencelogError) as caught:
        await who_is_auditor(store)
    assert caught.value.code is ErrorCode.CORRUPT
    overwrite_now(memory, LEADER_PATH, b'{"process_id": "a", "since_us": 5}')
    leader = await who_is_auditor(store)
    assert leader is not None
    assert leader.since_us == 5
    await store.close()
