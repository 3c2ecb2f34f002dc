"""Random histories in virtual time: two auditors, a checker, a worker, and bookies that restart,
hang, forget, die or leave, over sessions that break. What is marked, accused and removed has to be
true."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the test
from typing import Any

import pytest

from fencelog.bookie.auditor.auditor import Auditor, AuditorConfig
from fencelog.bookie.auditor.check_core import ViolationKind
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.auditor.decommission import Decommissions
from fencelog.bookie.auditor.decommission_core import Phase
from fencelog.bookie.auditor.election import Election
from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedger
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH
from fencelog.ledgers.ledger_metadata.model import Fragment, decode_metadata
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.reader.fan_out import cancel_all
from tests.bookie.auditor.audit_stage import AuditStage
from tests.support.scripted_cluster import ScriptedBookie

SEEDS = 5
GRACE_S = 30.0
HISTORY_S = 400.0
SLACK_S = 1.0
"""The time between a look and the mark that follows from it."""

DURABILITY = {
    ViolationKind.BELOW_WRITE_QUORUM,
    ViolationKind.BELOW_ACK_QUORUM,
    ViolationKind.NO_COPY,
}


class ForgetfulBookie(ScriptedBookie):
    """A bookie that may have forgotten entries, and takes the operator's requests."""

    stage: AuditStage
    in_limbo = False

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        try:
            found = await super().list_entries(ledger_id, from_entry)
        except FencelogError as error:
            if not (error.code.is_negative and self.in_limbo):
                raise
            found = EntryList(Availability())
        return replace(found, in_limbo=self.in_limbo)

    async def admin(self, request: Any) -> dict[str, Any]:
        if (error := self.fault("admin")) is not None:
            raise error
        await self.stage.register(self.bookie_id, read_only=request["on"])
        return {}


class AuditHistory:
    """One history. ``wrong``: what was marked, accused or removed and should not have been."""

    def __init__(self, stage: AuditStage, seed: int) -> None:
        self.stage = stage
        self.random = Random(seed)
        self.wrong: list[str] = []
        self.counts = {"marks": 0, "checks": 0, "removed": 0, "moved": 0}
        self._loop = asyncio.get_running_loop()
        self._absent_since: dict[str, float] = {}
        self._stopped: set[str] = set()
        self._ledger_ids = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._cookies = set(stage.bookies)
        for name, bookie in list(stage.bookies.items()):
            forgetful = ForgetfulBookie(name, entries=bookie.entries)
            forgetful.stage = stage
            stage.bookies[name] = forgetful

    async def play(self) -> None:
        for _ in range(8):
            await self._write()
        unsubscribe = self.stage.memory.subscribe(self._changed)
        names = self.random.sample(sorted(self.stage.bookies), 5)
        for work in (
            *(self._candidate(f"auditor-{n}") for n in (1, 2)),
            self._check(),
            self._work(),
            self._writes(),
            self._restarts(names[0]),
            self._restarts(names[1]),
            self._forgets(names[2]),
            self._dies(names[3]),
            self._leaves(names[4]),
        ):
            self._spawn(work)
        await asyncio.sleep(HISTORY_S)
        failed = [task.exception() for task in self._tasks if task.done() and not task.cancelled()]
        await cancel_all(self._tasks)
        unsubscribe()
        for error in failed:
            if error is not None:
                raise error

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._loop.create_task(work))

    async def _pause(self, low: float, high: float) -> None:
        await asyncio.sleep(self.random.uniform(low, high))

    # -- what has to be true ---------------------------------------------------------------------

    def _changed(self, path: str) -> None:
        if path.startswith("/bookies/"):
            name = path.rpartition("/")[2]
            if self._exists(path):
                self._absent_since.pop(name, None)
            else:
                self._absent_since[name] = self._loop.time()
        elif path.startswith(f"{MARKS_PATH}/") and path.count("/") == 4:
            self._marked(path)
        elif path.startswith("/cookies/") and not self._exists(path):
            self._removed(path.rpartition("/")[2])

    def _exists(self, path: str) -> bool:
        with suppress(FencelogError):
            self.stage.memory.get(path)
            return True
        return False

    def _marked(self, path: str) -> None:
        with suppress(FencelogError):
            value = self.stage.memory.get(path).value.decode()
            self.counts["marks"] += 1
            now = self._loop.time()
            for name in self.stage.bookies:
                if f'"{name}":["lost_bookie"' not in value:
                    continue
                absent_s = now - self._absent_since.get(name, now)
                if absent_s < GRACE_S - SLACK_S:
                    self.wrong.append(f"{path}: {name} is absent for {absent_s} s: {value}")

    def _removed(self, name: str) -> None:
        self.counts["removed"] += 1
        if self._exists(f"/bookies/{name}"):
            self.wrong.append(f"the cookie of {name} is removed while it runs")
        for ledger_id in range(1, self._ledger_ids + 1):
            with suppress(FencelogError):
                node = self.stage.memory.get(f"/ledgers/0/{ledger_id:04x}")
                metadata = decode_metadata(node.value)
                if any(name in fragment.bookies for fragment in metadata.fragments):
                    self.wrong.append(f"the cookie of {name} is removed: {metadata.fragments}")

    # -- the cluster -----------------------------------------------------------------------------

    async def _candidate(self, name: str) -> None:
        """Stand for election with a session that breaks now and then."""
        store = MemoryMetadataStore(self.stage.memory)
        await store.start()
        config = AuditorConfig(
            lost_bookie_grace_ms=round(GRACE_S * 1000),
            intervals_ms={CheckName.BOOKIES: 40_000, CheckName.LEDGERS: 70_000},
            first_check_delay_ms=10_000,
            decommission_step_ms=3_000,
        )
        auditor = Auditor(store, self.stage, host=self.stage.host, config=config)
        election = Election(store, name, host=self.stage.host)
        running = self._loop.create_task(election.run(auditor.run))
        try:
            while True:
                await self._pause(20, 120)
                store.disconnect()
                if self.random.random() < 0.5:
                    store.expire()
                await self._pause(0, 50)
                store.reconnect()
        finally:
            await cancel_all([running])
            await store.close()

    async def _check(self) -> None:
        """Check again and again: no copy is ever missing where metadata names a bookie for it."""
        store = MemoryMetadataStore(self.stage.memory)
        await store.start()
        try:
            while True:
                config = CheckConfig(repeats=1, repeat_delay_ms=6_000)
                check = ClusterCheck(store, self.stage, host=self.stage.host, config=config)
                report = await check.run()
                self.counts["checks"] += 1
                self.wrong += [
                    f"accused: {violation.to_json()}"
                    for violation in report.violations
                    if violation.kind in DURABILITY
                ]
                await self._pause(0, 10)
        finally:
            await store.close()

    async def _write(self) -> None:
        """Create a closed ledger, of which one copy arrives only a while later."""
        self._ledger_ids += 1
        ledger_id = self._ledger_ids
        candidates = [name for name in self.stage.available() if name not in self._stopped]
        size = self.random.choice([3, 3, 4])
        if len(candidates) < size:
            return
        ensemble = self.random.sample(candidates, size)
        metadata = await self.stage.ledger(ledger_id, " ".join(ensemble), last=7)
        late = self.stage.bookies[self.random.choice(metadata.fragments[0].bookies)]
        entries = late.entries.pop(ledger_id)
        self._loop.call_later(
            self.random.uniform(0, 4), lambda: late.entries.setdefault(ledger_id, entries)
        )

    async def _writes(self) -> None:
        while True:
            await self._pause(5, 40)
            await self._write()

    async def _work(self) -> None:
        """Move the copies of marked ledgers, as a worker does; the old ones are removed later."""
        while True:
            await self._pause(1, 6)
            async for mark in self.stage.marks.list():
                await self._repair(mark)

    async def _repair(self, mark: UnderReplicatedLedger) -> None:
        try:
            metadata, version = await self.stage.ledgers.get(mark.ledger_id)
        except FencelogError:
            return
        fragments = metadata.fragments
        for old, causes in mark.missing.items():
            lost = old in self._absent_since and Cause.LOST_BOOKIE in causes
            members = {bookie for fragment in fragments for bookie in fragment.bookies}
            others = [b for b in self.stage.available() if b not in members | self._stopped]
            if old not in members or not (lost or Cause.DECOMMISSION in causes):
                continue
            if not others:
                return
            new = self.random.choice(others)
            source = self.stage.bookies[old].entries.get(mark.ledger_id, {})
            self.stage.bookies[new].entries[mark.ledger_id] = dict(source)
            fragments = tuple(
                Fragment(f.first_entry_id, tuple(new if b == old else b for b in f.bookies))
                for f in fragments
            )
            self.counts["moved"] += 1
            forget = self.stage.bookies[old].entries.pop
            self._loop.call_later(0, forget, mark.ledger_id, None)
        with suppress(FencelogError):
            await self.stage.ledgers.update(replace(metadata, fragments=fragments), version)
            await self.stage.marks.unmark(mark.ledger_id, mark.version)

    async def _restarts(self, name: str) -> None:
        """Restart or hang, never for as long as the grace time."""
        bookie = self.stage.bookies[name]
        while True:
            await self._pause(5, 40)
            bookie.go_down()
            is_restart = self.random.random() < 0.7
            if is_restart:
                await self.stage.deregister(name)
            await self._pause(1, GRACE_S - 3)
            bookie.come_back()
            if is_restart:
                await self.stage.register(name)

    async def _forgets(self, name: str) -> None:
        """Forget ledgers, and copy them back before the end of limbo."""
        bookie = self.stage.bookies[name]
        assert isinstance(bookie, ForgetfulBookie)
        while True:
            await self._pause(10, 60)
            bookie.in_limbo = True
            forgotten = dict(bookie.entries)
            for ledger_id in forgotten:
                bookie.entries.pop(ledger_id)
            await self._pause(5, 40)
            for ledger_id, entries in forgotten.items():
                bookie.entries.setdefault(ledger_id, entries)
            bookie.in_limbo = False

    async def _dies(self, name: str) -> None:
        await self._pause(20, 200)
        self._stopped.add(name)
        await self.stage.lose(name)

    async def _leaves(self, name: str) -> None:
        """Be decommissioned; start again now and then, also at the last moment."""
        await self._pause(10, 150)
        jobs = Decommissions(self.stage.store)
        try:
            await jobs.start(name, host=self.stage.host)
        except FencelogError as error:
            if error.code is not ErrorCode.BAD_REQUEST:
                raise
            return
        if self.random.random() < 0.4:
            await self._pause(0, 20)
            self._stopped.add(name)
            await self.stage.lose(name)
        while (found := await jobs.get(name)) is not None:
            is_running = name not in self._absent_since
            if is_running and found[0].phase is Phase.DRAINED:
                await self.stage.lose(name)
            elif not is_running and self.random.random() < 0.2:
                self.stage.bookies[name].come_back()
                await self.stage.register(name)
                await self._name_it(name)
            await self._pause(0, 4)

    async def _name_it(self, name: str) -> None:
        """Create a ledger on a bookie that is about to leave: a client may not know that yet."""
        others = [b for b in self.stage.available() if b != name and b not in self._stopped]
        if len(others) >= 2:
            self._ledger_ids += 1
            ensemble = [name, *self.random.sample(others, 2)]
            await self.stage.ledger(self._ledger_ids, " ".join(ensemble), last=7)


async def play(seed: int) -> AuditHistory:
    async with AuditStage(9) as stage:
        history = AuditHistory(stage, seed)
        await history.play()
        return history


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_marks_accusations_and_removals_are_true(seed: int) -> None:
    history = await play(seed)
    assert history.wrong == []
    assert history.counts["checks"] > 10
