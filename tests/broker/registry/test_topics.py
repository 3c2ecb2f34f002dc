"""Names, the registry of topics, and deletion against owners that do not know of it yet."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fencelog.broker.ledger_list.store import (
    LedgerListLost,
    LedgerListStore,
    ledger_list_path,
)
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig, TopicRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import Version, Versioned
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import BrokerMaker, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName.of("shop", "orders")


@pytest.fixture
async def registry(stage: Stage, host: Host) -> TopicRegistry:
    return TopicRegistry(await stage.store(), host=host, ledgers=stage.ledgers)


@pytest.mark.parametrize("text", ["a/b", "A9/x.y-z_0", f"{'n' * 128}/{'t' * 128}"])
def test_valid_names(text: str) -> None:
    assert str(TopicName.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "a", "/", "a/", "/b", "a/b/c", "a/.b", "-a/b", "a/b c", "ä/b", f"a/{'t' * 129}"]
)
def test_invalid_names(text: str) -> None:
    with pytest.raises(FencelogError) as raised:
        TopicName.parse(text)
    assert raised.value.code is ErrorCode.INVALID_NAME


async def test_a_topic_is_created_once(registry: TopicRegistry) -> None:
    info, created = await registry.create(NAME, TopicConfig(partitions=2))
    again, created_again = await registry.create(NAME, TopicConfig(partitions=2))
    assert (created, created_again, again) == (True, False, info)
    assert await registry.get(NAME) == info
    with pytest.raises(FencelogError) as raised:
        await registry.create(NAME, TopicConfig(partitions=3))
    assert raised.value.code is ErrorCode.ALREADY_EXISTS


async def test_the_latest_topics_are_read_past_a_server_that_lags(
    stage: Stage, registry: TopicRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new session's server shows what was true before, until the session has written."""
    await registry.create(NAME, TopicConfig())
    store = stage.stores[-1]
    get, write = store.get, store.set
    before = await get("/topics/shop/orders")
    await registry.update(NAME, {}, partitions=2)
    shown = {"/topics/shop/orders": before}

    async def lagging(path: str) -> Versioned:
        return shown.get(path) or await get(path)

    async def written(path: str, value: bytes, version: Version) -> Version:
        shown.clear()
        return await write(path, value, version)

    monkeypatch.setattr(store, "get", lagging)
    monkeypatch.setattr(store, "set", written)
    assert (await registry.get(NAME)).config.partitions == 1
    async with registry.latest():
        assert (await registry.get(NAME)).config.partitions == 2


async def test_another_session_does_not_tell_the_latest_topics(
    stage: Stage, registry: TopicRegistry
) -> None:
    """It began after the write, at a server that may lag behind it."""
    store = stage.stores[-1]

    async def get_in_two_sessions() -> None:
        async with registry.latest():
            store.expire()
            await registry.get(NAME)

    await registry.create(NAME, TopicConfig())
    with pytest.raises(FencelogError, match="the session was lost meanwhile") as raised:
        await get_in_two_sessions()
    assert raised.value.code is ErrorCode.METADATA_UNAVAILABLE


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(partitions=0),
        TopicConfig(partitions=1025),
        TopicConfig(overrides={"ensemble_size": 1}),
        TopicConfig(overrides={"ack_quorum": 1}),
        TopicConfig(overrides={"retention": 1}),
    ],
)
async def test_settings_that_cannot_be_are_refused(
    registry: TopicRegistry, config: TopicConfig
) -> None:
    with pytest.raises(FencelogError) as raised:
        await registry.create(NAME, config)
    assert raised.value.code is ErrorCode.BAD_REQUEST


async def test_a_create_whose_reply_was_lost_is_recognised(stage: Stage, host: Host) -> None:
    store = await stage.store()
    registry = TopicRegistry(store, host=host, ledgers=stage.ledgers)
    store.lose_replies(1)
    info, created = await registry.create(NAME, TopicConfig())
    assert created
    assert await registry.get(NAME) == info


async def test_a_create_whose_reply_was_lost_is_read_by_a_server_that_has_caught_up(
    stage: Stage, registry: TopicRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lags behind shows the topic that had this name before."""
    store = stage.stores[-1]
    await registry.create(NAME, TopicConfig())
    get, write = store.get, store.set
    before = await get("/topics/shop/orders")
    await registry.delete(NAME)
    shown = {"/topics/shop/orders": before}

    async def lagging(path: str) -> Versioned:
        return shown.get(path) or await get(path)

    async def written(path: str, value: bytes, version: Version) -> Version:
        shown.clear()
        return await write(path, value, version)

    monkeypatch.setattr(store, "get", lagging)
    monkeypatch.setattr(store, "set", written)
    store.lose_replies(1)
    info, created = await registry.create(NAME, TopicConfig(partitions=2))
    assert (info.config.partitions, created) == (2, True)


async def test_a_delete_whose_reply_was_lost_is_no_refusal_where_it_cannot_be_read_back(
    stage: Stage, registry: TopicRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registry.create(NAME, TopicConfig())
    store = stage.stores[-1]
    get, delete = store.get, store.delete

    async def away(path: str) -> Versioned:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, path)

    async def lost(path: str, version: Version) -> None:
        monkeypatch.setattr(store, "get", away)
        await delete(path, version)

    monkeypatch.setattr(store, "delete", lost)
    store.lose_replies(1)
    with pytest.raises(FencelogError) as raised:
        await registry.delete(NAME)
    assert raised.value.code is ErrorCode.METADATA_UNKNOWN
    monkeypatch.setattr(store, "get", get)
    assert await registry.list() == []


async def test_topics_are_listed_by_namespace_and_prefix(registry: TopicRegistry) -> None:
    for text in ("a/x1", "a/x2", "a/y", "b/x3"):
        await registry.create(TopicName.parse(text), TopicConfig())
    assert [str(i.name) for i in await registry.list()] == ["a/x1", "a/x2", "a/y", "b/x3"]
    assert [str(i.name) for i in await registry.list("a", "x")] == ["a/x1", "a/x2"]
    assert await registry.list("none") == []


async def test_a_page_of_topics_reads_only_these(
    stage: Stage, registry: TopicRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("a/x", "a/y", "a-b/x", "b/x"):
        await registry.create(TopicName.parse(text), TopicConfig())
    store = stage.stores[-1]
    read: list[str] = []
    get = store.get

    async def observed(path: str) -> object:
        read.append(path)
        return await get(path)

    monkeypatch.setattr(store, "get", observed)
    page = await registry.list(limit=2)
    assert [str(info.name) for info in page] == ["a-b/x", "a/x"]
    assert [path for path in read if path.startswith("/topics")] == ["/topics/a-b/x", "/topics/a/x"]
    rest = await registry.list(start_after="a/x", limit=9)
    assert [str(info.name) for info in rest] == ["a/y", "b/x"]


async def test_a_topic_created_anew_is_another_topic(registry: TopicRegistry) -> None:
    old, _ = await registry.create(NAME, TopicConfig())
    await registry.delete(NAME)
    with pytest.raises(FencelogError) as raised:
        await registry.get(NAME)
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    new, created = await registry.create(NAME, TopicConfig())
    assert created
    assert new.topic_id != old.topic_id


async def test_a_delete_whose_reply_was_lost_is_finished(stage: Stage, host: Host) -> None:
    store = await stage.store()
    registry = TopicRegistry(store, host=host, ledgers=stage.ledgers)
    await registry.create(NAME, TopicConfig())
    store.lose_replies(1)
    await registry.delete(NAME)
    assert await registry.list() == []


async def test_deleting_fences_the_owner_and_removes_everything(
    stage: Stage, host: Host, ledgers: ScriptedLedgers
) -> None:
    store = await stage.store()
    registry = TopicRegistry(store, host=host, ledgers=ledgers)
    info, _ = await registry.create(NAME, TopicConfig())
    log = await stage.open(node=await registry.open_ledger_list(info, 0), max_entries=1)
    await log.append_message(Message(b"a"))
    await asyncio.sleep(0.02)
    await log.append_message(Message(b"b"))
    await asyncio.sleep(0.02)
    await registry.delete(NAME)
    assert ledgers.deleted == set(ledgers.writers)
    assert await store.children("/logs") == []
    # The owner has not heard of it; its next append meets the fence.
    with pytest.raises(FencelogError) as raised:
        await log.append_message(Message(b"c"))
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    with pytest.raises(FencelogError) as raised:
        await log.append_message(Message(b"d"))
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND


async def test_an_opener_that_knows_a_deleted_topic_leaves_nothing_behind(
    stage: Stage, host: Host
) -> None:
    """The opener makes the ledger list's node and looks again: the topic has gone meanwhile."""
    store = await stage.store()
    registry = TopicRegistry(store, host=host, ledgers=stage.ledgers)
    info, _ = await registry.create(NAME, TopicConfig())
    await registry.delete(NAME)
    with pytest.raises(FencelogError) as raised:
        await registry.open_ledger_list(info, 0)
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    assert await store.children(f"/logs/{info.topic_id}") == []


async def test_a_list_that_another_opener_made_too_late_is_not_opened(
    stage: Stage, host: Host
) -> None:
    """Its creator is about to find that the topic is gone, and to remove it."""
    store = await stage.store()
    registry = TopicRegistry(store, host=host, ledgers=stage.ledgers)
    info, _ = await registry.create(NAME, TopicConfig())
    await registry.delete(NAME)
    await LedgerListStore(store, ledger_list_path(info.topic_id, 0), host=host).create()
    with pytest.raises(FencelogError) as raised:
        await registry.open_ledger_list(info, 0)
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    assert await store.children(f"/logs/{info.topic_id}") == []


async def test_deleting_waits_for_nobody_who_is_rolling(
    stage: Stage, host: Host, ledgers: ScriptedLedgers, until: Until
) -> None:
    registry = TopicRegistry(await stage.store(), host=host, ledgers=ledgers)
    info, _ = await registry.create(NAME, TopicConfig())
    log = await stage.open(node=await registry.open_ledger_list(info, 0), max_entries=1)
    for number in range(3):
        await log.append_message(Message(b"%d" % number))
    await registry.delete(NAME)
    await until(lambda: not log.is_serving or bool(log.append_message(Message(b"x"))))
    await asyncio.sleep(0.4)
    assert not log.is_serving
    assert ledgers.deleted == set(ledgers.writers)


async def test_no_ledger_goes_before_its_list_is_marked(
    stage: Stage, host: Host, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that rolls while its ledgers are fenced and deleted is refused: otherwise the list
    would name a ledger that this deletion does not know."""
    registry = TopicRegistry(await stage.store(), host=host, ledgers=ledgers)
    info, _ = await registry.create(NAME, TopicConfig())
    log = await stage.open(node=await registry.open_ledger_list(info, 0))
    await log.append_message(Message(b"a"))
    late = await registry.open_ledger_list(info, 0)
    recover, refused = ledgers.recover, list[FencelogError]()

    async def recover_amid_a_roll(ledger_id: int) -> object:
        with pytest.raises(LedgerListLost) as raised:
            await late.change(lambda listed: listed.with_next(ledger_id=99, created_us=0))
        refused.append(raised.value)
        return await recover(ledger_id)

    monkeypatch.setattr(ledgers, "recover", recover_amid_a_roll)
    await registry.delete(NAME)
    assert len(refused) == 1
    assert ledgers.deleted == set(ledgers.writers)


async def test_a_delete_that_cannot_be_finished_is_no_definite_failure(
    stage: Stage, host: Host, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = TopicRegistry(await stage.store(), host=host, ledgers=ledgers)
    info, _ = await registry.create(NAME, TopicConfig())
    await stage.open(node=await registry.open_ledger_list(info, 0))

    async def refuse(_ledger_id: int, *, unfenced: bool) -> None:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "not connected")

    monkeypatch.setattr(ledgers, "delete", refuse)
    with pytest.raises(FencelogError, match="not connected") as raised:
        await registry.delete(NAME)
    assert raised.value.code is ErrorCode.METADATA_UNKNOWN
    assert await registry.list() == []


async def test_the_settings_of_a_watched_namespace_are_not_asked_for_again(
    make_broker: BrokerMaker, stage: Stage, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand topics of one namespace are taken over with one look at it; and it is the watch
    that tells all of them of its next change."""
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    names = [TopicName.of("shop", f"t{number}") for number in range(3)]
    for name in names:
        await b.topics.create(name, TopicConfig())
    await b.topics.namespaces.create("shop", {"roll_entries": 7})
    assert (await a.topic(names[0])).policy.roll_entries == 7
    await until(lambda: a.topics.namespaces.watched("shop") is not None)
    asked: list[str] = []
    get = store.get

    async def observed(path: str) -> object:
        asked.append(path)
        return await get(path)

    monkeypatch.setattr(store, "get", observed)
    assert (await a.topic(names[1])).policy.roll_entries == 7
    assert [path for path in asked if path.startswith("/namespaces")] == []
    await b.topics.namespaces.update("shop", {"roll_entries": 8})
    await until(lambda: [t.policy.roll_entries for t in map(a.known, names[:2]) if t] == [8, 8])
    assert (await a.topic(names[2])).policy.roll_entries == 8


async def test_a_ledger_list_that_was_just_made_is_changed_like_one_that_was_read(
    stage: Stage, host: Host
) -> None:
    registry = TopicRegistry(await stage.store(), host=host, ledgers=stage.ledgers)
    info, _ = await registry.create(NAME, TopicConfig())
    made, read = await registry.open_ledger_list(info, 0), await registry.open_ledger_list(info, 0)
    for node, is_lost in ((made, False), (read, True)):
        change = node.change(
            lambda ledger_list: ledger_list.taken_over({}, ledger_id=1, created_us=0, owner="a")
        )
        with pytest.raises(FencelogError) if is_lost else contextlib.nullcontext():
            await change
    assert made.ledger_list.epoch == 1
