"""Limbo ends when everything is here again, and not before: seed 002 from end to end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.engine.admin import administer
from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, ledger_path
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.recovery.recovery import recover_ledger
from fencelog.ledgers.recovery.rules import AcceptedLoss
from fencelog.ledgers.rpc.bookie_port import ReadReply
from tests.support.bookie_stage import Requests
from tests.support.local_cluster import LocalCluster
from tests.support.until import until

PAYLOADS = [b"entry %d" % n for n in range(50)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path) as cluster:
        yield cluster


async def read(bookie: Bookie, ledger_id: int, entry_id: int) -> ErrorCode | int:
    """Return how many entries come, or why none does."""
    try:
        reply = await bookie.read(ledger_id, entry_id, max_entries=1, max_bytes=1000)
    except FencelogError as error:
        return error.code
    return int.from_bytes(reply.run[16:20], "little")


def limbo(bookie: Bookie, ledger_id: int) -> bool:
    state = bookie.shard(ledger_id).states.get(ledger_id)
    return state is not None and state.limbo


def waiting(integrity: Any) -> list[tuple[int, str, int | None, list[str]]]:
    return [
        (item["ledger_id"], item["why"], item["entry_id"], item["bookies_in_limbo"])
        for item in integrity.status()["waiting"]
    ]


class Gates:
    """A client of one bookie that lets a test act before each of its reads."""

    def __init__(self, client: Any, before_read: Callable[[int], Any]) -> None:
        self._client = client
        self._before_read = before_read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def read(self, ledger_id: int, first: int, **limits: Any) -> ReadReply:
        await self._before_read(first)
        reply: ReadReply = await self._client.read(ledger_id, first, **limits)
        return reply


async def test_a_lost_disk_is_filled_again_and_then_no_is_no(cluster: LocalCluster) -> None:
    """Scenario 1 as well: what was fenced stays so, for the writer that wakes up."""
    writer = await cluster.write(*PAYLOADS)
    closed = await (await cluster.write(*PAYLOADS[:5])).close()
    empty = await (await cluster.write(b"x")).close()
    b1 = await cluster.lose_disk("b1")
    for ledger_id in (writer.ledger_id, closed.ledger_id):
        assert await read(b1, ledger_id, 0) is ErrorCode.LEDGER_IN_LIMBO
        assert await read(b1, ledger_id, 99) is ErrorCode.LEDGER_IN_LIMBO
    integrity = cluster.integrity("b1")
    await integrity.check()
    metadata, _ = await cluster.ledgers.get(writer.ledger_id)
    assert (metadata.is_closed, metadata.last_entry_id) == (True, 49)
    status = integrity.status()
    assert (status["repaired_ledgers"], status["ledgers_waiting"]) == (3, 0)
    cluster.cut("b2", "b3")
    assert await cluster.contents(writer.ledger_id) == PAYLOADS
    assert await cluster.contents(closed.ledger_id) == PAYLOADS[:5]
    assert await cluster.contents(empty.ledger_id) == [b"x"]
    cluster.cut()
    for _ in range(2):  # once from memory, once from the disk
        for ledger_id in (writer.ledger_id, closed.ledger_id):
            assert await read(b1, ledger_id, 99) is ErrorCode.NO_SUCH_ENTRY
            assert not limbo(b1, ledger_id)
        b1 = await cluster.restart("b1")
    with suppress(FencelogError):  # it may have been told so already, when it told its LAC
        writer.append(b"too late")
    with pytest.raises(FencelogError) as caught:
        await writer.close()
    assert caught.value.code is ErrorCode.LEDGER_FENCED


async def test_scenario_2_an_entry_on_two_of_three_is_not_truncated(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b2 never got it, b1 lost it, b3 is slow: only when b3 answers can the ledger be closed."""
    monkeypatch.setattr("fencelog.bookie.repair.backoff.pause_s", lambda attempts: 1e9)
    cluster.cut("b2")
    writer = await cluster.write(b"E0")
    b1 = await cluster.lose_disk("b1")
    cluster.cut("b3")
    integrity = cluster.integrity("b1")
    await integrity.check()
    assert waiting(integrity) == [
        (writer.ledger_id, ErrorCode.RECOVERY_INCOMPLETE.slug, None, []),
    ]
    assert not (await cluster.ledgers.get(writer.ledger_id))[0].is_closed
    assert limbo(b1, writer.ledger_id)
    cluster.cut()
    await integrity.check()  # it failed a moment ago
    assert limbo(b1, writer.ledger_id)
    await administer(b1.admin, {"do": "integrity"})
    await integrity.check()
    assert not limbo(b1, writer.ledger_id)
    assert await cluster.contents(writer.ledger_id) == [b"E0"]
    assert await read(b1, writer.ledger_id, 0) == 1


async def test_a_repair_that_waits_is_tried_when_a_bookie_registers(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.bookie.repair.backoff.pause_s", lambda attempts: 1e9)
    writer = await cluster.write(b"E0", ensemble=2, copies=2)
    lost, other = writer.metadata.fragments[0].bookies
    bookie = await cluster.lose_disk(lost)
    await cluster.stop(other)
    integrity = cluster.integrity(lost)
    for _ in range(2):
        await integrity.check()
    assert [item["attempts"] for item in integrity.status()["waiting"]] == [1]
    await cluster.start(other)
    await integrity.check()
    assert not limbo(bookie, writer.ledger_id)
    assert await read(bookie, writer.ledger_id, 0) == 1


async def test_limbo_lasts_to_the_last_copy_and_through_a_crash(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_id = (await (await cluster.write(*PAYLOADS, acks=3)).close()).ledger_id
    b1 = await cluster.lose_disk("b1")
    seen: list[tuple[int, ErrorCode | int]] = []

    async def look(first: int) -> None:
        seen.append((first, await read(b1, ledger_id, 49)))
        if len(seen) == 3:
            raise asyncio.CancelledError

    for bookie_id in ("b2", "b3"):
        one_by_one = Gates(cluster.client(bookie_id), look)
        one_entry = one_by_one.read

        async def read_one(ledger_id: int, first: int, read: Any = one_entry, **limits: Any) -> Any:
            return await read(ledger_id, first, **{**limits, "max_entries": 10})

        monkeypatch.setattr(one_by_one, "read", read_one)
        cluster.put(bookie_id, one_by_one)
    integrity = cluster.integrity("b1")
    with pytest.raises(asyncio.CancelledError):
        await integrity.check()
    assert seen == [(first, ErrorCode.LEDGER_IN_LIMBO) for first in (0, 10, 20)]
    # Copies that were sent go on, and count when they are durable.
    await until(lambda: integrity.status()["copied_entries"] >= 20)
    await cluster.kill("b1")
    b1 = await cluster.start("b1")
    assert await read(b1, ledger_id, 19) == 1  # what was copied is there
    assert await read(b1, ledger_id, 20) is ErrorCode.LEDGER_IN_LIMBO
    seen.append((0, 0))
    integrity = cluster.integrity("b1")
    await integrity.check()
    assert integrity.status()["copied_entries"] == 30
    assert await read(b1, ledger_id, 49) == 1
    assert await read(b1, ledger_id, 50) is ErrorCode.NO_SUCH_ENTRY


async def test_peers_that_cannot_be_asked_have_not_said_no(cluster: LocalCluster) -> None:
    ledger_id = (await (await cluster.write(*PAYLOADS, acks=3)).close()).ledger_id
    b1 = await cluster.lose_disk("b1")
    for bookie_id in ("b2", "b3"):
        await cluster.kill(bookie_id)
    integrity = cluster.integrity("b1")
    await integrity.check()
    assert integrity.status()["repaired_ledgers"] == 0
    assert await read(b1, ledger_id, 0) is ErrorCode.LEDGER_IN_LIMBO
    for bookie_id in ("b2", "b3"):
        await cluster.start(bookie_id)
    await administer(b1.admin, {"do": "integrity"})
    await integrity.check()
    assert await read(b1, ledger_id, 49) == 1
    assert await read(b1, ledger_id, 50) is ErrorCode.NO_SUCH_ENTRY


@pytest.mark.parametrize("acks", [1, 2])
async def test_striped_ledgers_get_back_just_what_is_theirs(tmp_path: Path, acks: int) -> None:
    async with LocalCluster(tmp_path, size=4) as cluster:
        writer = await cluster.write(*PAYLOADS, ensemble=4, copies=2, acks=2)
        metadata = await writer.close()
        before = (await cluster.bookies["b2"].list_entries(writer.ledger_id)).availability
        b2 = await cluster.lose_disk("b2")
        await cluster.integrity("b2").check()
        after = await b2.list_entries(writer.ledger_id)
        assert (after.availability, after.in_limbo) == (before, False)
        assert await cluster.contents(metadata.ledger_id) == PAYLOADS


async def test_an_entry_that_nobody_has_is_reported_and_the_others_are_copied(
    cluster: LocalCluster,
) -> None:
    """b1 and b2 had entry 0; both lose their disks, one after the other, and nobody repairs."""
    cluster.cut("b3")
    metadata = await (await cluster.write(b"0", b"1", b"2")).close()
    cluster.cut()
    await cluster.lose_disk("b2")
    b1 = await cluster.lose_disk("b1")
    await cluster.bookies["b3"].read_lac(metadata.ledger_id, fence=True)  # intact, and without it
    integrity = cluster.integrity("b1")
    await integrity.check()
    assert waiting(integrity) == [(metadata.ledger_id, "in_limbo", 0, ["b1", "b2"])]
    assert integrity.status()["ledgers_wholly_in_limbo"] == 1
    await cluster.bookies["b2"].clear_limbo(metadata.ledger_id)  # as if it had never been given any
    await administer(b1.admin, {"do": "integrity"})
    await integrity.check()
    assert waiting(integrity) == [(metadata.ledger_id, "lost", 0, [])]
    assert integrity.status()["ledgers_lost"] == 1
    assert await read(b1, metadata.ledger_id, 0) is ErrorCode.LEDGER_IN_LIMBO


async def test_what_can_be_copied_is_copied_beside_what_is_lost(
    cluster: LocalCluster, requests: Requests
) -> None:
    metadata = await (await cluster.write(*PAYLOADS)).close()
    for bookie_id in ("b1", "b2", "b3"):
        await cluster.lose_disk(bookie_id)
    for bookie_id in ("b2", "b3"):
        await cluster.bookies[bookie_id].clear_limbo(metadata.ledger_id)
    run = requests.run(metadata.ledger_id, 20, 10)
    assert await requests.add(cluster.bookies["b3"], run, recovery=True) is None
    integrity = cluster.integrity("b1")
    await integrity.check()
    assert integrity.status()["copied_entries"] == 10
    assert waiting(integrity) == [(metadata.ledger_id, "lost", 0, [])]
    assert await read(cluster.bookies["b1"], metadata.ledger_id, 29) == 1


async def test_a_write_set_wholly_in_limbo_is_reported_and_only_consent_ends_it(
    cluster: LocalCluster,
) -> None:
    writer = await cluster.write(*PAYLOADS)
    ledger_id = writer.ledger_id
    for bookie_id in ("b1", "b2", "b3"):
        await cluster.lose_disk(bookie_id)
    integrity = cluster.integrity("b1")
    await integrity.check()
    ((_, why, entry_id, bookies),) = waiting(integrity)
    assert (why, entry_id) == ("in_limbo", None)  # it was not even to be fenced
    assert len(bookies) >= 2
    accepted = AcceptedLoss()
    closed = await recover_ledger(
        ledger_id,
        ledgers=cluster.ledgers,
        bookies=cluster,
        placement=cluster.placement,
        accepted=accepted,
    )
    assert (closed.is_closed, closed.last_entry_id, closed.length) == (True, -1, 0)
    assert accepted.entries == {0: ("b1", "b2", "b3")}
    assert len(accepted.fenced) >= 2
    await administer(cluster.bookies["b1"].admin, {"do": "integrity"})
    await integrity.check()
    assert await read(cluster.bookies["b1"], ledger_id, 0) is ErrorCode.NO_SUCH_ENTRY


async def test_with_consent_entries_may_be_lost_of_which_the_lac_is_known(
    cluster: LocalCluster, requests: Requests
) -> None:
    """The explicit LAC is on disk, the entries were only in memory (journal_write off)."""
    for bookie_id in ("b1", "b2", "b3"):
        await cluster.stop(bookie_id)
        shutil.rmtree(cluster.directory(bookie_id))
        await cluster.start(bookie_id, journal_write=False, repair_cookie=True)
    writer = await cluster.write(*PAYLOADS[:3])
    ledger_id = writer.ledger_id
    for bookie in cluster.bookies.values():
        assert await requests.write_lac(bookie, ledger_id, 2) is None
    for bookie_id in ("b1", "b2", "b3"):
        await cluster.kill(bookie_id)
        await cluster.start(bookie_id)
    assert await cluster.bookies["b1"].read_lac(ledger_id) == 2
    accepted = AcceptedLoss()
    closed = await recover_ledger(
        ledger_id,
        ledgers=cluster.ledgers,
        bookies=cluster,
        placement=cluster.placement,
        accepted=accepted,
    )
    assert (closed.last_entry_id, closed.length) == (-1, 0)
    assert sorted(accepted.entries) == [0, 1, 2, 3]


async def test_a_ledger_deleted_meanwhile_is_left_to_garbage_collection(
    cluster: LocalCluster,
) -> None:
    metadata = await (await cluster.write(*PAYLOADS)).close()
    b1 = await cluster.lose_disk("b1")
    deleted = False

    async def delete(_first: int) -> None:
        nonlocal deleted
        if not deleted:
            deleted = True
            await cluster.ledgers.delete(metadata.ledger_id)

    for bookie_id in ("b2", "b3"):
        cluster.put(bookie_id, Gates(cluster.client(bookie_id), delete))
    integrity = cluster.integrity("b1")
    await integrity.check()
    assert waiting(integrity) == [(metadata.ledger_id, "ledger_not_found", None, [])]
    assert limbo(b1, metadata.ledger_id)
    await b1.shard(metadata.ledger_id).remove(metadata.ledger_id, deleted=True)
    await integrity.check()
    assert waiting(integrity) == []


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_ledger_removed_meanwhile_stays_in_limbo(
    cluster: LocalCluster, requests: Requests, is_flushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage collection lets go of it between the copying and the end: found by the count."""
    metadata = await (await cluster.write(*PAYLOADS)).close()
    b1 = await cluster.lose_disk("b1")
    integrity = cluster.integrity("b1")
    get_latest = cluster.ledgers.get_latest

    async def removing(ledger_id: int) -> tuple[LedgerMetadata, Version]:
        latest = await get_latest(ledger_id)
        shard = b1.shard(ledger_id)
        if (state := shard.states.get(ledger_id)) is not None and state.removals == 0:
            await shard.remove(ledger_id, deleted=False)
            if is_flushed:
                while state.removing:  # a flush that was running already has not taken it
                    shard.flusher.request()
                    await requests.until(lambda: shard.flusher._begun is None)
                before.append(await read(b1, ledger_id, 0))
        return latest

    before: list[ErrorCode | int] = []
    monkeypatch.setattr(cluster.ledgers, "get_latest", removing)
    await integrity.check()
    if is_flushed:  # it was gone, and had to be copied once more
        assert before == [ErrorCode.LEDGER_IN_LIMBO]
        assert not limbo(b1, metadata.ledger_id)
        assert integrity.status()["copied_entries"] == 100
        assert await read(b1, metadata.ledger_id, 0) == 1
    else:
        assert waiting(integrity) == [(metadata.ledger_id, "removing", None, [])]
        assert await read(b1, metadata.ledger_id, 0) is ErrorCode.LEDGER_IN_LIMBO


async def test_metadata_that_changed_meanwhile_is_gone_through_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookie is given the other half of a ledger while it repairs the first."""
    async with LocalCluster(tmp_path, size=4) as cluster:
        closed = await (await cluster.write(*PAYLOADS)).close()
        (stranger,) = {"b1", "b2", "b3", "b4"} - set(closed.fragments[0].bookies)
        ensemble = closed.fragments[0].bookies
        changed = replace(
            closed,
            fragments=(
                closed.fragments[0],
                replace(closed.fragments[0], first_entry_id=25),
            ),
        )
        lost = ensemble[0]
        swapped = (stranger, *ensemble[1:])
        split = replace(
            changed,
            fragments=(changed.fragments[0], replace(changed.fragments[1], bookies=swapped)),
        )
        _, version = await cluster.ledgers.get(closed.ledger_id)
        version = await cluster.ledgers.update(split, version)
        bookie = await cluster.lose_disk(lost)
        integrity = cluster.integrity(lost)
        get_latest = cluster.ledgers.get_latest
        calls = 0

        async def changing(ledger_id: int) -> tuple[LedgerMetadata, Version]:
            nonlocal calls
            calls += 1
            if calls == 1:
                await cluster.ledgers.update(changed, version)
            return await get_latest(ledger_id)

        monkeypatch.setattr(cluster.ledgers, "get_latest", changing)
        await integrity.check()
        assert calls == 2
        assert not limbo(bookie, closed.ledger_id)
        held = (await bookie.list_entries(closed.ledger_id)).availability
        assert held.count == 50


async def test_a_ledger_that_names_the_bookie_no_more_stays_in_limbo(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, size=4) as cluster:
        closed = await (await cluster.write(*PAYLOADS)).close()
        ensemble = closed.fragments[0].bookies
        bookie = await cluster.lose_disk(ensemble[0])
        (stranger,) = {"b1", "b2", "b3", "b4"} - set(ensemble)
        fragment = replace(closed.fragments[0], bookies=(stranger, *ensemble[1:]))
        changed = replace(closed, fragments=(fragment,))
        _, version = await cluster.ledgers.get(closed.ledger_id)
        await cluster.ledgers.update(changed, version)
        integrity = cluster.integrity(ensemble[0])
        await integrity.check()
        assert waiting(integrity) == [(closed.ledger_id, "stranger", None, [])]
        assert limbo(bookie, closed.ledger_id)
        assert integrity.status()["copied_entries"] == 0
        states = bookie.shard(closed.ledger_id).states
        assert states.lacking == 0
        _, version = await cluster.ledgers.get(closed.ledger_id)
        await cluster.ledgers.update(closed, version)  # it is a member again
        await integrity._check_now({})
        await integrity.check()
        assert not limbo(bookie, closed.ledger_id)
        assert (states.in_limbo, states.strangers) == (set(), set())


async def test_a_bookie_that_may_be_named_yet_may_lack_what_it_got_before(tmp_path: Path) -> None:
    """A recovery, or a worker, has written entries to it, which it has lost since, and names it at
    the end."""
    async with LocalCluster(tmp_path, size=4) as cluster:
        closed = await (await cluster.write(*PAYLOADS)).close()
        ledger_id, ensemble = closed.ledger_id, closed.fragments[0].bookies
        (other,) = {"b1", "b2", "b3", "b4"} - set(ensemble)
        bookie, integrity = cluster.bookies[other], cluster.integrity(other)
        states = bookie.shard(ledger_id).states
        bookie.fence_forgotten(ledger_id)

        async def lacking() -> int:
            await integrity._check_now({})
            await integrity.check()
            assert limbo(bookie, ledger_id)
            return states.lacking

        mark = ledger_path(MARKS_PATH, ledger_id)
        marked = await cluster.store.create(mark, b"{}")
        assert await lacking() == 1
        await cluster.store.delete(mark, marked)
        _, version = await cluster.ledgers.get(ledger_id)
        recovering = replace(closed, state=LedgerState.IN_RECOVERY, last_entry_id=-1, length=0)
        version = await cluster.ledgers.update(recovering, version)
        assert await lacking() == 1
        await cluster.ledgers.update(closed, version)
        assert await lacking() == 0
        await cluster.ledgers.delete(ledger_id)
        states.set_stranger(ledger_id, False)
        assert await lacking() == 0
