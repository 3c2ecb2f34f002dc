"""The ledgers that are removed: those that are gone from this cluster's metadata for sure, and no
other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.gc.ledgers import ClusterMetadata, LedgerGarbage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ids import COUNTER_PATH
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, ledger_path
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import Versioned
from tests.support.bookie_stage import OpenBookie, Requests, is_removing, refusal_of
from tests.support.metadata_nodes import remove

OURS = "11" * 16


class WatchedStore(MemoryMetadataStore):
    """A session that lets a test do something before a request, or refuse it."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.before: Callable[[str], Awaitable[None]] | None = None

    async def _tell(self, what: str) -> None:
        if self.before is not None:
            await self.before(what)

    async def get(self, path: str) -> Versioned:
        await self._tell(f"get {path}")
        return await super().get(path)

    async def children(self, path: str) -> list[str]:
        await self._tell(f"children {path}")
        return await super().children(path)


class Scene:
    """A bookie with ledgers 1 to 4 in it, all of which the metadata has."""

    def __init__(
        self, bookie: Bookie, requests: Requests, store: WatchedStore, ledgers: LedgerStore
    ) -> None:
        self.bookie, self.requests, self.store, self.ledgers = bookie, requests, store, ledgers
        self.instance: list[str | None] = [OURS]
        """What is read, one after the other; the last one for ever."""
        self.unsure: dict[int, str] = {}
        """Ledgers of which other bookies may lack entries, and why."""
        self.garbage = self.collector(grace_ms=0)

    def collector(self, grace_ms: int) -> LedgerGarbage:
        metadata = ClusterMetadata(self.store, self.read_instance, OURS)
        return LedgerGarbage(self.bookie, metadata, self.doubt, grace_ms=grace_ms)

    async def doubt(self, metadata: LedgerMetadata) -> str | None:
        return self.unsure.get(metadata.ledger_id)

    async def read_instance(self) -> str | None:
        return self.instance.pop(0) if len(self.instance) > 1 else self.instance[0]

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        return new_metadata(
            ledger_id,
            ensemble=(self.bookie.bookie_id, "b2"),
            write_quorum=2,
            ack_quorum=2,
            token=str(ledger_id),
        )

    async def create(self, ledger_id: int) -> None:
        await self.ledgers.create(self.metadata(ledger_id))
        assert await self.requests.add(self.bookie, self.requests.run(ledger_id, 0)) is None

    async def elsewhere(self, ledger_id: int) -> None:
        """The ledger is closed, and others hold it."""
        metadata, version = await self.ledgers.get(ledger_id)
        fragments = (replace(metadata.fragments[0], bookies=("b2", "b3")),)
        closed = replace(metadata, fragments=fragments).closed(last_entry_id=0, length=100)
        await self.ledgers.update(closed, version)

    async def answer(self, ledger_id: int) -> bytes | ErrorCode:
        try:
            run: bytes = await self.requests.read(self.bookie, ledger_id, 0)
        except FencelogError as error:
            return error.code
        return run

    async def refused(self, *, because: ErrorCode) -> None:
        """A pass fails for a reason, and nothing is removed."""
        with pytest.raises(FencelogError) as caught:
            await self.garbage.collect()
        assert caught.value.code is because
        for ledger_id in range(1, 5):
            assert await self.answer(ledger_id) == self.requests.run(ledger_id, 0)


@pytest.fixture
async def scene(open_bookie: OpenBookie, requests: Requests) -> AsyncIterator[Scene]:
    cluster = MemoryCluster()
    store, other = WatchedStore(cluster), MemoryMetadataStore(cluster)
    await store.start()
    await other.start()
    await other.create(COUNTER_PATH, b"2000")
    scene = Scene(await open_bookie(), requests, store, LedgerStore(other))
    for ledger_id in range(1, 5):
        await scene.create(ledger_id)
    yield scene
    await store.close()
    await other.close()


async def test_a_deleted_ledger_goes_and_leaves_a_tombstone(
    scene: Scene, open_bookie: OpenBookie
) -> None:
    await scene.ledgers.delete(2)
    assert await scene.garbage.collect() == [2]
    assert await scene.garbage.collect() == []
    for _ in range(2):
        assert await scene.answer(2) is ErrorCode.NO_SUCH_LEDGER
        assert await scene.answer(3) == scene.requests.run(3, 0)
        late = scene.requests.run(2, 1)
        assert refusal_of(await scene.requests.add(scene.bookie, late)) is ErrorCode.LEDGER_FENCED
        assert (
            refusal_of(await scene.requests.add(scene.bookie, late, recovery=True))
            is ErrorCode.NO_SUCH_LEDGER
        )
        await scene.bookie.close()
        scene.bookie = await open_bookie()


async def test_a_closed_ledger_that_others_hold_goes_after_the_grace_time(scene: Scene) -> None:
    patient = scene.collector(grace_ms=3_600_000)
    await scene.elsewhere(3)
    assert await patient.collect() == []
    assert await scene.answer(3) == scene.requests.run(3, 0)
    assert await scene.garbage.collect() == [3]
    assert await scene.answer(3) is ErrorCode.LEDGER_IN_LIMBO
    shard = scene.bookie.shards[0]
    assert (shard.states.in_limbo, shard.states.lacking) == ({3}, 0)

    def is_gone() -> bool:
        shard.flusher.request()  # nothing while an earlier flush runs
        return not is_removing(scene.bookie, 3)

    await scene.requests.until(is_gone)
    assert await scene.garbage.collect() == [], "nothing more is here of it"
    await scene.ledgers.delete(3)
    assert await scene.garbage.collect() == [3]
    assert await scene.answer(3) is ErrorCode.NO_SUCH_LEDGER


async def test_a_deleted_ledger_that_a_restore_brings_back_in_time_is_still_there(
    scene: Scene,
) -> None:
    patient = scene.collector(grace_ms=3_600_000)
    await scene.ledgers.delete(2)
    await scene.ledgers.delete(3)
    assert await patient.collect() == []
    await scene.ledgers.create(scene.metadata(2))
    assert await scene.answer(2) == scene.requests.run(2, 0)
    assert await patient.collect(grace_of_deleted=False) == [3]
    assert await scene.answer(2) == scene.requests.run(2, 0)


async def test_what_others_may_lack_stays_and_is_told_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for ledger_id in (2, 3):
        await scene.elsewhere(ledger_id)
    scene.unsure = {3: "bookie b2 has no entry 0"}
    assert await scene.garbage.collect() == [2]
    assert await scene.garbage.collect() == []
    assert await scene.answer(3) == scene.requests.run(3, 0)
    assert scene.garbage.doubts == scene.unsure
    (told,) = caplog.messages
    assert "keeps 1 over-replicated ledgers" in told
    assert "3 first: bookie b2 has no entry 0" in told
    scene.unsure = {}
    assert await scene.garbage.collect() == [3]
    assert not scene.garbage.doubts


async def test_who_holds_it_has_to_be_named_still(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookies that were asked are no longer those of the metadata."""
    await scene.elsewhere(3)

    async def then_moved(metadata: LedgerMetadata) -> None:
        _, version = await scene.ledgers.get(3)
        moved = replace(metadata.fragments[0], bookies=("b2", "b4"))
        await scene.ledgers.update(replace(metadata, fragments=(moved,)), version)
        monkeypatch.undo()

    monkeypatch.setattr(scene.garbage, "_doubt", then_moved)
    assert await scene.garbage.collect() == []
    assert await scene.answer(3) == scene.requests.run(3, 0)
    assert await scene.garbage.collect() == [3]


@pytest.mark.parametrize(
    "instance",
    [[None], ["22" * 16], [OURS, None], [OURS, "22" * 16]],
    ids=["none", "another", "emptied meanwhile", "another meanwhile"],
)
async def test_nothing_goes_by_the_metadata_of_another_cluster(
    scene: Scene, instance: list[str | None]
) -> None:
    for ledger_id in range(1, 5):
        await scene.ledgers.delete(ledger_id)
    scene.instance = instance
    await scene.refused(because=ErrorCode.BAD_REQUEST)


@pytest.mark.parametrize("given", [b"2", None])
async def test_ledgers_that_a_restored_backup_has_never_heard_of_stay(
    scene: Scene, given: bytes | None
) -> None:
    """The instance id is ours, the contents are older than ledgers 3 and 4."""
    for ledger_id in (2, 3, 4):
        await scene.ledgers.delete(ledger_id)
    await remove(scene.store, COUNTER_PATH)
    if given is not None:
        await scene.store.create(COUNTER_PATH, given)
    assert await scene.garbage.collect() == ([2] if given else [])
    assert scene.garbage.ahead == (2 if given else 3)
    for ledger_id in (3, 4):
        assert await scene.answer(ledger_id) == scene.requests.run(ledger_id, 0)
    await scene.create(3)
    await scene.create(4)
    assert await scene.garbage.collect() == []
    assert scene.garbage.ahead == (0 if given else 1)


@pytest.mark.parametrize("at", ["children /ledgers/0", "get /ledgers/0/0003"])
@pytest.mark.parametrize("loses", ["a reply", "the session"])
async def test_nothing_goes_by_a_listing_that_is_not_whole(
    scene: Scene, at: str, loses: str
) -> None:
    async def before(what: str) -> None:
        if what != at:
            return
        if loses == "a reply":
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "made to fail")
        scene.store.disconnect()
        scene.store.expire()
        scene.store.reconnect()

    await scene.ledgers.delete(2)
    scene.store.before = before
    await scene.refused(because=ErrorCode.METADATA_UNAVAILABLE)
    scene.store.before = None
    assert await scene.garbage.collect() == [2]


async def test_a_session_lost_between_listing_and_instance_counts_for_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.ledgers.delete(2)
    read = scene.read_instance
    calls = 0

    async def instance() -> str | None:
        nonlocal calls
        calls += 1
        if calls == 2:
            scene.store.disconnect()
            scene.store.expire()
            scene.store.reconnect()
        return await read()

    monkeypatch.setattr(scene, "read_instance", instance)
    scene.garbage = scene.collector(grace_ms=0)
    await scene.refused(because=ErrorCode.METADATA_UNAVAILABLE)


async def test_a_ledger_created_during_the_listing_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata may be younger than the listing of its directory, its entries older than the
    end of it."""

    async def before(what: str) -> None:
        if what.startswith("get /ledgers/0/0001"):
            scene.store.before = None
            await scene.create(5)

    async def never_there(ledger_id: int) -> None:
        raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, "a look that would be wrong, too")

    scene.store.before = before
    monkeypatch.setattr(scene.garbage._ledgers, "get", never_there)
    real = LedgerStore(scene.store)
    monkeypatch.setattr(scene.garbage._ledgers, "read_all", real.read_all)
    assert await scene.garbage.collect() == []
    assert await scene.answer(5) == scene.requests.run(5, 0)


async def test_a_ledger_that_is_there_after_all_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look right before the removal finds a ledger that the listing missed."""
    real = LedgerStore(scene.store).read_all

    async def without_2() -> AsyncIterator[LedgerMetadata]:
        async for metadata in real():
            if metadata.ledger_id != 2:
                yield metadata

    monkeypatch.setattr(scene.garbage._ledgers, "read_all", without_2)
    assert await scene.garbage.collect() == []
    assert await scene.answer(2) == scene.requests.run(2, 0)


@pytest.mark.parametrize("now", ["names us", "is gone"])
async def test_over_replicated_is_looked_at_again_before_it_goes(
    scene: Scene, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.elsewhere(3)
    real = LedgerStore(scene.store).read_all

    async def then_changed() -> AsyncIterator[LedgerMetadata]:
        async for metadata in real():
            yield metadata
        if now == "is gone":
            await scene.ledgers.delete(3)
            return
        metadata, version = await scene.ledgers.get(3)
        named = replace(metadata.fragments[0], bookies=(scene.bookie.bookie_id, "b2"))
        await scene.ledgers.update(replace(metadata, fragments=(named,)), version)

    monkeypatch.setattr(scene.garbage._ledgers, "read_all", then_changed)
    assert await scene.garbage.collect() == []
    assert await scene.answer(3) == scene.requests.run(3, 0)


async def test_who_was_named_while_the_mark_was_looked_for_keeps_its_entries(
    scene: Scene,
) -> None:
    """A worker that has copied the ledger here names this bookie and removes the mark, both between
    the look at the metadata and the one at the mark."""
    await scene.elsewhere(3)
    mark, looks = ledger_path(MARKS_PATH, 3), list[str]()

    async def then_named(what: str) -> None:
        if what != f"get {mark}":
            return
        looks.append(what)
        metadata, version = await scene.ledgers.get(3)
        named = replace(metadata.fragments[0], bookies=(scene.bookie.bookie_id, "b2"))
        await scene.ledgers.update(replace(metadata, fragments=(named,)), version)

    scene.store.before = then_named
    assert await scene.garbage.collect() == []
    assert len(looks) == 1
    assert await scene.answer(3) == scene.requests.run(3, 0)


async def test_an_error_in_the_middle_leaves_the_rest_to_the_next_pass(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each removal stands on its own look; that others were refused takes nothing back."""
    for ledger_id in (2, 3):
        await scene.ledgers.delete(ledger_id)
    look = scene.garbage._ledgers.get

    async def fails_for_3(ledger_id: int) -> Any:
        if ledger_id == 3:
            raise FencelogError(ErrorCode.METADATA_UNKNOWN, "made to fail")
        return await look(ledger_id)

    monkeypatch.setattr(scene.garbage._ledgers, "get", fails_for_3)
    with pytest.raises(FencelogError, match="made to fail"):
        await scene.garbage.collect()
    assert await scene.answer(3) == scene.requests.run(3, 0)
    assert await scene.answer(2) is ErrorCode.NO_SUCH_LEDGER
    monkeypatch.setattr(scene.garbage._ledgers, "get", look)
    assert await scene.garbage.collect() == [3]


async def test_adds_go_on_while_thousands_of_ledgers_are_removed(
    scene: Scene, tmp_path: Path
) -> None:
    ids = range(100, 1100)
    for ledger_id in ids:
        await scene.requests.add(scene.bookie, scene.requests.run(ledger_id, 0))
    collecting = asyncio.get_running_loop().create_task(scene.garbage.collect())
    added = 0
    while not collecting.done():
        added += 1
        assert await scene.requests.add(scene.bookie, scene.requests.run(1, added)) is None
    assert await collecting == list(ids)
    assert added >= len(ids) // 64, "an add waits behind one batch at most"
