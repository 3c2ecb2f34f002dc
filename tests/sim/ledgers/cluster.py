"""The simulated cluster: bookie machines that run the real bookie process, and clients' machines.

A bookie machine is what an operator's host is: its disk outlives its processes, and whatever ends
a process (a crash, a failed disk, a refused start) is followed by a restart after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fencelog.api.processes import bookie_main
from fencelog.bookie.auditor.decommission import check_not_removed
from fencelog.bookie.disk.port import File
from fencelog.bookie.engine.bookie import BookieConfig
from fencelog.bookie.format.records import FILE_HEADER_BYTES, decode_file_header, read_record
from fencelog.bookie.gc.config import GarbageConfig
from fencelog.bookie.identity.cookie_admin import repair_cookie
from fencelog.bookie.identity.cookie_registry import initialise_cluster
from fencelog.bookie.journal.file import journal_ids, journal_name
from fencelog.bookie.maintenance.maintenance import MaintenanceConfig
from fencelog.bookie.storage.compaction import COMPACTING_SUFFIX
from fencelog.ledgers.client import LedgerClient
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies
from tests.sim.disk.disk import SimDisk
from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost
from tests.sim.engine.process import Process
from tests.sim.metadata.emptied import Emptied
from tests.sim.metadata.server import MetadataServer
from tests.sim.metadata.store import SimStore
from tests.sim.metadata.watch import MetadataWatch
from tests.sim.oracle.history import History
from tests.sim.oracle.observed_bookie import ObservedBookie
from tests.sim.plan.plan import BookiePlan

RESTART_S = 0.4
REFUSALS_S = 1.0
"""Between starts of a process that refuses to."""


class BookieMachine:
    """One host with a disk. ``process`` is the present run, None while the machine is off."""

    def __init__(self, cluster: Cluster, name: str, plan: BookiePlan) -> None:
        self._cluster = cluster
        self.name = name
        self.disk = SimDisk(cluster.engine, name)
        self.config = BookieConfig(
            data_dir=Path(f"/{name}"),
            bookie_id=name,
            write_cache_bytes=plan.write_cache_bytes,
            flush_interval_ms=plan.flush_ms,
            journal_sync=plan.is_victim_synced or name != plan.victim,
            repair_cookie=plan.repairs_itself,
        )
        for size in ("journal_file_bytes", "entry_log_bytes"):
            # Below what the configuration allows, since no run here is nearly as large as may be.
            object.__setattr__(self.config, size, plan.file_bytes)
        self.maintenance = MaintenanceConfig(
            garbage=GarbageConfig(
                interval_ms=plan.garbage_ms,
                grace_ms=0,  # a listing that is wrong has to be seen
                minor_interval_ms=plan.garbage_ms,
                minor_below=0.5,
                major_interval_ms=plan.garbage_ms * 4,
            ),
            scrub_interval_ms=plan.scrub_ms,
        )
        self.disk.on_create = self._created
        self.process: Process | None = None
        self.bookie: ObservedBookie | None = None
        self._loses_power = False
        self._dies_in_compaction: int | None = None
        self._is_replaced = False
        self._is_to_be_repaired = False  # the operator has seen that it needs its old disk
        self.is_held_down = False  # no restart: a fault says when
        self.emptied: Emptied | None = None  # what its metadata sessions see for now
        self.refused: ErrorCode | None = None  # why the last process stopped by itself
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        """Boot the process, unless it runs."""
        self.is_held_down = False
        if self.process is not None and self.process.is_alive:
            return
        process = self._cluster.engine.start_process(self.name)
        self.process = process
        self.disk.attach(process)
        process.on_death(self._died)
        process.spawn(self._run(process))

    def kill(self, *, power_loss: bool = False, silent: bool = False) -> None:
        """The process ends here. Without ``power_loss`` the page cache survives it."""
        if self.process is not None and self.process.is_alive:
            self._loses_power = power_loss
            self.process.kill(silent=silent)
        elif power_loss:
            self._lose_power()

    def _lose_power(self) -> None:
        self.disk.power_loss()
        if not self.config.journal_sync:
            self._cluster.history.bookie(self.name).is_damaged = True

    def rot_journal(self) -> bool:
        """Flip a bit of the newest journal file, among the records that later ones prove to have
        been synced. In the last group of all damage cannot be told from a torn tail."""
        directory = self.config.data_dir / "journal"
        try:
            name = journal_name(journal_ids(self.disk, directory)[-1])
            proven = proven_bytes(self.disk.open(directory / name))
        except (OSError, IndexError):  # a read was made to fail, or the disk is as good as new
            return False
        if proven <= FILE_HEADER_BYTES:
            return False
        self._cluster.history.bookie(self.name).is_damaged = True
        return self.disk.rot(name, below=proven) is not None

    def hold_down(self) -> None:
        self.is_held_down = True

    def die_at_effect(self, number: int, *, power_loss: bool, in_compaction: bool = False) -> None:
        """The process ends at one of its next effects on the disk, or of its next compaction."""
        self._dies_in_compaction = number if in_compaction else None
        self.disk.die_after(None if in_compaction else number)
        self._loses_power = power_loss

    def empty_metadata(self, emptied: Emptied) -> Callable[[], None] | None:
        """Its servers of the metadata store are emptied; returns how to bring them back. Not where
        the disk is empty as well: nobody could tell such a bookie from a new one."""
        if self._is_replaced:
            return None
        self._see(emptied)
        return lambda: self._see(None)

    def _see(self, emptied: Emptied | None) -> None:
        self.emptied = emptied
        for store in self._cluster.stores:
            if store.machine == self.name:
                store.next_view = emptied
        self._cluster.end_sessions(self.name)

    def live_on(self) -> None:  # it has not died at an effect, and will not
        self.die_at_effect(0, power_loss=False, in_compaction=True)

    def make_read_only(self) -> Callable[[], None] | None:
        """Takes no regular adds; returns how to undo it."""
        if (bookie := self.bookie) is None:
            return None
        bookie.is_read_only = True
        return lambda: setattr(bookie, "is_read_only", False)

    def replace_disk(self) -> None:
        """The machine comes back with an empty disk, under its old name. That takes longer than
        its session lives."""
        self.kill()
        self._cluster.end_sessions(self.name)
        self.disk.wipe()
        self._is_replaced = True
        self._cluster.history.bookie(self.name).is_damaged = True

    def damage_replies(self) -> Callable[[], None] | None:
        """Bits of what the process sends are flipped; returns how to undo it."""
        self._cluster.history.bookie(self.name).is_damaged = True
        if (bookie := self.bookie) is None:
            return None
        bookie.damage = self._cluster.engine.random("bad memory")
        return lambda: setattr(bookie, "damage", None)

    async def shut_down(self) -> None:
        """SIGTERM, and the wait for the end."""
        process = self.process
        self.hold_down()
        if process is not None and process.is_alive and self._stop is not None:
            self._stop.set()
            await self._cluster.until(lambda: not process.is_alive)

    async def _run(self, process: Process) -> None:
        """The life of the process; whatever ends it, the process is over afterwards."""
        cluster = self._cluster
        self._stop = stop = asyncio.Event()
        store = cluster.store()
        store.next_view = None if self._is_replaced else self.emptied
        try:
            async with contextlib.AsyncExitStack() as stack:
                await store.start()
                stack.push_async_callback(store.close)
                began_with = store.view
                host = SimHost(cluster.engine, self.name)
                if self._is_to_be_repaired:
                    config = BookieConfig(
                        self.config.data_dir, bookie_id=self.name, repair_cookie=True
                    )
                    await repair_cookie(config, store, disk=self.disk, host=host)
                    cluster.history.counts["cookies repaired"] += 1
                    self._is_to_be_repaired = False
                bookie, _ = await stack.enter_async_context(
                    bookie_main.serving_bookie(
                        store,
                        self.config,
                        disk=self.disk,
                        host=host,
                        listen=f"{self.name}:3181",
                        settings=self.maintenance,
                    )
                )
                if cluster.takes_bookies_out:
                    await check_not_removed(store, bookie.bookie_id, bookie.incarnation)
                self.bookie = cast(ObservedBookie, bookie)
                if began_with is not None and store.view is began_with:
                    cluster.history.violate(13, f"{self.name} serves by an emptied store")
                self._is_replaced = False
                self.refused = None
                bookie.failure.add_done_callback(lambda _: stop.set())
                await stop.wait()
                if bookie.failure.done():
                    cluster.note_refusal(self, bookie.failure.result())
        except FencelogError as error:
            cluster.note_refusal(self, error)
            self._is_to_be_repaired = self._is_replaced and not self.config.repair_cookie
            await asyncio.sleep(REFUSALS_S)
        finally:
            self._forget_bookie()
        cluster.check_leaks(process)
        process.kill()

    def _forget_bookie(self) -> None:
        if (bookie := self.bookie) is not None:
            self.bookie = None
            bookie.count_maintenance(may_be_damaged=self.name in self._cluster.expects_refusals)

    def _created(self, name: str) -> None:
        if name.endswith(COMPACTING_SUFFIX):
            self._cluster.history.on_event("compaction")
            if self._dies_in_compaction:
                self.disk.die_after(self._dies_in_compaction)

    def _died(self) -> None:
        cluster = self._cluster
        self._forget_bookie()
        self._dies_in_compaction = None
        if self._loses_power:
            self._loses_power = False
            self._lose_power()
        if not cluster.is_over:
            cluster.in_world(self._restart())

    async def _restart(self) -> None:
        await asyncio.sleep(RESTART_S)
        if not self.is_held_down and not self._cluster.is_over:
            self.start()


@dataclass(slots=True)
class Session:
    """The tools of a client process."""

    ledgers: LedgerClient
    directory: RegisteredBookies
    store: SimStore
    process: Process

    async def close(self) -> None:
        await self.directory.close()
        await self.store.close()


class Cluster:
    """All machines of one history. Everything here runs in the process "world"."""

    def __init__(self, engine: Engine, history: History, session_timeout_s: float = 6.0) -> None:
        self.engine = engine
        self.history = history
        self.memory = MemoryCluster()
        self.watch = MetadataWatch(history, self.memory)
        self.bookies: dict[str, BookieMachine] = {}
        self.stores: list[SimStore] = []
        self.session_timeout_s = session_timeout_s
        self.is_over = False
        self.clients: tuple[str, ...] = ("w1", "w2", "w3", "r1", "r2", "r3", "t1", "t2")
        """The client machines that a bookie can be cut off from."""
        self.takes_bookies_out = False
        """Bookies may be decommissioned, so each looks for that when it has registered."""
        self.expects_refusals: set[str] = set()  # bookies whose disk was made to fail may stop
        self._tasks: set[asyncio.Task[Any]] = set()
        ObservedBookie.history = history
        setattr(bookie_main, "Bookie", ObservedBookie)  # noqa: B010 - an observer around the original

    async def initialise(self) -> None:
        """``fencelog metadata init``, by the operator."""

        async def init(session: Session) -> None:
            await initialise_cluster(session.store, SimHost(self.engine, "operator"))

        process = self.client_process("operator", init)
        await self.until(lambda: not process.live_tasks())

    def end_sessions(self, machine: str) -> None:
        for store in self.stores:
            if store.machine == machine and store.session_id:
                store.expire()

    def has_session(self, session_id: int) -> bool:
        """Tell whether a metadata session has not ended, whatever its client believes."""
        server = MetadataServer.of(self.engine, self.memory)
        return session_id != 0 and server.session(session_id, 0, 0) is not None

    def add_bookies(self, plan: BookiePlan) -> None:
        for number in range(1, plan.bookies + 1):
            self.add_bookie(f"b{number}", plan)

    def add_bookie(self, name: str, plan: BookiePlan) -> None:
        self.bookies[name] = BookieMachine(self, name, plan)
        self.bookies[name].start()

    def in_world(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that belongs to no process of the cluster."""
        task = self.engine.world.spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def store(self) -> SimStore:
        """A metadata session of the process that asks."""
        store = SimStore(self.engine, self.memory, session_timeout_s=self.session_timeout_s)
        self.stores.append(store)
        return store

    async def session(self, process: Process) -> Session:
        """Return a ledger client over a metadata session of its own. Called within the process."""
        store = self.store()
        await store.start()
        directory = RegisteredBookies(store, connect=_connect)
        await directory.start()
        client = LedgerClient(store, directory, host=SimHost(self.engine, process.machine))
        return Session(client, directory, store, process)

    def client_process(
        self, machine: str, work: Callable[[Session], Coroutine[Any, Any, None]]
    ) -> Process:
        """Start a client process that does its work, closes what it opened, and ends."""
        process = self.engine.start_process(machine)

        async def run() -> None:
            session = await self._persistent_session(process)
            await work(session)
            await session.close()
            self.check_leaks(process)

        process.spawn(run())
        return process

    async def all_serving(self) -> None:
        await self.until(lambda: all(machine.bookie for machine in self.bookies.values()))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Look now and then: what is waited for happens in other processes."""
        while not condition():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.02)

    async def _persistent_session(self, process: Process) -> Session:
        while True:
            try:
                return await self.session(process)
            except FencelogError:
                await asyncio.sleep(0.5)

    def note_refusal(self, machine: BookieMachine, error: FencelogError) -> None:
        """A bookie stopped or refused to start. It needs a reason."""
        self.engine.trace.note(f"{machine.name} stops: {error}")
        machine.refused = error.code
        self.history.counts["bookie stops"] += 1
        if error.code is ErrorCode.METADATA_CONFLICT:  # what a dead process wrote came late
            expected = True
        elif error.code is ErrorCode.CORRUPT:
            expected = self.history.bookie(machine.name).is_damaged
        elif error.code in (ErrorCode.METADATA_UNAVAILABLE, ErrorCode.METADATA_UNKNOWN):
            expected = True
        else:
            expected = machine.name in self.expects_refusals
        if not expected:
            self.history.violate(13, f"bookie {machine.name} stopped: {error}")

    def check_leaks(self, process: Process) -> None:
        """A process that has closed all it opened has nothing left to do (invariant 22)."""
        current = asyncio.current_task()
        left = [task for task in process.live_tasks() if task is not current]
        if left and not self.is_over:
            self.history.violate(22, f"{process.machine} leaves tasks behind: {left[:3]}")


def proven_bytes(file: File) -> int:
    """Return where the records of a journal file end that a later record of it says are durable."""
    header = decode_file_header(file.read(0, FILE_HEADER_BYTES))
    if header is None:
        return 0
    offset, ends, proven = FILE_HEADER_BYTES, list[tuple[int, int]](), 0
    while record := read_record(file.read, offset, seed=header.seed):
        offset = record.end
        ends.append((record.sequence, offset))
        proven = max([proven, *(end for sequence, end in ends if sequence <= record.durable)])
        ends = [(sequence, end) for sequence, end in ends if sequence > record.durable]
    return proven


def _connect(address: str, bookie_id: str) -> TcpBookieClient:
    return TcpBookieClient(bookie_id, address)
