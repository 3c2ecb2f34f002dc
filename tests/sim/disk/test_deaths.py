"""The simulated disk: planned deaths, what ends with a process, and plain files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from errno import EBADF

import pytest

from tests.sim.disk.disk import SimDisk
from tests.sim.disk.scenes import DATA, FILE, outcomes, play
from tests.sim.engine.process import ProcessDied


def steps(disk: SimDisk) -> Iterator[object]:
    """One of each effect; every value is what is on the disk afterwards."""
    file = disk.create(DATA / "a")
    yield None
    file.write([b"12345678"], 0)
    yield None
    file.sync()
    yield None
    disk.rename(DATA / "a", DATA / "b")
    yield None
    disk.sync_directory(DATA)
    yield None
    disk.replace_file(DATA / "c", b"12345678")
    yield None
    store = disk.open_store(DATA / "index", create=True)
    yield None
    store.write([(b"a", b"1")])
    yield None
    disk.remove(DATA / "c")
    yield None


def state(disk: SimDisk) -> tuple[object, ...]:
    contents = [(name, disk.read_file(DATA / name)) for name in disk.names(DATA)]
    try:
        store = disk.open_store(DATA / "index", create=False)
    except OSError:
        return (*contents, None)
    value = store.get(b"a")
    store.close()
    return (*contents, value)


@pytest.mark.parametrize("count", range(1, 10))
def test_a_planned_death_comes_before_after_or_amid_its_effect(count: int) -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        process = disk.process
        disk.die_after(count)
        remaining = steps(disk)
        for _ in range(count - 1):
            next(remaining)
        with pytest.raises(ProcessDied):
            next(remaining)
        assert not process.is_alive
        with pytest.raises(ProcessDied):
            disk.names(DATA)
        disk.attach(disk._engine.start_process("b1"))
        return state(disk)

    def undisturbed(count: int) -> object:
        def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
            for _, _ in zip(range(count), steps(disk), strict=False):
                pass
            disk.process.kill()
            disk.attach(disk._engine.start_process("b1"))
            return state(disk)

        return play(scene, 1)

    seen = set(outcomes(scene, range(1, 41)))
    before, after = undisturbed(count - 1), undisturbed(count)
    assert {before, after} <= seen
    between = seen - {before, after}
    assert bool(between) == (count in (2, 6))  # a write is cut, a replacement leaves its temporary


def test_a_lock_and_an_open_store_end_with_their_process() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        lock = disk.lock(DATA / "lock")
        assert lock is not None
        assert disk.lock(DATA / "lock") is None
        lock.release()
        assert disk.lock(DATA / "lock") is not None
        store = disk.open_store(DATA / "index", create=True)
        with pytest.raises(AssertionError, match="open already"):
            disk.open_store(DATA / "index", create=False)
        crash()
        with pytest.raises(ProcessDied):
            store.write([(b"a", b"1")])
        disk.open_store(DATA / "index", create=False).close()
        disk.open_store(DATA / "index", create=False)
        return disk.lock(DATA / "lock") is not None

    assert play(scene, 1) is True


def test_files_are_where_they_are_said_to_be() -> None:
    def scene(disk: SimDisk, crash: Callable[[], None]) -> object:
        file = disk.create(FILE)
        with pytest.raises(FileExistsError):
            disk.create(FILE)
        for call in (
            lambda: disk.open(DATA / "2"),
            lambda: disk.remove(DATA / "2"),
            lambda: disk.rename(DATA / "2", DATA / "3"),
            lambda: disk.create(DATA / "none" / "2"),
            lambda: disk.names(DATA / "none"),
        ):
            with pytest.raises(FileNotFoundError):
                call()
        big = bytes(range(256)) * 1024
        file.write([big[:100_000], memoryview(big)[100_000:]], 65_000)
        assert file.read(65_000, len(big) + 5) == big
        assert file.read(60_000, 5_001) == bytes(5_000) + b"\0"
        assert file.read(65_000 + 70_000, 1000) == big[70_000:71_000]
        assert file.read(len(big) + 65_000, 1) == b""
        file.close()
        with pytest.raises(OSError, match="closed") as caught:
            file.read(0, 1)
        assert caught.value.errno == EBADF
        return disk.names(DATA.parent), disk.read_file(DATA / "none")

    assert play(scene, 1) == (["data"], None)
