"""The simulated disk: what survives what, and that nothing synced is ever lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from errno import EIO, ENOSPC

import pytest

from tests.sim.disk.disk import SimDisk
from tests.sim.disk.scenes import DATA, FILE, SEEDS, content, outcomes, play, synced_file

# -- what a crash leaves -------------------------------------------------------------------------


def test_synced_bytes_survive_every_power_loss() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"a" * 3000)
        disk.open(FILE).write([b"b" * 2000], 3000)
        crash()
        return (content(disk) or b"")[:3000]

    assert outcomes(scene) == [b"a" * 3000] * len(SEEDS)


def test_unsynced_bytes_are_kept_lost_or_torn_at_sectors() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, bytes(4096))
        disk.open(FILE).write([b"x" * 1024, b"x" * 1024], 700)
        crash()
        return content(disk)

    seen = outcomes(scene)
    old, new = bytes(4096), bytes(700) + b"x" * 2048 + bytes(4096 - 2748)
    torn = [data for data in seen if data not in (old, new)]
    assert seen.count(old) > 20
    assert seen.count(new) > 20
    assert len(set(torn)) > 10
    for data in torn:
        assert isinstance(data, bytes)
        for start in range(0, 4096, 512):
            sector = slice(start, start + 512)
            assert data[sector] in (old[sector], new[sector])


def test_a_later_write_may_survive_without_an_earlier_one_but_not_in_the_same_sector() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, bytes(1024))
        file = disk.open(FILE)
        file.write([b"1" * 100], 0)
        file.write([b"2" * 100], 100)
        file.write([b"3" * 512], 512)
        crash()
        data = content(disk) or b""
        return data[0:1] == b"1", data[100:101] == b"2", data[512:513] == b"3"

    seen = set(outcomes(scene))
    assert (False, False, True) in seen
    assert (True, False, True) in seen
    assert (False, True, True) not in seen
    assert (False, True, False) not in seen


def test_a_new_size_without_a_sync_is_sometimes_gone() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"abc")
        file = disk.open(FILE)
        file.reserve(64 << 20)
        assert file.size() == 64 << 20
        assert file.read(2, 3) == b"c\0\0"
        crash()
        return disk.open(FILE).size()

    assert set(outcomes(scene)) == {3, 64 << 20}


def test_kill_9_keeps_what_was_written_and_a_later_sync_makes_it_durable() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"")
        disk.open(FILE).write([b"written"], 0)
        disk.process.kill()
        disk.attach(disk._engine.start_process("b1"))
        assert content(disk) == b"written"
        disk.open(FILE).sync()
        crash()
        return content(disk)

    assert set(outcomes(scene)) == {b"written"}


def test_names_are_durable_only_once_their_directory_was_synced() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"1")
        for name in ("2", "3"):
            disk.create(DATA / name)
        disk.rename(FILE, DATA / "1.spare")
        crash()
        first = disk.names(DATA)
        crash()
        assert disk.names(DATA) == first
        return tuple(first)

    seen = set(outcomes(scene))
    assert {("1.journal",), ("1.spare", "2", "3"), ("1.spare", "3"), ("1.journal", "2")} <= seen
    for names in seen:
        assert isinstance(names, tuple)
        assert ("1.journal" in names) != ("1.spare" in names)


def test_synced_names_survive_and_removed_files_may_come_back_whole() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"whole")
        disk.remove(FILE)
        crash()
        return content(disk)

    assert set(outcomes(scene)) == {None, b"whole"}


def test_a_file_renamed_and_synced_is_there_under_the_new_name_alone() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"1")
        disk.rename(FILE, DATA / "2")
        disk.sync_directory(DATA)
        crash()
        return tuple(disk.names(DATA))

    assert set(outcomes(scene)) == {("2",)}


def test_replaced_files_and_store_writes_are_durable_at_once() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        disk.replace_file(DATA / "checkpoint", b"old")
        disk.replace_file(DATA / "checkpoint", b"new")
        store = disk.open_store(DATA / "index", create=True)
        store.write([(b"b", b"2"), (b"a", b"1")])
        crash()
        store = disk.open_store(DATA / "index", create=False)
        return content(disk, DATA / "checkpoint"), list(store.scan(b"a", b"b")), store.get(b"b")

    assert set(map(repr, outcomes(scene))) == {repr((b"new", [(b"a", b"1")], b"2"))}


# -- failures ------------------------------------------------------------------------------------


def test_a_sync_after_a_failed_one_proves_nothing() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"old")
        disk.fail("sync", ".journal", EIO)
        file = disk.open(FILE)
        file.write([b"new"], 0)
        with pytest.raises(OSError, match="made to fail"):
            file.sync()
        assert file.read(0, 3) == b"new"
        file.sync()
        assert file.read(0, 3) == b"new"
        crash()
        return content(disk)

    seen = outcomes(scene)
    assert seen.count(b"old") > 20
    assert seen.count(b"new") > 20


def test_a_failed_write_takes_nothing_or_a_part() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"")
        disk.fail("write", ".journal", ENOSPC)
        file = disk.open(FILE)
        with pytest.raises(OSError, match="made to fail") as caught:
            file.write([b"x" * 10], 0)
        assert caught.value.errno == ENOSPC
        taken = file.size()
        file.write([b"y" * 10], 0)
        return taken

    seen = set(outcomes(scene))
    assert 0 in seen
    assert len(seen) > 5


def test_failures_hit_the_named_calls_alone_and_so_many_of_them() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"data")
        disk.replace_file(DATA / "identity", b"me")
        disk.fail("read", ".journal", EIO, count=2)
        disk.fail("create", ".journal", EIO)
        file = disk.open(FILE)
        for _ in range(2):
            with pytest.raises(OSError, match="made to fail"):
                file.read(0, 4)
        assert file.read(0, 4) == b"data"
        assert disk.read_file(DATA / "identity") == b"me"
        with pytest.raises(OSError, match="made to fail"):
            disk.create(DATA / "2.journal")
        disk.fail("write", "identity", EIO)
        disk.stop_failing()
        disk.replace_file(DATA / "identity", b"still me")
        return disk.names(DATA)

    assert play(scene, 1) == ["1.journal", "identity"]


def test_a_full_disk_takes_nothing_and_gives_everything() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"data")
        store = disk.open_store(DATA / "index", create=True)
        disk.full = True
        file = disk.open(FILE)
        for call in (
            lambda: file.write([b"more"], 4),
            lambda: file.reserve(100),
            lambda: disk.create(DATA / "2"),
            lambda: disk.replace_file(DATA / "identity", b"me"),
            lambda: store.write([(b"a", b"1")]),
        ):
            with pytest.raises(OSError, match="full") as caught:
                call()
            assert caught.value.errno == ENOSPC
        assert file.read(0, 4) == b"data"
        assert disk.space(DATA).free_bytes == 0
        disk.full = False
        assert disk.space(DATA).free_bytes > 0
        file.write([b"more"], 4)
        return content(disk)

    assert play(scene, 1) == b"datamore"


def test_a_failed_store_write_is_on_no_disk_and_refuses_what_follows() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        store = disk.open_store(DATA / "index", create=True)
        store.write([(b"a", b"1")])
        disk.fail("write", "index", EIO)
        with pytest.raises(OSError, match="made to fail"):
            store.write([(b"b", b"2")])
        with pytest.raises(OSError, match="earlier write"):
            store.write([(b"c", b"3")])
        seen = store.get(b"b")
        crash()
        assert list(disk.open_store(DATA / "index", create=False).scan(b"a", b"z")) == [
            (b"a", b"1")
        ]
        return seen

    assert set(outcomes(scene)) == {None, b"2"}


def test_rot_flips_one_bit_that_reads_and_crashes_both_show() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        assert disk.rot(".journal") is None
        synced_file(disk, b"x" * 1000)
        where = disk.rot(".journal")
        assert where is not None
        assert where.startswith("1.journal bit")
        rotten = content(disk) or b""
        crash()
        assert content(disk) == rotten
        flipped = [a ^ b for a, b in zip(rotten, b"x" * 1000, strict=True) if a != b]
        assert len(flipped) == 1
        return flipped[0]

    assert set(outcomes(scene)) == {1 << bit for bit in range(8)}


def test_a_rotten_store_raises_where_it_is_read_and_only_there() -> None:
    items = [(b"%03d" % number, b"value") for number in range(100)]

    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        store = disk.open_store(DATA / "index", create=True)
        assert disk.rot("index") is None
        store.write(items)
        assert disk.rot("index") is not None
        crash()
        store = disk.open_store(DATA / "index", create=False)
        unreadable = []
        for key, value in items:
            with suppress(OSError):
                assert store.get(key) == value
                continue
            unreadable.append(key)
        assert 1 <= len(unreadable) <= 4
        with pytest.raises(OSError, match="checksum"):
            store.get(unreadable[0])
        with pytest.raises(OSError, match="checksum"):
            list(store.scan(b"", b"z"))
        assert len(list(store.scan(b"", unreadable[0]))) == int(unreadable[0])
        return int(unreadable[0])

    assert len(set(outcomes(scene, range(1, 31)))) > 5


def test_a_replaced_disk_is_empty() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        synced_file(disk, b"data")
        disk.open_store(DATA / "index", create=True).write([(b"a", b"1")])
        disk.process.kill()
        disk.wipe()
        disk.attach(disk._engine.start_process("b1"))
        with pytest.raises(FileNotFoundError):
            disk.names(DATA)
        with pytest.raises(OSError, match="no store"):
            disk.open_store(DATA / "index", create=False)
        disk.make_directory(DATA)
        return disk.names(DATA)

    assert play(scene, 1) == []
