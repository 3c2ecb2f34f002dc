"""The remains of crashes are found and removed, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from fencelog.broker.background.sweep import LAST_PATH, LOCK_PATH, Sweep, Swept
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.limits import PENDING_LEDGER_S
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.registry.topic_deletion import LOGS_PATH
from fencelog.broker.registry.topics import TopicConfig, TopicInfo, TopicRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import pack_entry
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import NO_VERSION, Change, Version
from fencelog.ledgers.record_batch import Message, encode_values
from tests.support.broker_stage import ReadAll, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName.of("shop", "orders")


class Catalogue:
    """Implements ``LedgerCatalogue`` over scripted ledgers."""

    def __init__(self, ledgers: ScriptedLedgers) -> None:
        self._ledgers = ledgers

    async def list(self) -> AsyncIterator[int]:
        for ledger_id in sorted(self._ledgers.writers):
            yield ledger_id

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        if ledger_id in self._ledgers.deleted:
            raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, "deleted")
        return self._ledgers.writers[ledger_id].metadata, NO_VERSION


class Scene:
    """A topic, its registry, and a sweep that thinks every ledger is old."""

    def __init__(self, stage: Stage, store: MemoryMetadataStore) -> None:
        self.stage, self.store = stage, store
        stage.host.clock_us += 1_000_000_000
        self.registry = TopicRegistry(store, host=stage.host, ledgers=stage.ledgers)
        self.sweep = Sweep(
            store,
            self.registry,
            stage.ledgers,
            Catalogue(stage.ledgers),
            host=stage.host,
            grace_s=5.0,
        )

    async def log(self, policy: Policy | None = None) -> PartitionLog:
        info = await self.registry.get(NAME)
        node = await self.registry.open_ledger_list(info, 0)
        return await self.stage.open(node=node, policy=policy)


@pytest.fixture
async def scene(stage: Stage) -> Scene:
    scene = Scene(stage, await stage.store())
    await scene.registry.create(NAME, TopicConfig(partitions=2))
    return scene


async def orphan(scene: Scene, log: str, epoch: int) -> int:
    writer = await scene.stage.ledgers.create(
        Policy().replication,
        on_ack=lambda lac: None,
        on_failure=lambda error: None,
        properties={"log": log, "epoch": str(epoch)},
    )
    return int(writer.ledger_id)


async def test_a_ledger_that_a_crash_left_unlisted_goes(
    scene: Scene, ledgers: ScriptedLedgers
) -> None:
    info = await scene.registry.get(NAME)
    left = await orphan(scene, f"{info.topic_id}/0", 1)
    first = await scene.log()
    await first.append_message(Message(b"y"))
    assert (await scene.sweep.sweep()).ledgers == []  # its epoch is the list's
    log = await scene.log()
    assert log.epoch == 2
    swept = await scene.sweep.sweep()
    assert (swept.ledgers, swept.failed) == ([left], {})
    assert left in ledgers.deleted
    assert (await log.append_message(Message(b"x"))).offset == 1


async def test_a_topic_that_comes_during_the_sweep_is_known(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created, and opened, just before the sweep reads what hangs below ids: a registry that
    was read earlier would not have it."""
    children, registry = scene.store.children, scene.registry
    created: list[TopicInfo] = []

    async def children_after_it_came(path: str) -> list[str]:
        if path == LOGS_PATH and not created:
            info, _ = await registry.create(TopicName.of("shop", "late"), TopicConfig())
            created.append(info)
            await registry.open_ledger_list(info, 0)
        return await children(path)

    monkeypatch.setattr(scene.store, "children", children_after_it_came)
    assert (await scene.sweep.sweep()).topics == []
    assert created[0].topic_id in await children(LOGS_PATH)


async def test_a_roll_under_way_keeps_its_ledger(
    scene: Scene, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """The roll has created its ledger, and not listed it yet: the sweep comes by at this moment."""
    log = await scene.log(policy=Policy(roll_entries=1))
    change = log._node.change
    found: list[Swept] = []

    async def sweep_first(
        next_of: Callable[[LedgerList], LedgerList], *, also: Sequence[Change] = ()
    ) -> None:
        found.append(await scene.sweep.sweep())
        await change(next_of, also=also)

    monkeypatch.setattr(log._node, "change", sweep_first)
    await log.append_message(Message(b"y"))
    await until(lambda: len(log._node.ledger_list.segments) == 2)
    assert 2 in ledgers.writers
    assert found[0].ledgers == []
    assert (await log.append_message(Message(b"x"))).offset == 1


async def test_what_a_trim_left_undeleted_goes(
    scene: Scene, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    log = await scene.log(policy=Policy(roll_entries=1))
    await log.append_message(Message(b"x"))

    async def die(_ledger_id: int, **_options: bool) -> None:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "the broker is gone")

    with monkeypatch.context() as patched:
        patched.setattr(ledgers, "delete", die)
        await log.retention.trim(1)
        await until(lambda: log.internals()["segments"][0]["sealed"])
        await log.retention.tend()
        assert log.internals()["segments"][0]["ledger_id"] == 2
        await scene.log()
    swept = await scene.sweep.sweep()
    assert 1 in swept.ledgers
    assert 1 in ledgers.deleted


async def test_looking_removes_nothing(scene: Scene, ledgers: ScriptedLedgers) -> None:
    info = await scene.registry.get(NAME)
    left = await orphan(scene, f"{info.topic_id}/0", 0)
    await scene.log()
    before = set(ledgers.deleted)
    found = await scene.sweep.find()
    assert (found.ledgers, found.looked_at) == ([left], 2)
    assert ledgers.deleted == before


async def test_what_is_not_a_topics_stays(scene: Scene, ledgers: ScriptedLedgers) -> None:
    await orphan(scene, "", 0)
    await orphan(scene, "bench", 0)
    info = await scene.registry.get(NAME)
    await orphan(scene, f"{info.topic_id}/1", 0)  # never opened, and the topic lives
    assert (await scene.sweep.sweep()).ledgers == []


@pytest.mark.parametrize("step", range(8))
async def test_a_deletion_that_died_at_any_step_is_finished(
    scene: Scene, stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The deleting broker is gone after ``step`` changes; the sweep finds the rest."""
    log = await scene.log(policy=Policy(roll_entries=1))
    await log.append_message(Message(b"x"))
    info = await scene.registry.get(NAME)
    left = await orphan(scene, f"{info.topic_id}/0", 1)
    await scene.store.create(f"/subscriptions/{info.topic_id}/s", b"{}")
    await scene.store.create(f"/subscriptions/{info.topic_id}/t", b"{}")
    deleter = await stage.store()
    remaining = [step + 1]

    def dying(act: Any) -> Any:
        async def acted(*args: Any, **options: Any) -> Any:
            if not remaining[0]:
                raise FencelogError(ErrorCode.INTERNAL, "the broker is gone")
            remaining[0] -= 1
            return await act(*args, **options)

        return acted

    with monkeypatch.context() as patched:
        for owner, name in ((deleter, "delete"), (deleter, "set"), (ledgers, "delete")):
            patched.setattr(owner, name, dying(getattr(owner, name)))
        registry = TopicRegistry(deleter, host=stage.host, ledgers=ledgers)
        with suppress(FencelogError):
            await registry.delete(NAME)
    stage.host.clock_us += 10_000_000
    swept = await scene.sweep.sweep()
    assert swept.failed == {}
    assert left in ledgers.deleted
    assert ledgers.deleted == set(ledgers.writers)
    assert await scene.store.children("/logs") == []
    assert await scene.store.children("/subscriptions") == []
    assert (await scene.sweep.sweep()).topics == []


async def test_ledgers_of_a_topic_that_is_gone_wait_for_the_grace_time(
    scene: Scene, stage: Stage
) -> None:
    left = await orphan(scene, "gone/0", 1)
    writer = stage.ledgers.writers[left]
    writer.metadata = replace(writer.metadata, created_us=stage.host.clock_us)
    assert (await scene.sweep.sweep()).ledgers == []
    stage.host.clock_us += 6_000_000
    assert (await scene.sweep.sweep()).ledgers == [left]


async def test_one_broker_sweeps_at_a_time(scene: Scene, stage: Stage) -> None:
    other = Scene(stage, await stage.store())
    lock = await other.store.create(LOCK_PATH, b"", ephemeral=True)
    with pytest.raises(FencelogError) as raised:
        await scene.sweep.sweep()
    assert raised.value.code is ErrorCode.METADATA_CONFLICT
    assert await scene.sweep.sweep_if_due(60) is None
    await other.store.delete(LOCK_PATH, lock)
    assert await scene.sweep.sweep_if_due(60) is not None
    assert await other.sweep.sweep_if_due(60) is None  # some broker has just done it
    stage.host.clock_us += 61_000_000
    assert await other.sweep.sweep_if_due(60) is not None
    assert int((await scene.store.get(LAST_PATH)).value) == stage.host.clock_us


async def test_a_sweep_that_ended_in_the_future_is_none(scene: Scene) -> None:
    """A broker whose clock was a year ahead swept last: nobody would sweep until then."""
    await scene.store.create(LAST_PATH, b"%d" % (scene.stage.host.clock_us + 365 * 86_400_000_000))
    assert await scene.sweep.sweep_if_due(60) is not None
    assert int((await scene.store.get(LAST_PATH)).value) == scene.stage.host.clock_us
    assert await scene.sweep.sweep_if_due(60) is None


async def test_a_lock_whose_reply_was_lost_is_ones_own(scene: Scene) -> None:
    scene.store.lose_replies(1)
    assert (await scene.sweep.sweep()).failed == {}
    with pytest.raises(FencelogError):
        await scene.store.get(LOCK_PATH)


async def test_a_lost_session_ends_the_sweep(scene: Scene, ledgers: ScriptedLedgers) -> None:
    """Another one may read what is older: nothing is removed on the strength of that."""
    await orphan(scene, "gone/0", 1)
    registry: Any = scene.registry
    ids = registry.ids

    async def ids_and_expire() -> Any:
        scene.store.expire()
        return await ids()

    registry.ids = ids_and_expire
    with pytest.raises(FencelogError) as raised:
        await scene.sweep.sweep()
    assert raised.value.code is ErrorCode.METADATA_UNAVAILABLE
    assert ledgers.deleted == set()


async def test_what_cannot_be_removed_is_said_and_tried_again(
    scene: Scene, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = await orphan(scene, "gone/0", 1)

    async def refuse(_ledger_id: int, **_options: bool) -> None:
        raise FencelogError(ErrorCode.RECOVERY_INCOMPLETE, "b1 is away")

    with monkeypatch.context() as patched:
        patched.setattr(ledgers, "delete", refuse)
        swept = await scene.sweep.sweep()
    assert list(swept.failed) == [f"ledger {left}"]
    assert (await scene.sweep.sweep()).failed == {}
    assert left in ledgers.deleted


async def pending(scene: Scene, log: PartitionLog) -> int:
    scene.stage.host.clock_us = 2 * int(PENDING_LEDGER_S * 1e6)
    made = await log.commits.create("query")
    ledger_id: int = made.metadata.ledger_id
    scene.stage.ledgers.writers[ledger_id].payloads.append(
        pack_entry(encode_values([b"s"]), count=1, first_number=0, publish_time_us=5)
    )
    return ledger_id


async def test_a_ledger_that_was_not_committed_in_time_is_withdrawn_and_goes(
    scene: Scene, ledgers: ScriptedLedgers
) -> None:
    log = await scene.log()
    committed, left = await pending(scene, log), await pending(scene, log)
    await log.commits.commit("query", 1, [(committed, 1)])
    swept = await scene.sweep.sweep()
    assert left in ledgers.deleted - {committed}
    assert left in swept.ledgers
    with pytest.raises(FencelogError) as raised:
        await log.commits.commit("query", 2, [(left, 1)])
    assert raised.value.code is ErrorCode.LEDGER_NOT_FOUND


async def test_a_ledger_that_is_claimed_while_the_sweep_judges_it_stays(
    scene: Scene, ledgers: ScriptedLedgers, read_all: ReadAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await scene.log()
    left = await pending(scene, log)
    described: Any = ledgers.describe

    async def late(ledger_id: int, properties_of: Any) -> LedgerMetadata:
        monkeypatch.undo()
        await log.commits.commit("query", 1, [(left, 1)])
        found: LedgerMetadata = await described(ledger_id, properties_of)
        return found

    monkeypatch.setattr(ledgers, "describe", late)
    swept = await scene.sweep.sweep()
    assert list(swept.failed) == [f"ledger {left}"]
    assert left not in ledgers.deleted
    assert await read_all(log) == [b"s"]
