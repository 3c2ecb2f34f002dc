"""Wherever a start or a repair dies, the next one goes on or refuses, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.boot import fence_before_serving
from fencelog.bookie.identity.cookie_admin import delete_cookie, repair_cookie
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version, Versioned
from fencelog.ledgers.metastore.registration import Registration
from tests.support.bookie_stage import OpenBookie, Requests, refusal_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.metadata_nodes import remove

UNKNOWN = ErrorCode.METADATA_UNKNOWN

LEDGERS = (0, 1, 2, 3)
"""Two in each shard of a bookie with two ledger directories."""


class Failing(MemoryMetadataStore):
    """Its next writes of cookies fail: nothing happened, or it did and nobody was told."""

    fails: list[tuple[ErrorCode, bool]]

    async def create(self, path: str, value: bytes, **options: bool) -> Version:
        return await self._attempt(path, partial(super().create, path, value, **options))

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        return await self._attempt(path, partial(super().set, path, value, version))

    async def _attempt(self, path: str, write: Callable[[], Awaitable[Version]]) -> Version:
        if path.startswith("/cookies/") and self.fails:
            code, happens = self.fails.pop(0)
            if happens:
                await write()
            raise FencelogError(code, "made to fail")
        return await write()


def ledger(ledger_id: int) -> LedgerMetadata:
    ensemble = ("b1", "b2")
    return new_metadata(ledger_id, ensemble=ensemble, write_quorum=2, ack_quorum=2, token="t")


@pytest.fixture
async def store() -> AsyncIterator[Failing]:
    """A metadata store with ledgers that name b1."""
    store = Failing(MemoryCluster())
    store.fails = []
    await store.start()
    await create_instance(store, SystemHost())
    for ledger_id in LEDGERS:
        await LedgerStore(store).create(ledger(ledger_id))
    yield store
    await store.close()


class Machine:
    """A bookie b1 with a journal directory and two ledger directories."""

    def __init__(
        self, path: Path, store: Failing, open_bookie: OpenBookie, requests: Requests
    ) -> None:
        self.path, self.store = path, store
        self._open, self._requests = open_bookie, requests
        self._bookies: list[Bookie] = []
        self.directories = [path / name for name in ("data", "j0", "l0", "l1")]

    async def start(
        self,
        *,
        disk: Disk | None = None,
        journal_sync: bool = True,
        repair_cookie: bool = False,
    ) -> Bookie:
        data, journal, *ledgers = self.directories
        bookie = await self._open(
            data_dir=data,
            journal_dirs=(journal,),
            ledger_dirs=tuple(ledgers),
            bookie_id="b1",
            cookies=CookieRegistry(self.store),
            disk=disk,
            journal_sync=journal_sync,
            repair_cookie=repair_cookie,
        )
        self._bookies.append(bookie)
        return bookie

    async def close(self) -> None:
        """Whatever was opened: a bookie may be open that could not fence."""
        for bookie in self._bookies:
            await bookie.close()
        self._bookies.clear()

    async def repair(self, disk: Disk | None = None) -> Any:
        data, journal, *ledgers = self.directories
        config = BookieConfig(data, (journal,), tuple(ledgers), bookie_id="b1", repair_cookie=True)
        return await repair_cookie(config, self.store, disk=disk or PosixDisk(), host=SystemHost())

    async def serve(
        self,
        *,
        disk: Disk | None = None,
        journal_sync: bool = True,
        repair_cookie: bool = False,
    ) -> Bookie:
        bookie = await self.start(disk=disk, journal_sync=journal_sync, repair_cookie=repair_cookie)
        await fence_before_serving(bookie, self.store)
        return bookie

    async def registered(self) -> Any:
        return (await CookieRegistry(self.store).read("b1")).registered.cookie

    async def outcome(self, ledger_id: int, bookie: Bookie) -> str:
        """Return what a bookie has of a ledger in which it acknowledged entry 100."""
        try:
            await self._requests.read(bookie, ledger_id, 100)
        except FencelogError as error:
            return error.code.slug
        return "there"

    async def fill(self, bookie: Bookie) -> None:
        """Acknowledge an entry of ledgers 100 to 103, which are fenced then."""
        for ledger_id in LEDGERS:
            run = self._requests.run(100 + ledger_id, 100)
            assert await self._requests.add(bookie, run) is None
            await LedgerStore(self.store).create(ledger(100 + ledger_id))

    async def outcomes(self, bookie: Bookie) -> list[str]:
        return [await self.outcome(100 + ledger_id, bookie) for ledger_id in LEDGERS]


@pytest.fixture
def machine(tmp_path: Path, store: Failing, open_bookie: OpenBookie, requests: Requests) -> Machine:
    return Machine(tmp_path, store, open_bookie, requests)


async def refused(start: Awaitable[object], code: ErrorCode) -> str:
    with pytest.raises(FencelogError) as caught:
        await start
    assert caught.value.code is code
    return caught.value.detail


async def failure_of(work: Awaitable[object]) -> ErrorCode | None:
    try:
        await work
    except FencelogError as error:
        return error.code
    return None


def is_incarnation(found: Any, bookie: Bookie) -> bool:
    return bool(found.incarnation == bookie.incarnation)


# -- starts ------------------------------------------------------------------------------------


async def test_a_store_without_an_instance_starts_no_bookie(machine: Machine) -> None:
    await remove(machine.store, "/instance")
    assert "fencelog metadata init" in await refused(machine.start(), ErrorCode.METADATA_NOT_FOUND)
    assert [path.name for path in machine.directories[0].iterdir()] == ["lock"]


async def test_a_bookie_is_registered_before_it_serves_and_starts_again(machine: Machine) -> None:
    bookie = await machine.serve()
    assert is_incarnation(await machine.registered(), bookie)
    await machine.fill(bookie)
    await bookie.close()
    again = await machine.start()
    assert (again.incarnation, again.may_have_forgotten) == (bookie.incarnation, False)
    assert await machine.outcomes(again) == ["there"] * 4


async def test_a_new_incarnation_is_registered_over_the_old_one(machine: Machine) -> None:
    bookie = await machine.serve(journal_sync=False)
    bookie._fail(FencelogError(ErrorCode.STORAGE_FAILED, "killed"))
    await bookie.close()
    machine.store.fails = [(ErrorCode.METADATA_UNAVAILABLE, False)]
    await refused(machine.start(), ErrorCode.METADATA_UNAVAILABLE)
    again = await machine.start()
    assert again.may_have_forgotten
    assert again.incarnation != bookie.incarnation
    assert is_incarnation(await machine.registered(), again)


@pytest.mark.parametrize("fails", [[(UNKNOWN, True)], [(UNKNOWN, False)], [(UNKNOWN, False)] * 2])
async def test_a_lost_reply_is_resolved_by_reading_back(machine: Machine, fails: Any) -> None:
    machine.store.fails = fails
    bookie = await machine.serve()
    assert is_incarnation(await machine.registered(), bookie)


async def test_a_registration_that_stays_unknown_is_done_by_the_next_start(
    machine: Machine,
) -> None:
    machine.store.fails = [(UNKNOWN, False)] * 3
    await refused(machine.start(), UNKNOWN)
    bookie = await machine.serve()
    assert is_incarnation(await machine.registered(), bookie)


@pytest.mark.parametrize("code", [ErrorCode.METADATA_UNAVAILABLE, ErrorCode.BAD_REQUEST])
async def test_a_refusal_says_nothing_of_a_registration_whose_answer_was_lost(
    machine: Machine, code: ErrorCode
) -> None:
    machine.store.fails = [(UNKNOWN, False), (code, False)]
    await refused(machine.start(), UNKNOWN)


async def test_a_registration_whose_maker_died_is_its_own_to_the_next_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write landed, the identity still says that it is new."""
    get = machine.store.get

    async def gone(path: str) -> Versioned:
        if path == "/cookies/b1" and not machine.store.fails:
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "gone")
        return await get(path)

    machine.store.fails = [(UNKNOWN, True)]
    monkeypatch.setattr(machine.store, "get", gone)
    await refused(machine.start(), UNKNOWN)
    monkeypatch.setattr(machine.store, "get", get)
    registered = await machine.registered()
    bookie = await machine.serve()
    assert is_incarnation(registered, bookie)


async def test_of_two_that_start_at_once_one_wins(
    machine: Machine,
    store: Failing,
    open_bookie: OpenBookie,
    requests: Requests,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Machine(tmp_path / "other", store, open_bookie, requests)
    create = store.create

    async def late(path: str, value: bytes, **options: bool) -> Version:
        if path == "/cookies/b1":
            monkeypatch.setattr(store, "create", create)
            await other.serve()
        return await create(path, value, **options)

    monkeypatch.setattr(store, "create", late)
    reason = await refused(machine.start(), ErrorCode.METADATA_CONFLICT)
    assert "another process starts as bookie b1" in reason
    assert "lost" in await refused(machine.start(), ErrorCode.CORRUPT)


# -- crashes -----------------------------------------------------------------------------------


async def test_a_first_start_goes_on_wherever_it_died(
    machine: Machine, faulty_disk: FaultyDisk
) -> None:
    """The disk is gone after 0, 1, 2, … calls; no operator is needed."""
    deaths = 0
    for calls in range(200):
        faulty_disk.calls_left = calls
        died = await failure_of(machine.serve(disk=faulty_disk))
        assert died in (None, ErrorCode.STORAGE_FAILED)
        await machine.close()
        again = await machine.serve()
        assert is_incarnation(await machine.registered(), again)
        await again.close()
        for path in machine.directories:
            rmtree(path)
        await remove(machine.store, "/cookies/b1")
        deaths += died is not None
        if died is None:
            break
    assert deaths > 25


LOST = {
    "journal": ["j0"],
    "a ledger directory": ["l1"],
    "a ledger directory and the journal": ["l0", "j0"],
    "data": ["data"],
    "everything": ["data", "j0", "l0", "l1"],
}
LEFT = {
    # Nothing was flushed: what is lost with the journal is all that was acknowledged.
    "journal": ["ledger_in_limbo"] * 4,
    "a ledger directory": ["there", "ledger_in_limbo"] * 2,
    "a ledger directory and the journal": ["ledger_in_limbo"] * 4,
    "data": ["there"] * 4,
    "everything": ["ledger_in_limbo"] * 4,
}


def lose(machine: Machine, what: str) -> None:
    for name in LOST[what]:
        rmtree(machine.path / name)


@pytest.mark.parametrize("what", LOST)
async def test_what_was_lost_is_refused_and_then_repaired(machine: Machine, what: str) -> None:
    bookie = await machine.serve()
    await machine.fill(bookie)
    bookie._fail(FencelogError(ErrorCode.STORAGE_FAILED, "killed"))  # nothing is flushed
    await bookie.close()
    lose(machine, what)
    reason = await refused(machine.start(), ErrorCode.CORRUPT)
    assert "fencelog cookie repair" in reason
    before, now = await machine.repair()
    assert is_incarnation(before, bookie)
    again = await machine.serve()
    assert again.incarnation == now.incarnation != bookie.incarnation
    assert await machine.outcomes(again) == LEFT[what]
    await again.close()
    last = await machine.start()
    assert (last.incarnation, last.may_have_forgotten) == (again.incarnation, False)
    assert await machine.outcomes(last) == LEFT[what]


async def test_a_lost_journal_takes_nothing_that_was_flushed(
    machine: Machine, requests: Requests
) -> None:
    bookie = await machine.serve()
    await machine.fill(bookie)
    await bookie.close()
    lose(machine, "journal")
    again = await machine.serve(repair_cookie=True)
    assert await machine.outcomes(again) == ["there"] * 4
    assert refusal_of(await requests.add(again, requests.run(100, 101))) is ErrorCode.LEDGER_FENCED
    assert await requests.add(again, requests.run(100, 101), recovery=True) is None
    await again.close()
    last = await machine.start()
    assert len(await requests.read(last, 100, 101)) > 0


@pytest.mark.parametrize("what", ["a ledger directory and the journal", "data", "everything"])
async def test_a_repair_that_died_is_done_again_and_forgets_no_more(
    machine: Machine, what: str, faulty_disk: FaultyDisk
) -> None:
    """The bookie never starts in a state in which it denies what it has acknowledged."""
    calls = 0
    while True:
        bookie = await machine.serve()
        if not calls:
            await machine.fill(bookie)
        await bookie.close()
        lose(machine, what)
        faulty_disk.calls_left = calls
        died = await failure_of(machine.repair(faulty_disk))
        assert died in (None, ErrorCode.STORAGE_FAILED)
        refused_as = await failure_of(machine.serve())
        assert refused_as in ((None, ErrorCode.CORRUPT) if died else (None,))
        await machine.close()
        again = await machine.serve(repair_cookie=refused_as is not None)
        assert set(await machine.outcomes(again)) <= {"there", "ledger_in_limbo"}
        assert is_incarnation(await machine.registered(), again)
        await again.close()
        calls += 1
        if died is None:
            break
    assert calls > 2


# -- other refusals ----------------------------------------------------------------------------


async def test_nothing_is_repaired_under_a_running_bookie(machine: Machine) -> None:
    bookie = await machine.serve()
    await bookie.close()
    lose(machine, "everything")
    registration = await Registration.start(machine.store, "/bookies/b1", b"{}")
    reason = await refused(machine.start(repair_cookie=True), ErrorCode.BAD_REQUEST)
    assert "a process is registered as this bookie" in reason
    await refused(delete_cookie(machine.store, "b1", force=True), ErrorCode.BAD_REQUEST)
    await registration.close()
    assert (await machine.start(repair_cookie=True)).may_have_forgotten


async def test_a_repair_of_what_is_whole_changes_nothing(machine: Machine) -> None:
    assert "no cookie" in await refused(machine.repair(), ErrorCode.BAD_REQUEST)
    bookie = await machine.serve()
    await refused(machine.repair(), ErrorCode.DATA_DIRECTORY_IN_USE)
    await bookie.close()
    before, now = await machine.repair()
    assert before == now.cookie


async def test_a_disk_that_was_replaced_does_not_come_back(
    machine: Machine, tmp_path: Path
) -> None:
    bookie = await machine.serve()
    await bookie.close()
    for name in ("data", "l1"):
        (tmp_path / name).rename(tmp_path / f"old-{name}")
        await (await machine.serve(repair_cookie=True)).close()
        (tmp_path / name).rename(tmp_path / f"new-{name}")
        (tmp_path / f"old-{name}").rename(tmp_path / name)
        await refused(machine.start(repair_cookie=True), ErrorCode.BAD_REQUEST)
        (tmp_path / name).rename(tmp_path / f"old-{name}")
        (tmp_path / f"new-{name}").rename(tmp_path / name)
    await machine.start()


async def test_directories_in_another_order_are_refused(machine: Machine) -> None:
    bookie = await machine.serve()
    await bookie.close()
    data, journal, *ledgers = machine.directories
    machine.directories = [data, journal, *reversed(ledgers)]
    reason = await refused(machine.start(repair_cookie=True), ErrorCode.BAD_REQUEST)
    assert "ledger directory 2" in reason


async def test_a_cookie_is_deleted_only_of_a_bookie_that_no_ledger_names(machine: Machine) -> None:
    bookie = await machine.serve()
    await bookie.close()
    reason = await refused(delete_cookie(machine.store, "b1"), ErrorCode.BAD_REQUEST)
    assert "4 ledgers name bookie b1" in reason
    await delete_cookie(machine.store, "b1", force=True)
    assert await CookieRegistry(machine.store).names() == []
    assert "no cookie of it" in await refused(machine.start(), ErrorCode.BAD_REQUEST)
    await refused(delete_cookie(machine.store, "b1"), ErrorCode.BAD_REQUEST)
