"""Logs over real embedded bookies with fsynced journals: nothing scripted but the crashes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.server.local import LocalBookieClient
from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.read.stored import ReadLimits, StoredBatch
from fencelog.broker.registry.subscription_config import SubscriptionConfig
from fencelog.broker.registry.topics import TopicConfig, TopicInfo
from fencelog.ledgers.client import LedgerClient
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host, SystemHost
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from fencelog.ledgers.recovery.recovery import recover_ledger
from fencelog.ledgers.recovery.rules import AcceptedLoss
from fencelog.ledgers.rpc.bookie_directory import EmbeddedBookie, RegisteredBookies
from fencelog.ledgers.rpc.bookie_port import BookieClient
from tests.support.broker_stage import ReadAll, Until

NAME = TopicName.of("shop", "orders")


class Service:
    """Three bookies, and brokers over them, each with a session and a ledger client of its own."""

    def __init__(self, directory: Path, host: Host) -> None:
        self._directory = directory
        self._host = host
        self.cluster = MemoryCluster()
        self.bookies: dict[str, Bookie] = {}
        self.local: dict[str, EmbeddedBookie] = {}
        self.brokers: list[tuple[Broker, RegisteredBookies, MemoryMetadataStore]] = []

    async def start_bookie(self, bookie_id: str) -> None:
        config = BookieConfig(data_dir=self._directory / bookie_id, bookie_id=bookie_id)
        bookie = await Bookie.open(config, disk=PosixDisk(), host=self._host)
        self.bookies[bookie_id] = bookie
        self.local[bookie_id] = LocalBookieClient(bookie)

    async def broker(self, broker_id: str, *, max_entries: int = 1000) -> Broker:
        store = MemoryMetadataStore(self.cluster)
        await store.start()
        directory = RegisteredBookies(store, local=self.local, connect=_no_remote)
        await directory.start()
        config = BrokerConfig(broker_id, f"http://{broker_id}", Policy(roll_entries=max_entries))
        ledgers = LedgerClient(store, directory, host=self._host)
        broker = Broker(store, ledgers, host=self._host, config=config)
        await broker.start()
        self.brokers.append((broker, directory, store))
        return broker

    def freeze(self, number: int) -> None:
        """One of the brokers does nothing more, and its session ends."""
        _, _, store = self.brokers[number]
        store.disconnect()
        store.expire()

    async def delete_on_bookies(self, ledger_id: int) -> None:
        """What garbage collection does after a deletion that restored metadata has forgotten."""
        for bookie in self.bookies.values():
            await bookie.shard(ledger_id).remove(ledger_id, deleted=True)

    async def close(self) -> None:
        for broker, directory, store in self.brokers:
            store.reconnect()
            await broker.close()
            await directory.close()
            await store.close()
        for bookie in self.bookies.values():
            await bookie.close()


def _no_remote(address: str, bookie_id: str) -> BookieClient:
    raise AssertionError(f"{bookie_id} at {address} is embedded")


@pytest.fixture
async def service(tmp_path: Path, host: Host) -> AsyncIterator[Service]:
    service = Service(tmp_path, host)
    for number in range(3):
        await service.start_bookie(f"bookie-{number}")
    yield service
    await service.close()


async def test_what_was_acknowledged_is_read_back_after_rolls_and_takeovers(
    service: Service, read_all: ReadAll
) -> None:
    first = await service.broker("a", max_entries=20)
    await first.topics.create(NAME, TopicConfig())
    log = await first.partition(NAME, 0)
    expected = []
    for number in range(100):
        value = b"%d" % number
        appended = await log.append_message(Message(value, key=b"k", headers=(("h", b"v"),)))
        assert appended.offset == number
        expected.append(value)
    batch = encode_values([b"b%d" % n for n in range(1000)])
    futures = [log.append_batch(batch, check_batch(batch)) for _ in range(50)]
    offsets = [(await future).offset for future in futures]
    assert offsets == [100 + 1000 * n for n in range(50)]
    expected += [b"b%d" % n for n in range(1000)] * 50
    assert await read_all(log) == expected
    await first.close()
    second = await (await service.broker("b")).partition(NAME, 0)
    assert second.tail_offset == len(expected)
    assert await read_all(second) == expected
    ranges = await second.segments()
    assert sum(segment["messages"] for segment in ranges["segments"]) == len(expected)


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_ledger_that_the_list_calls_sealed_is_closed(
    service: Service, until: Until, is_changed: bool
) -> None:
    """After a roll, and after the close of the log; also if another client has changed the ledger,
    as a replication worker may, so that it cannot be closed by the same commit."""
    broker = await service.broker("a", max_entries=2)
    await broker.topics.create(NAME, TopicConfig())
    log = await broker.partition(NAME, 0)
    store = LedgerStore(service.brokers[0][2])
    if is_changed:
        written = log._node.ledger_list.segments[-1].ledger_id
        await store.update(*await store.get(written))
    for number in range(2):
        await log.append_message(Message(b"%d" % number))
    await until(lambda: log._node.ledger_list.segments[0].sealed is not None)
    await log.append_message(Message(b"2"))
    await broker.close()
    segments = log._node.ledger_list.segments
    facts = []
    for segment in segments:
        metadata, _ = await store.get(segment.ledger_id)
        assert segment.sealed is not None
        assert metadata.is_closed
        assert (metadata.last_entry_id + 1, metadata.length) == (
            segment.sealed.entries,
            segment.sealed.size,
        )
        facts.append((segment.base_offset, segment.sealed.messages))
    assert facts == [(0, 2), (2, 1)]


async def test_readers_of_a_striped_log_that_follow_each_other_cost_one_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await service.broker("a")
    await broker.topics.create(NAME, TopicConfig(overrides={"write_quorum": 2}))
    log = await broker.partition(NAME, 0)
    batch = encode_values([bytes(1000)] * 100)
    futures = [log.append_batch(batch, check_batch(batch)) for _ in range(60)]
    for future in futures:
        await future
    log._reader._cache.clear()
    segment = log._reader._segments[0]
    reads: list[int] = []
    read = segment.read

    async def counted(offset: int, *, max_bytes: int) -> list[StoredBatch]:
        reads.append(offset)
        return await read(offset, max_bytes=max_bytes)

    monkeypatch.setattr(segment, "read", counted)

    async def follow() -> None:
        offset = 0
        while offset < 6000:
            result = await log.read(offset, ReadLimits(max_messages=500, max_bytes=1 << 20))
            assert result.entries[0].base_offset == offset
            offset = result.next_offset

    await asyncio.gather(*(follow() for _ in range(10)))
    assert len(reads) == len(set(reads)) <= 4


async def test_a_zombie_under_load_loses_nothing_and_duplicates_nothing(
    service: Service, read_all: ReadAll, until: Until
) -> None:
    """Both brokers append at full speed through a takeover that the old owner does not expect."""
    a, b = await service.broker("a", max_entries=10), await service.broker("b", max_entries=10)
    info, _ = await a.topics.create(NAME, TopicConfig())
    old = await a.partition(NAME, 0)
    acknowledged: dict[int, bytes] = {}
    unknown: set[bytes] = set()

    async def append(log: PartitionLog, tag: str, count: int) -> None:
        for number in range(count):
            value = f"{tag}{number}".encode()
            try:
                appended = await log.append_message(Message(value))
            except FencelogError as error:
                if error.code is ErrorCode.APPEND_UNKNOWN:
                    unknown.add(value)
                elif not log.is_serving:
                    return
            else:
                assert appended.offset not in acknowledged
                acknowledged[appended.offset] = value

    zombies = [asyncio.create_task(append(old, f"z{n}-", 400)) for n in range(8)]
    await until(lambda: len(acknowledged) >= 200)
    # As if a's session had expired: b finds no owner and takes over while a writes on.
    new = await _open_beside(b, info)
    await asyncio.gather(*(append(new, f"n{n}-", 30) for n in range(8)))
    await asyncio.gather(*zombies)
    values = await read_all(new)
    assert {offset: values[offset] for offset in acknowledged} == acknowledged
    assert len(set(values)) == len(values)
    assert set(values) <= set(acknowledged.values()) | unknown
    for number in range(8):
        mine = [v for v in values if v.startswith(f"z{number}-".encode())]
        assert mine == sorted(mine, key=lambda v: int(v.split(b"-")[1]))
    await new.abandon(FencelogError(ErrorCode.DRAINING, "the test is over"))


async def _open_beside(broker: Broker, info: TopicInfo) -> PartitionLog:
    services = broker._services
    for _ in range(20):
        try:
            return await PartitionLog.open(
                await services.topics.open_ledger_list(info, 0),
                services.ledgers,
                partition=0,
                policy=info.policy,
                host=services.host,
                config=services.config,
            )
        except FencelogError as error:
            if error.code is not ErrorCode.NO_OWNER:
                raise  # else the other one was rolling: again
    raise AssertionError("the takeover never succeeded")


async def test_one_bookie_less_is_no_interruption(service: Service, read_all: ReadAll) -> None:
    await service.start_bookie("bookie-3")
    broker = await service.broker("a")
    await broker.topics.create(NAME, TopicConfig())
    log = await broker.partition(NAME, 0)
    for number in range(30):
        assert (await log.append_message(Message(b"%d" % number))).offset == number
        if number == 10:
            await service.bookies.pop("bookie-1").close()
            del service.local["bookie-1"]
    assert await read_all(log) == [b"%d" % number for number in range(30)]
    assert log.epoch == 1


async def test_a_restart_of_everything_keeps_every_acknowledged_message(
    service: Service, read_all: ReadAll
) -> None:
    broker = await service.broker("a")
    await broker.topics.create(NAME, TopicConfig(partitions=2))
    for number in range(40):
        log = await broker.partition(NAME, number % 2)
        await log.append_message(Message(b"%d" % number))
    await service.close()
    service.brokers.clear()
    for bookie_id in list(service.bookies):
        await service.start_bookie(bookie_id)
    broker = await service.broker("b")
    for partition in range(2):
        found = await read_all(await broker.partition(NAME, partition))
        assert found == [b"%d" % number for number in range(partition, 40, 2)]


async def test_a_partition_whose_state_was_deleted_opens_once_its_ledger_is_ended(
    service: Service, read_all: ReadAll
) -> None:
    """ZooKeeper was restored from an old backup: the state ledger that it names was replaced at a
    later takeover, and deleted."""
    first = await service.broker("a")
    topic, _ = await first.topics.create(NAME, TopicConfig())
    registered, _ = await first.subscriptions.create(
        topic.topic_id, "s", SubscriptionConfig(), "earliest", partitions=1, at_most=10
    )
    log = await first.partition(NAME, 0)
    for number in range(5):
        await log.append_message(Message(b"%d" % number))
    await log.subscriptions.begin(registered)
    await log.subscriptions.acknowledge_below(registered.info.subscription_id, 3)
    state = log._node.ledger_list.state_ledger
    assert state is not None
    await service.delete_on_bookies(state)
    service.freeze(0)
    second = await service.broker("b")
    _, directory, store = service.brokers[1]
    with pytest.raises(FencelogError) as caught:
        await second.partition(NAME, 0)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    ended = await recover_ledger(
        state,
        ledgers=LedgerStore(store),
        bookies=directory,
        placement=Placement(directory, host=SystemHost()),
        accepted=AcceptedLoss(),
    )
    assert ended.last_entry_id == -1
    taken = await second.partition(NAME, 0)
    assert await read_all(taken) == [b"%d" % number for number in range(5)]
    assert (await taken.append_message(Message(b"5"))).offset == 5
    await second._cursor_reconciler.reconcile()
    stats = taken.subscriptions.stats(registered.info.subscription_id)
    assert stats["acked_to"] == 0, "it begins where it was created"


async def test_a_sealed_ledger_that_was_deleted_keeps_no_partition_closed(
    service: Service, until: Until
) -> None:
    """Retention has removed it since the backup. The list knows how long it was."""
    first = await service.broker("a", max_entries=2)
    await first.topics.create(NAME, TopicConfig())
    log = await first.partition(NAME, 0)
    for number in range(2):
        await log.append_message(Message(b"%d" % number))
    await until(lambda: log._node.ledger_list.segments[0].sealed is not None)
    await log.append_message(Message(b"2"))
    await service.delete_on_bookies(log._node.ledger_list.segments[0].ledger_id)
    service.freeze(0)
    taken = await (await service.broker("b")).partition(NAME, 0)
    assert (await taken.append_message(Message(b"3"))).offset == 3
    found = await taken.read(2, ReadLimits(max_messages=10, max_bytes=1 << 20))
    assert [stored.base_offset for stored in found.entries] == [2]
    with pytest.raises(FencelogError):
        await taken.read(0, ReadLimits(max_messages=10, max_bytes=1 << 20))
