"""The simulated disk of one machine: the Disk port in memory, with everything that disks do.

It outlives the processes that use it. ``kill -9`` takes nothing that was written; ``power_loss``
takes of what was not synced as much as it likes; ``die_after`` ends the process at, or in the
middle of, one chosen operation. All chance comes from streams of the engine named by the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EEXIST, ENOENT
from functools import partial
from pathlib import Path

from fencelog.bookie.disk.port import DiskSpace
from fencelog.ledgers.errors import check
from tests.sim.disk.faults import Death, Faults
from tests.sim.disk.files import FileData
from tests.sim.disk.handles import SimFile, SimLock
from tests.sim.disk.io_thread import SimIoThread
from tests.sim.disk.key_value import SimKeyValueStore, StoreData
from tests.sim.disk.names import Directory
from tests.sim.engine.engine import Engine
from tests.sim.engine.process import Process, ProcessDied

_LATENCY_S = (0.000_02, 0.000_3)
_SYNC_LATENCY_S = (0.000_3, 0.004)


class SimDisk:
    """Implements ``bookie.disk.Disk`` for the process that was attached last."""

    def __init__(self, engine: Engine, machine: str) -> None:
        self._engine = engine
        self._machine = machine
        self._timing = engine.random(f"disk {machine} timing")
        self.chance = engine.random(f"disk {machine}")
        self._faults = Faults(self.chance)
        self._factor = 1.0
        self._sync_factors: dict[str, float] = {}
        self._spent_s = 0.0
        self.latency_s = _LATENCY_S
        self.sync_latency_s = _SYNC_LATENCY_S
        self.free_share = 1.0
        """What of its space is free, as far as anybody asks."""
        self.on_create: Callable[[str], None] = lambda name: None
        """Told of the name of each new file."""
        self._attached: Process | None = None
        self._clear()

    def _clear(self) -> None:
        self._directories: dict[Path, Directory] = {}
        self._below: dict[Path, list[str]] = {}
        """The names of the directories in each."""
        self._stores: dict[Path, StoreData] = {}
        self._locks: dict[Path, SimLock] = {}

    # -- the machine's side --------------------------------------------------------------------

    def attach(self, process: Process) -> None:
        """A new process uses the disk. A death that was planned for the previous one is off."""
        check(self._attached is None or not self._attached.is_alive, "the disk is in use")
        self._attached = process
        self._faults.die_after(None)

    def power_loss(self) -> None:
        """Decide, after the death of the process, whether unsynced data is kept, lost or torn."""
        check(self._attached is None or not self._attached.is_alive, "the process is running")
        for directory in self._directories.values():
            for file in directory.files():
                file.lose_power(self.chance)
            directory.lose_power(self.chance)
        self._note("lost power")

    def wipe(self) -> None:
        """Another disk, an empty one, is in the machine."""
        check(self._attached is None or not self._attached.is_alive, "the process is running")
        self._clear()
        self._note("was replaced")

    def rot(self, suffix: str, *, below: int | None = None) -> str | None:
        """Flip one bit of a file, or spoil a block of a store, whose name ends so; says where.
        None: nothing of that name holds anything. ``below``: only bytes before this offset."""
        decaying: list[FileData | StoreData] = [
            file
            for directory in self._directories.values()
            for name, file in directory.names.items()
            if name.endswith(suffix) and file.durable.some_byte(self.chance) is not None
        ]
        decaying += [
            store
            for path, store in self._stores.items()
            if path.name.endswith(suffix) and store.items.keys
        ]
        if not decaying:
            return None
        where = self.chance.choice(decaying).rot(self.chance, below)
        self._note(f"rots: {where}")
        return where

    def fail(self, operation: str, suffix: str, error: int, count: int = 1) -> None:
        """The next ``count`` calls of ``operation`` (write, sync, read, create, rename, remove) on
        names that end so raise OSError(``error``)."""
        self._faults.fail(operation, suffix, error, count)

    def stop_failing(self) -> None:
        """Forget what ``fail`` planned and has not happened yet."""
        self._faults.stop_failing()

    def die_after(self, operations: int | None) -> None:
        """The process dies at the n-th effect from now (1: the next one): before it, after it, or,
        if it is a write, in the middle of it. None: it does not."""
        self._faults.die_after(operations)

    def slow(self, factor: float) -> None:
        """Slow everything down by ``factor``; 1 is as usual."""
        self._factor = factor

    def slow_sync(self, suffix: str, factor: float) -> None:
        """Syncs of files whose names end so (".journal") take ``factor`` times as long."""
        self._sync_factors[suffix.lstrip(".")] = factor

    def file_names(self, path: Path) -> list[str]:
        """Return what a look from outside finds in a directory."""
        return sorted(self._directories[path].names)

    def store_items(self, path: Path) -> list[tuple[bytes, bytes]]:
        return self._stores[path].items.between(b"", b"\xff")

    @property
    def full(self) -> bool:
        """True while every operation that takes space fails with ENOSPC."""
        return self._faults.is_full

    @full.setter
    def full(self, value: bool) -> None:
        self._faults.is_full = value

    # -- around every call ---------------------------------------------------------------------

    @property
    def process(self) -> Process:
        if self._attached is None:
            raise AssertionError(f"no process is attached to the disk of {self._machine}")
        return self._attached

    def wait_s(self) -> float:
        return self._timing.uniform(*self.latency_s) * self._factor

    def take_spent_s(self) -> float:
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def check_alive(self, process: Process) -> None:
        """A dead process does nothing: what unwinds after its death has no effect."""
        if not process.is_alive:
            raise ProcessDied

    def before_read(self, name: str) -> None:
        self.check_alive(self.process)
        if (error := self._faults.error("read", name, takes_space=False)) is not None:
            raise error

    def effect(
        self,
        operation: str,
        name: str,
        apply: Callable[[], object],
        *,
        amid: Callable[[], None] | None = None,
        failed: Callable[[], None] | None = None,
        takes_space: bool = False,
    ) -> None:
        """One operation: it takes place, fails (then ``failed`` says how far it came), or is the
        last one of its process (``amid``: how far it comes when that dies in the middle)."""
        self.check_alive(self.process)
        error = self._faults.error(operation, name, takes_space=takes_space)
        if error is not None:
            if failed is not None:
                failed()
            self._note(str(error))
            raise error
        death = self._faults.death()
        if death is Death.AMID and amid is not None:
            amid()
        elif death is Death.AFTER or death is None:
            apply()
        if operation == "sync":
            factor = self._factor * self._sync_factors.get(name.rpartition(".")[2], 1.0)
            self._spent_s += self._timing.uniform(*self.sync_latency_s) * factor
        if death is not None:
            self._note(f"{self.process.machine} dies {death.value} {operation} {name}")
            self.process.kill()
            raise ProcessDied

    def store_write(self, name: str, apply: Callable[[], None], failed: Callable[[], None]) -> None:
        self.effect("write", name, apply, failed=failed, takes_space=True)
        self._spent_s += self._timing.uniform(*self.sync_latency_s) * self._factor

    # -- the port ------------------------------------------------------------------------------

    def io_thread(self, name: str) -> SimIoThread:
        io_thread = SimIoThread(name, self)
        check(
            io_thread.process is self.process,
            f"I/O thread {name} is made by a process not attached",
        )
        return io_thread

    def lock(self, path: Path) -> SimLock | None:
        directory = self._directory(path.parent)
        held = self._locks.get(path)
        if held is not None and held.is_held:
            return None
        if path.name not in directory.names:
            directory.add(path.name, FileData(path.name))
        lock = self._locks[path] = SimLock(self.process)
        return lock

    def make_directory(self, path: Path) -> None:
        for missing in reversed([p for p in (path, *path.parents) if p not in self._directories]):
            add = partial(self._add_directory, missing)
            self.effect("create", missing.name, add, takes_space=True)

    def _add_directory(self, path: Path) -> None:
        self._directories[path] = Directory()
        if path.name:
            self._below.setdefault(path.parent, []).append(path.name)

    def space(self, path: Path) -> DiskSpace:
        total = 1 << 30
        return DiskSpace(total, 0 if self._faults.is_full else int(self.free_share * total))

    def names(self, path: Path) -> list[str]:
        return sorted([*self._directory(path).names, *self._below.get(path, ())])

    def read_file(self, path: Path) -> bytes | None:
        self.before_read(path.name)
        file = self._directories.get(path.parent, Directory()).names.get(path.name)
        return None if file is None else file.cached.read(0, file.cached.size)

    def replace_file(self, path: Path, data: bytes) -> None:
        directory = self._directory(path.parent)

        def written(name: str, part: bytes) -> FileData:
            file = FileData(name)
            file.write(0, part)
            directory.add(name, file)
            return file

        def leave_temporary() -> None:
            written(f"{path.name}.new", data[: self.chance.randint(0, len(data))])

        def replace() -> None:
            written(path.name, data).sync()
            if f"{path.name}.new" in directory.names:
                directory.remove(f"{path.name}.new")
            directory.sync()

        self.effect(
            "write",
            path.name,
            replace,
            amid=leave_temporary,
            failed=leave_temporary,
            takes_space=True,
        )
        self._spent_s += 2 * self._timing.uniform(*self.sync_latency_s) * self._factor

    def create(self, path: Path) -> SimFile:
        directory = self._directory(path.parent)
        if path.name in directory.names:
            raise FileExistsError(EEXIST, "the file exists", str(path))
        file = FileData(path.name)
        self.effect("create", path.name, lambda: directory.add(path.name, file), takes_space=True)
        self.on_create(path.name)
        return SimFile(self, file)

    def open(self, path: Path) -> SimFile:
        return SimFile(self, self._file(path))

    def remove(self, path: Path) -> None:
        self._file(path)
        self.effect("remove", path.name, lambda: self._directory(path.parent).remove(path.name))

    def rename(self, path: Path, to: Path) -> None:
        self._file(path)
        check(path.parent == to.parent, "files stay in their directory")
        directory = self._directory(path.parent)
        self.effect("rename", path.name, lambda: directory.rename(path.name, to.name))

    def sync_directory(self, path: Path) -> None:
        self.effect("sync", path.name, self._directory(path).sync)

    def open_store(self, path: Path, *, create: bool) -> SimKeyValueStore:
        data = self._stores.get(path)
        if data is None:
            if not create:
                raise OSError(ENOENT, "there is no store", str(path))
            self._directory(path.parent)
            data = StoreData(path.name)
            add = partial(self._stores.setdefault, path, data)
            self.effect("create", path.name, add, takes_space=True)
        check(not data.is_open(), f"store {path} is open already")
        store = SimKeyValueStore(data, self, self.chance)
        data.is_open = lambda: store.is_open
        return store

    def _directory(self, path: Path) -> Directory:
        self.check_alive(self.process)
        try:
            return self._directories[path]
        except KeyError:
            raise FileNotFoundError(ENOENT, "there is no such directory", str(path)) from None

    def _file(self, path: Path) -> FileData:
        file = self._directory(path.parent).names.get(path.name)
        if file is None:
            raise FileNotFoundError(ENOENT, "there is no such file", str(path))
        return file

    def _note(self, text: str) -> None:
        self._engine.trace.note(f"disk {self._machine} {text}")
