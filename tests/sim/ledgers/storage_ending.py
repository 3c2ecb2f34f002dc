"""The end of the liveness phase: repairs come to an end, garbage is collected, and what is left of
it all is what should be left (invariants 14 and 15, and rule 10 after repairs).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any

from fencelog.bookie.format.ledger_state import decode_state
from fencelog.bookie.journal.spare_files import MAX_SPARES
from fencelog.bookie.storage.index import FIRST
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header
from tests.sim.ledgers.cluster import BookieMachine, Cluster, Session
from tests.sim.oracle.history import History, write_set_of
from tests.sim.plan.plan import Plan

STEP_S = 0.25
REPAIRS_S = 90.0
PASS_S = 60.0
PASSES = 5
NEIGHBOURS = 5
DELETE_ATTEMPTS = 40
READ_ATTEMPTS = 8
ROTTEN_ATTEMPTS = 160
"""The attempts where data was damaged. A damaged header shows when its file is opened again, after
all scrubbing; the next pass replaces what is found."""

Within = Callable[[float, str, Callable[[], bool]], Awaitable[None]]


class StorageEnding:
    """``within`` waits for something; ``serve`` starts what is down and says whether all serve."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        plan: Plan,
        *,
        within: Within,
        serve: Callable[[], bool],
        haunt: Callable[[], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._plan = plan
        self._within = within
        self._serve = serve
        self._haunt = haunt
        self._random = cluster.engine.random("storage ending")
        self._neighbours: list[int] = []
        """Ledgers with all bookies, in the same entry logs: one of them goes, the other stays."""

    @property
    def _machines(self) -> list[BookieMachine]:
        return list(self._cluster.bookies.values())

    async def run(self) -> None:
        await self._delete(filter(self._is_being_deleted, self._ids()))
        await self._repairs_end()
        if self._plan.ends_storage:
            await self._end_ledgers()

    async def _end_ledgers(self) -> None:
        await self._in_client("neighbours are written", PASS_S, self._write_neighbours)
        chosen = [id for id in self._ids() if self._random.random() < 0.5]
        await self._delete({*chosen, *self._neighbours[:1]})
        await self._collect_and_die()
        await self._repairs_end()
        await self._haunt()
        await self._in_client("bookies give back what they have", PASS_S, self._read_all)
        await self._delete(self._ids())
        await self._collect()
        await self._haunt()

    def _ids(self) -> list[int]:
        return sorted(self._history.metadata)

    def _is_being_deleted(self, ledger_id: int) -> bool:
        """A deleter gave up, and left it in any state."""
        ledger = self._history.ledgers.get(ledger_id)
        return ledger is not None and ledger.is_being_deleted

    async def _in_client(
        self, what: str, budget_s: float, work: Callable[[Session], Coroutine[Any, Any, None]]
    ) -> None:
        process = self._cluster.client_process("z1", work)
        await self._within(budget_s, what, lambda: not process.live_tasks())
        process.kill()

    async def _write_neighbours(self, session: Session) -> None:
        copies = Replication.of_copies(len(self._machines))
        with suppress(FencelogError):
            writers = [
                await session.ledgers.create(
                    copies, on_ack=lambda _lac: None, on_failure=lambda _error: None
                )
                for _ in range(2)
            ]
            self._neighbours = [writer.ledger_id for writer in writers]
            for number in range(NEIGHBOURS):
                for writer in writers:
                    writer.append(b"%d" % number)
            for writer in writers:
                await writer.close()

    async def _delete(self, ledger_ids: Iterable[int]) -> None:
        chosen = sorted(ledger_ids)

        async def delete(session: Session) -> None:
            for ledger_id in chosen:
                for _ in range(DELETE_ATTEMPTS):
                    with suppress(FencelogError):
                        await session.ledgers.delete(ledger_id)
                        break
                    await asyncio.sleep(STEP_S)
                else:
                    self._history.violate(22, f"ledger {ledger_id} cannot be deleted")

        if chosen:
            await self._in_client("ledgers are deleted", PASS_S, delete)

    # -- repairs ---------------------------------------------------------------------------------

    async def _repairs_end(self) -> None:
        """Wait until data that was lost or damaged has come back from other bookies."""
        rotten = [m.name for m in self._machines if self._history.bookie(m.name).is_damaged]

        async def repair(session: Session) -> None:
            await self._scrub(session, rotten)
            while waiting := self._unrepaired():
                for name in waiting:
                    with suppress(FencelogError):
                        await session.directory.client(name).admin({"do": "integrity"})
                await asyncio.sleep(STEP_S * 4)

        if rotten or self._unrepaired():
            await self._in_client("repairs end", REPAIRS_S, repair)
        for _ in self._machines:  # each may die just then, by a fault that has waited for it
            if all(self._unrepaired().values()):
                break
            await self._in_client("repairs end after a death", REPAIRS_S, repair)
        if waiting := self._unrepaired():
            self._history.violate(22, f"not repaired: {waiting}")

    async def _scrub(self, session: Session, names: list[str]) -> None:
        for name in names:
            with suppress(FencelogError):
                client = session.directory.client(name)
                passes = (await client.admin({"do": "status"}))["scrub"]["passes"]
                await client.admin({"do": "scrub"})
                told = passes
                while told == passes:
                    await asyncio.sleep(STEP_S)
                    told = (await client.admin({"do": "status"}))["scrub"]["passes"]

    def _unrepaired(self) -> dict[str, list[int]]:
        """Bookies, with their ledgers in limbo that name them, and -1 for damaged runs."""
        unrepaired: dict[str, list[int]] = {}
        for machine in self._machines:
            if (bookie := machine.bookie) is None:
                unrepaired[machine.name] = []
                self._serve()
                continue
            waiting = [
                ledger_id
                for shard in bookie.shards
                for ledger_id, state in shard.states.items()
                if state.limbo and not state.deleted and self._names(ledger_id, machine.name)
            ]
            if _has_repairable_damage(bookie.status_parts["integrity"]()):
                waiting.append(-1)
            if waiting:
                unrepaired[machine.name] = waiting
        return unrepaired

    def _names(self, ledger_id: int, bookie: str) -> bool:
        metadata = self._history.latest(ledger_id)
        return metadata is not None and any(bookie in f.bookies for f in metadata.fragments)

    # -- garbage ---------------------------------------------------------------------------------

    async def _collect_and_die(self) -> None:
        """Collect and compact all that can be; some bookies die on the way, and do it again."""
        for death in self._plan.last_deaths:
            machine = self._cluster.bookies[death.bookie]
            machine.die_at_effect(
                death.effects, power_loss=death.power_loss, in_compaction=death.in_compaction
            )
            self._history.counts["last deaths"] += 1
        await self._collect()
        for machine in self._machines:
            machine.live_on()
        await self._within(PASS_S, "bookies serve after they died", self._serve)
        await self._collect()

    async def _collect(self) -> None:
        """A pass of garbage collection on each bookie, everything compacted that has any gap."""

        async def ask_one(session: Session, name: str) -> None:
            with suppress(FencelogError):
                await self._pass(session, name)

        async def ask(session: Session) -> None:
            await asyncio.gather(*(ask_one(session, machine.name) for machine in self._machines))

        await self._in_client("garbage is collected", PASS_S, ask)

    async def _pass(self, session: Session, name: str) -> None:
        """One that failed, say because its session had just expired, is done again."""
        error = "not begun"
        for _ in range(PASSES):
            client = session.directory.client(name)
            garbage = (await client.admin({"do": "status"})).get("garbage")
            if garbage is None:  # it serves already, and its maintenance is about to start
                error = "its collector has not started"
                await asyncio.sleep(STEP_S)
                continue
            enough = garbage["passes"] + 1 + garbage["is_running"]
            await client.admin({"do": "gc", "below": 1.0, "no_grace": True})
            while garbage["passes"] < enough:
                await asyncio.sleep(STEP_S / 2)
                garbage = (await client.admin({"do": "status"}))["garbage"]
            if (error := garbage["last_error"]) is None:
                return
            await asyncio.sleep(STEP_S)
        self._history.violate(22, f"bookie {name} cannot collect garbage: {error}")

    # -- what must be there ----------------------------------------------------------------------

    async def _read_all(self, session: Session) -> None:
        """Each bookie gives back each entry that it has acknowledged of the ledgers that there are
        (14); that it does not deny one, or change it, its observer sees."""
        for machine in self._machines:
            for ledger_id in self._ids():
                for first, last in self._promised(machine.name, ledger_id):
                    await self._read(session, machine.name, ledger_id, first, last)

    def _promised(self, bookie: str, ledger_id: int) -> Iterator[tuple[int, int]]:
        metadata = self._history.latest(ledger_id)
        if metadata is None:
            return
        first = last = -1
        for entry in sorted(e for i, e in self._history.bookie(bookie).entries if i == ledger_id):
            if entry > metadata.last_entry_id or bookie not in write_set_of(metadata, entry):
                continue
            if entry != last + 1 or first < 0:
                if first >= 0:
                    yield first, last
                first = entry
            last = entry
        if first >= 0:
            yield first, last

    async def _read(
        self, session: Session, bookie: str, ledger_id: int, first: int, last: int
    ) -> None:
        error: FencelogError | None = None
        is_rotten = self._history.bookie(bookie).is_damaged
        for _ in range(ROTTEN_ATTEMPTS if is_rotten else READ_ATTEMPTS):
            try:
                while first <= last:
                    reply = await session.directory.client(bookie).read(
                        ledger_id, first, max_entries=last - first + 1, max_bytes=1 << 20
                    )
                    first = read_run_header(reply.run).last_entry_id + 1
                    self._history.counts["entries checked"] += 1
            except FencelogError as refusal:
                error = refusal
                if refusal.code is ErrorCode.CORRUPT and not is_rotten:
                    break
                await asyncio.sleep(STEP_S)
            else:
                return
        self._history.violate(
            14, f"bookie {bookie} has lost {first} of ledger {ledger_id}: {error}"
        )

    # -- what must not be there ------------------------------------------------------------------

    def check_disks(self) -> None:
        """All ledgers are deleted, and all bookies ended as they should: nothing is left (15)."""
        for machine in self._machines:
            if machine.refused is not None:
                continue
            for what in self._left(machine):
                self._history.violate(15, f"bookie {machine.name} has left {what}")

    def _left(self, machine: BookieMachine) -> Iterator[str]:
        disk, data_dir = machine.disk, machine.config.data_dir
        for key, value in disk.store_items(data_dir / "index"):
            if key.startswith(FIRST):
                yield f"a run in its index: {key.hex()}"
            elif key.startswith(b"L") and not _is_tombstone(value):
                yield f"a ledger in its index that is no tombstone: {key.hex()} {value.hex()}"
        logs = disk.file_names(data_dir / "entrylog")
        is_damaged = self._history.bookie(machine.name).is_damaged
        if (len(logs) > 1 and not is_damaged) or any(not n.endswith(".entrylog") for n in logs):
            yield f"entry logs {logs}"
        journals = disk.file_names(data_dir / "journal")
        spares = [name for name in journals if name.endswith(".spare")]
        if len(spares) > MAX_SPARES or len(journals) - len(spares) > 1:
            yield f"journals {journals}"
        others = set(disk.file_names(data_dir)) - {"lock", "identity", "checkpoint"}
        if others:
            yield f"files {sorted(others)}"


def _has_repairable_damage(told: dict[str, Any]) -> bool:
    """Tell whether damage is left that repair should have ended. A damaged run behind the end of
    its ledger stays: no entry of it is needed (MAINTENANCE.md)."""
    reasons = {item["why"] for item in told["waiting"] if item["for"] == "damage"}
    return told["damaged_runs"] > 0 and reasons != {"behind_the_end"}


def _is_tombstone(state: bytes) -> bool:
    try:
        return decode_state(0, state).deleted
    except FencelogError:
        return False
