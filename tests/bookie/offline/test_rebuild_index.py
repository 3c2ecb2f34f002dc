"""A new index has every entry that can be read, and nobody is told that there were no more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.identity.cookies import State
from fencelog.bookie.offline.inspect_index import index_runs
from fencelog.bookie.offline.rebuild_index import rebuild_indexes
from fencelog.bookie.storage.entry_log_writer import EntryLogPlace, EntryLogWriter
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import verify_entries
from fencelog.ledgers.host import SystemHost
from tests.support.bookie_stage import BookieSettings, OpenBookie, Requests, refusal_of
from tests.support.offline_data import make_data, opened, problems


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where ``data`` is made once."""
    return tmp_path_factory.mktemp("master") / "data"


@pytest.fixture
async def data(open_bookie: OpenBookie, requests: Requests, tmp_path: Path, master: Path) -> Path:
    if not master.exists():
        await make_data(open_bookie, requests, tmp_path / "data", master)
    return Path(shutil.copytree(master, tmp_path / "killed"))


def rebuild(data: Path, disk: Any = None, **settings: Any) -> list[dict[str, object]]:
    with opened(data, disk or PosixDisk(), **settings) as found:
        return list(rebuild_indexes(found, SystemHost()))


def write_log(data: Path, *runs: bytes) -> Path:
    """One more entry log, that no index knows."""
    with opened(data) as found:
        incarnation = found.identity().directory_bytes
        place = EntryLogPlace(PosixDisk(), data / "entrylog", incarnation, lambda: bytes(16))
        writer = EntryLogWriter(place, max_file_bytes=1 << 30)
        writer.append(runs)
        writer.close()
    return max((data / "entrylog").iterdir())


async def entries(bookie: Bookie, requests: Requests, ledger_id: int, first: int) -> list[bytes]:
    """Payloads from an entry on, up to where it stops."""
    found: list[bytes] = []
    while True:
        try:
            run = await requests.read(bookie, ledger_id, first + len(found))
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_IN_LIMBO:
                raise
            return found
        found += [bytes(entry.payload) for entry in verify_entries(run)]


def payloads(requests: Requests, ledger_id: int, first: int, count: int) -> list[bytes]:
    run = requests.run(ledger_id, first, count)
    return [bytes(entry.payload) for entry in verify_entries(run)]


async def check_complete(bookie: Bookie, requests: Requests) -> None:
    """All of ``data`` is there, and what is not is unknown."""
    assert bookie.may_have_forgotten
    for ledger_id in (1, 2, 3, 4):
        bookie.fence_forgotten(ledger_id)
    await bookie.forgotten_are_fenced()
    for ledger_id, first, count in ((1, 0, 15), (2, 0, 3), (3, 7, 1), (4, 0, 0)):
        expected = payloads(requests, ledger_id, first, count) if count else []
        assert await entries(bookie, requests, ledger_id, first) == expected
        assert refusal_of(await requests.add(bookie, requests.run(ledger_id, 90))) is (
            ErrorCode.LEDGER_FENCED
        )
    assert await bookie.read_lac(1) == 9


async def test_every_entry_comes_back_and_the_rest_is_unknown(
    data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    before = (data / "identity").read_bytes()
    shutil.rmtree(data / "index")
    (said,) = rebuild(data)
    assert said["runs"] == 3
    assert said["copied"] == 2
    assert (data / "identity").read_bytes() != before
    assert problems(data) == []
    await check_complete(await open_bookie(data_dir=data), requests)


async def test_a_bookie_that_may_have_forgotten_keeps_its_incarnation(
    data: Path, requests: Requests
) -> None:
    shutil.rmtree(data / "index")
    rebuild(data)
    identity = (data / "identity").read_bytes()
    shutil.rmtree(data / "index")
    rebuild(data)
    assert (data / "identity").read_bytes() == identity


async def test_the_incarnation_that_is_replaced_is_remembered(data: Path) -> None:
    with opened(data) as found:
        before = found.identity()
    shutil.rmtree(data / "index")
    rebuild(data)
    with opened(data) as found:
        after = found.identity()
    assert before.state is State.READY
    assert after.state is State.FORGOT
    assert after.replaces == before.incarnation != after.incarnation
    assert after.directory_bytes == before.directory_bytes


async def test_the_newest_file_wins_and_the_rest_of_a_run_is_copied(
    data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    """Entries 3..6 come from the new file; of the two that it overlaps, 0..2 and 7..9 are left."""
    shutil.rmtree(data / "index")
    newest = write_log(data, requests.run(1, 3, 4), requests.run(2, 0, 3))
    (said,) = rebuild(data)
    assert said["runs"] == 2
    assert said["copied"] == 4
    with opened(data) as found:
        store = found.disk.open_store(data / "index", create=False)
        runs = [(r.ledger_id, r.first_entry_id, r.last_entry_id) for r in index_runs(store)]
        in_newest = {r.ledger_id for r in index_runs(store) if r.file_id == int(newest.stem, 16)}
        store.close()
    assert runs == [(1, 0, 2), (1, 3, 6), (1, 7, 9), (1, 10, 14), (2, 0, 2), (3, 7, 7)]
    assert in_newest == {1, 2}
    assert problems(data) == []
    await check_complete(await open_bookie(data_dir=data), requests)


async def test_runs_of_one_file_that_overlap_are_indexed_once(
    data: Path, requests: Requests
) -> None:
    """A ledger that was dropped, and copied back in other runs, may have both there."""
    shutil.rmtree(data / "index")
    write_log(data, requests.run(1, 0, 5), requests.run(1, 3, 7))
    rebuild(data)
    assert problems(data) == []


async def test_a_damaged_run_is_reported_and_an_older_one_takes_its_place(
    data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    shutil.rmtree(data / "index")
    newest = write_log(data, requests.run(1, 0, 5), requests.run(1, 5, 5))
    content = bytearray(newest.read_bytes())
    content[200] ^= 1
    newest.write_bytes(content)
    unreadable, _said = rebuild(data)
    assert unreadable == {"unreadable": str(newest), "offset": 64, "bytes": 848}
    await check_complete(await open_bookie(data_dir=data), requests)


async def test_an_entry_that_cannot_be_read_any_more_is_unknown(
    data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    shutil.rmtree(data / "index")
    first = min((data / "entrylog").iterdir())
    first.write_bytes(b"?" + first.read_bytes()[1:])
    unreadable, _said = rebuild(data)
    assert unreadable["unreadable"] == str(first)
    bookie = await open_bookie(data_dir=data)
    for ledger_id in (1, 2):
        bookie.fence_forgotten(ledger_id)
        with pytest.raises(FencelogError) as caught:
            await requests.read(bookie, ledger_id, 0)
        assert caught.value.code is ErrorCode.LEDGER_IN_LIMBO
    assert await entries(bookie, requests, 1, 5) == payloads(requests, 1, 5, 10)


async def test_what_the_journal_removes_stays_removed(
    data: Path, open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    bookie = await open_bookie(data_dir=data)
    await bookie.shards[0].remove(1, deleted=True)
    killed = Path(shutil.copytree(data, tmp_path / "killed again"))
    shutil.rmtree(killed / "index")
    rebuild(killed)
    assert problems(killed) == []
    bookie = await open_bookie(data_dir=killed)
    with pytest.raises(FencelogError) as caught:
        await requests.read(bookie, 1, 0)
    assert caught.value.code is ErrorCode.NO_SUCH_LEDGER
    assert (await requests.read(bookie, 2, 0, 3))[:8] == (2).to_bytes(8, "little")


@pytest.mark.parametrize("lost", ["identity", "checkpoint", "journal/*.journal"])
async def test_it_does_not_go_on_without_the_rest(lost: str, data: Path) -> None:
    shutil.rmtree(data / "index")
    for path in data.glob(lost):
        path.unlink()
    with pytest.raises(FencelogError) as caught:
        rebuild(data)
    assert caught.value.code is ErrorCode.CORRUPT
    assert not (data / "index").exists()


async def test_a_whole_index_is_left_alone(data: Path) -> None:
    with pytest.raises(FencelogError, match="is whole"):
        rebuild(data)


async def test_a_running_bookie_is_left_alone(open_bookie: OpenBookie, tmp_path: Path) -> None:
    await open_bookie()
    with pytest.raises(FencelogError) as caught:
        rebuild(tmp_path / "data")
    assert caught.value.code is ErrorCode.DATA_DIRECTORY_IN_USE


async def test_only_the_damaged_index_of_several_is_made_anew(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    settings: BookieSettings = {"ledger_dirs": (tmp_path / "a", tmp_path / "b")}
    bookie = await open_bookie(**settings)
    await bookie.forgotten_are_fenced()
    for ledger_id in (2, 3):
        await requests.add(bookie, requests.run(ledger_id, 0, 2))
        await bookie.read_lac(ledger_id, fence=True)
    await bookie.close()
    with pytest.raises(FencelogError, match="was made with 2 --ledger-dir"):
        rebuild(tmp_path / "data")
    shutil.rmtree(tmp_path / "b/shard-01/index")
    assert len(rebuild(tmp_path / "data", **settings)) == 1
    bookie = await open_bookie(**settings)
    assert bookie.may_have_forgotten
    assert refusal_of(await requests.add(bookie, requests.run(2, 2))) is ErrorCode.LEDGER_FENCED
    assert await requests.add(bookie, requests.run(3, 2)) is None


class CrashingDisk(PosixDisk):
    """Gone for good after some changes."""

    def __init__(self, calls_left: int) -> None:
        self.calls_left = calls_left

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise OSError("power failure")

    def make_directory(self, path: Path) -> None:
        self._count()
        super().make_directory(path)

    def create(self, path: Path) -> Any:
        self._count()
        return super().create(path)

    def replace_file(self, path: Path, data: bytes) -> None:
        self._count()
        super().replace_file(path, data)

    def rename(self, path: Path, to: Path) -> None:
        self._count()
        super().rename(path, to)

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)

    def open_store(self, path: Path, *, create: bool) -> Any:
        self._count()
        return super().open_store(path, create=create)


@pytest.mark.parametrize("is_damaged", [True, False], ids=["damaged", "lost"])
async def test_a_crash_anywhere_leaves_a_refusal_or_the_whole(
    is_damaged: bool, data: Path, open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    if is_damaged:
        for table in (data / "index").glob("*.sst"):
            table.write_bytes(table.read_bytes()[:-1])
    else:
        shutil.rmtree(data / "index")
    crashes, refusals = 0, set[ErrorCode]()
    while True:
        copy = Path(shutil.copytree(data, tmp_path / f"copy{crashes}"))
        disk = CrashingDisk(crashes)
        try:
            rebuild(copy, disk)
            break
        except OSError:
            crashes += 1
        try:
            bookie = await open_bookie(data_dir=copy)
        except FencelogError as error:
            refusals.add(error.code)
            rebuild(copy)
            assert problems(copy) == []
            bookie = await open_bookie(data_dir=copy)
        await check_complete(bookie, requests)
        await bookie.close()
    assert refusals <= {ErrorCode.CORRUPT, ErrorCode.STORAGE_FAILED}
    assert crashes > 8
