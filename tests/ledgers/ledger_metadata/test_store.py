"""Ledger metadata in the store: ambiguous creates, compare-and-set, listing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version, Versioned
from tests.support.metadata_nodes import later, remove

T = TypeVar("T")


@pytest.fixture
async def store() -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore()
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def ledgers(store: MemoryMetadataStore) -> LedgerStore:
    return LedgerStore(store)


def ledger(ledger_id: int, token: str = "mine") -> LedgerMetadata:
    return new_metadata(
        ledger_id, ensemble=("a", "b", "c"), write_quorum=3, ack_quorum=2, token=token
    )


async def test_create_get_update_delete(ledgers: LedgerStore) -> None:
    created = ledger(70_000)
    version = await ledgers.create(created)
    assert version.number == 0
    assert await ledgers.get(70_000) == (created, version)
    closed = created.closed(last_entry_id=9, length=90)
    assert await ledgers.update(closed, version) == later(version, 1)
    assert await ledgers.get(70_000) == (closed, later(version, 1))
    await ledgers.delete(70_000)
    with pytest.raises(FencelogError, match="70000") as caught:
        await ledgers.get(70_000)
    assert caught.value.code is ErrorCode.LEDGER_NOT_FOUND
    await ledgers.delete(70_000)


async def test_a_create_whose_reply_is_lost_finds_its_token(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    store.lose_replies(1)
    version = await ledgers.create(ledger(1))
    assert (await ledgers.get(1), version.number) == ((ledger(1), version), 0)
    assert await ledgers.create(ledger(1)) == version


async def test_a_create_that_exists_and_is_not_found_is_sent_again(
    ledgers: LedgerStore, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node was ours, and somebody has deleted it; or the read is a little stale."""
    await ledgers.create(ledger(1))
    create = store.create

    async def delete_after(path: str, value: bytes, **options: bool) -> Version:
        try:
            return await create(path, value, **options)
        except FencelogError:
            monkeypatch.setattr(store, "create", create)
            await remove(store, path)
            raise

    monkeypatch.setattr(store, "create", delete_after)
    version = await ledgers.create(ledger(1, token="new"))
    assert version.number == 0
    assert await ledgers.get(1) == (ledger(1, token="new"), version)


async def test_a_create_is_told_from_anothers(ledgers: LedgerStore) -> None:
    await ledgers.create(ledger(1, token="theirs"))
    with pytest.raises(FencelogError) as caught:
        await ledgers.create(ledger(1))
    assert caught.value.code is ErrorCode.METADATA_EXISTS
    assert (await ledgers.get(1))[0].token == "theirs"


async def test_a_ledger_recovered_before_its_creator_reads_back_is_not_reopened(
    ledgers: LedgerStore,
) -> None:
    """The creator gets the version it wrote, so that its next change conflicts."""
    created = ledger(1)
    first = await ledgers.create(created)
    recovered = await ledgers.update(created.in_recovery(), first)
    version = await ledgers.create(created)
    assert version == first
    with pytest.raises(FencelogError) as caught:
        await ledgers.update(created.with_ensemble(0, ("a", "b", "d")), version)
    assert caught.value.code is ErrorCode.METADATA_CONFLICT
    assert await ledgers.get(1) == (created.in_recovery(), recovered)


async def test_a_create_whose_reply_is_lost_returns_what_it_wrote_not_what_another_made_of_it(
    ledgers: LedgerStore, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = store.create

    async def recovered_meanwhile(path: str, value: bytes, **options: bool) -> Version:
        monkeypatch.setattr(store, "create", create)
        written.append(await create(path, value, **options))
        for metadata in (ledger(1).in_recovery(), ledger(1).closed(last_entry_id=3, length=9)):
            await ledgers.update(metadata, (await ledgers.get(1))[1])
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "the reply was lost")

    written: list[Version] = []
    monkeypatch.setattr(store, "create", recovered_meanwhile)
    assert [await ledgers.create(ledger(1))] == written
    assert (await ledgers.get(1))[1] == later(written[0], 2)


async def test_an_update_of_unknown_outcome_stays_unknown(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    version = await ledgers.create(ledger(1))
    store.lose_replies(1)
    with pytest.raises(FencelogError) as caught:
        await ledgers.update(ledger(1).in_recovery(), version)
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN
    assert (await ledgers.get(1))[1] == later(version, 1)


async def test_an_update_of_a_deleted_ledger_says_so(ledgers: LedgerStore) -> None:
    version = await ledgers.create(ledger(5))
    await ledgers.delete(5)
    with pytest.raises(FencelogError) as caught:
        await ledgers.update(ledger(5), version)
    assert caught.value.code is ErrorCode.LEDGER_NOT_FOUND


async def test_a_delete_whose_reply_is_lost_is_sent_again(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    await ledgers.create(ledger(1))
    store.lose_replies(1)
    await ledgers.delete(1)
    assert [i async for i in ledgers.list()] == []


async def test_a_delete_does_not_mind_changes_that_come_before_it(
    ledgers: LedgerStore, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the version: it reads again and deletes what is there."""
    newest = await ledgers.create(ledger(1))
    delete = store.delete
    attempts = 0

    async def changed_before(path: str, version: Version) -> None:
        nonlocal attempts, newest
        attempts += 1
        if attempts <= 3:
            newest = await ledgers.update(ledger(1).in_recovery(), newest)
        await delete(path, version)

    monkeypatch.setattr(store, "delete", changed_before)
    await ledgers.delete(1)
    assert attempts == 4
    assert [i async for i in ledgers.list()] == []


async def test_the_list_is_complete_and_in_order(ledgers: LedgerStore) -> None:
    ids = [1, 9, 10, 255, 65_535, 65_536, 1 << 20, (1 << 20) + 17, 1 << 40]
    assert [i async for i in ledgers.list()] == []
    for ledger_id in reversed(ids):
        await ledgers.create(ledger(ledger_id))
    assert [i async for i in ledgers.list()] == ids


async def test_a_list_that_cannot_be_complete_fails(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    await ledgers.create(ledger(1))
    await ledgers.create(ledger(70_000))
    listing = ledgers.list()
    assert await anext(listing) == 1
    store.disconnect()
    with pytest.raises(FencelogError) as caught:
        await anext(listing)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    store.reconnect()
    await store.create("/ledgers/strange", b"")
    with pytest.raises(FencelogError, match="strange"):
        _ = [i async for i in ledgers.list()]


async def test_metadata_under_a_wrong_id_is_corrupt(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    await ledgers.create(ledger(1))
    node = await store.get("/ledgers/0/0001")
    await store.create("/ledgers/0/0002", node.value)
    with pytest.raises(FencelogError) as caught:
        await ledgers.get(2)
    assert caught.value.code is ErrorCode.CORRUPT


class LosingStore(MemoryMetadataStore):
    """Loses the connection with the reply to its first write, which takes effect."""

    async def create(self, path: str, value: bytes, **options: bool) -> Version:
        return await self._then_away(super().create(path, value, **options))

    async def delete(self, path: str, version: Version) -> None:
        await self._then_away(super().delete(path, version))

    async def _then_away(self, write: Awaitable[T]) -> T:
        try:
            return await write
        finally:
            self.disconnect()


@pytest.mark.parametrize("change", ["create", "delete"])
async def test_unknown_stays_unknown_when_the_store_cannot_be_asked(change: str) -> None:
    cluster = MemoryCluster()
    other, store = MemoryMetadataStore(cluster), LosingStore(cluster)
    await other.start()
    await store.start()
    if change == "delete":
        await LedgerStore(other).create(ledger(1))
    store.lose_replies(1)
    ledgers = LedgerStore(store)
    with pytest.raises(FencelogError) as caught:
        await (ledgers.create(ledger(1)) if change == "create" else ledgers.delete(1))
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN
    assert [i async for i in LedgerStore(other).list()] == ([1] if change == "create" else [])
    await store.close()
    await other.close()


# -- reading all ---------------------------------------------------------------------------------


async def test_all_ledgers_are_read_whoever_wrote_them_last(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    assert [metadata async for metadata in ledgers.read_all()] == []
    made = [ledger(ledger_id) for ledger_id in (3, 70_000, *range(100, 300))]
    for metadata in made:
        await ledgers.create(metadata)
    await ledgers.delete(3)
    store.lose_replies(1)  # of the write that has the reads catch up
    read = [metadata async for metadata in ledgers.read_all()]
    assert read == sorted(made[1:], key=lambda metadata: metadata.ledger_id)


async def test_a_ledger_that_is_deleted_meanwhile_is_left_out(
    ledgers: LedgerStore, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ledger_id in range(1, 100):
        await ledgers.create(ledger(ledger_id))
    read: list[int] = []
    async for metadata in ledgers.read_all():
        read.append(metadata.ledger_id)
        if len(read) == 1:
            await ledgers.delete(99)
    assert read == list(range(1, 99))


async def test_reading_all_fails_rather_than_end_early(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    for ledger_id in range(1, 100):
        await ledgers.create(ledger(ledger_id))
    reading = ledgers.read_all()
    await anext(reading)
    store.expire()  # a new session may read what is older
    store.reconnect()
    with pytest.raises(FencelogError, match="session") as caught:
        _ = [metadata async for metadata in reading]
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    store.disconnect()
    with pytest.raises(FencelogError) as caught:
        _ = [metadata async for metadata in ledgers.read_all()]
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE


async def test_a_server_that_is_behind_does_not_hide_a_ledger() -> None:
    """The simulator's seed 291: a delete took such an answer for "it is gone already"."""

    class Behind(MemoryMetadataStore):
        is_behind = True

        async def get(self, path: str) -> Versioned:
            if self.is_behind:
                raise FencelogError(ErrorCode.METADATA_NOT_FOUND, path)
            return await super().get(path)

        async def set(self, path: str, value: bytes, version: Version) -> Version:
            self.is_behind = False  # it answers its own write: it has caught up
            return await super().set(path, value, version)

    store = Behind()
    await store.start()
    await LedgerStore(store).create(ledger(5))
    assert (await LedgerStore(store).get(5))[0].ledger_id == 5
    store.is_behind = True
    await LedgerStore(store).delete(5)
    assert await store.children("/ledgers/0") == []
    store.is_behind = True
    await LedgerStore(store).delete(5)
    await store.close()


async def test_a_delete_goes_on_where_a_server_is_behind_with_the_value() -> None:
    class Behind(MemoryMetadataStore):
        stale: Versioned | None = None

        async def get(self, path: str) -> Versioned:
            return self.stale or await super().get(path)

        async def delete(self, path: str, version: Version) -> None:
            self.stale = None  # its answer, of whatever kind, comes after what was before it
            await super().delete(path, version)

    store = Behind()
    await store.start()
    ledgers = LedgerStore(store)
    version = await ledgers.create(ledger(5))
    store.stale = await store.get("/ledgers/0/0005")
    await store.set("/ledgers/0/0005", b"newer", version)
    await ledgers.delete(5)
    assert await store.children("/ledgers/0") == []
    await store.close()


async def test_a_new_session_that_is_behind_does_not_hide_a_ledger_either() -> None:
    """The new session need not have caught up with what the one that ended had seen."""

    class Behind(MemoryMetadataStore):
        async def get(self, path: str) -> Versioned:
            raise FencelogError(ErrorCode.METADATA_NOT_FOUND, path)

        async def set(self, path: str, value: bytes, version: Version) -> Version:
            try:
                return await super().set(path, value, version)
            finally:
                self.expire()
                self.reconnect()

    store = Behind()
    await store.start()
    await LedgerStore(store).create(ledger(5))
    with pytest.raises(FencelogError, match="session") as caught:
        await LedgerStore(store).get(5)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    with pytest.raises(FencelogError, match="session"):
        await LedgerStore(store).delete(5)
    assert await store.children("/ledgers/0") == ["0005"]
    with pytest.raises(FencelogError, match="session"):
        _ = [metadata async for metadata in LedgerStore(store).read_all()]
    await store.close()


async def test_the_latest_metadata_is_read_after_catching_up() -> None:
    class Behind(MemoryMetadataStore):
        stale: Versioned | None = None
        expires = False

        async def get(self, path: str) -> Versioned:
            return self.stale or await super().get(path)

        async def set(self, path: str, value: bytes, version: Version) -> Version:
            self.stale = None
            try:
                return await super().set(path, value, version)
            finally:
                if self.expires:
                    self.expire()
                    self.reconnect()

    store = Behind()
    await store.start()
    ledgers = LedgerStore(store)
    await ledgers.create(ledger(5))
    stale = await store.get("/ledgers/0/0005")
    version = await ledgers.update(ledger(5).in_recovery(), stale.version)
    store.stale = stale
    assert await ledgers.get(5) == (ledger(5), stale.version)
    assert stale.version != version
    assert await ledgers.get_latest(5) == (ledger(5).in_recovery(), version)
    store.expires = True
    with pytest.raises(FencelogError, match="session"):
        await ledgers.get_latest(5)
    await store.close()
