"""A client of the bookie under test: it notes what it sends and what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.gc.files import FileGarbage, FileLimits
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.ledgers.errors import FencelogError
from tests.crash.disk import CrashDisk
from tests.crash.loop import CountingHost, TurnIoThread
from tests.crash.promises import (
    Act,
    Add,
    Fence,
    Flush,
    Lac,
    Limbo,
    Mark,
    Ready,
    Removal,
    run_of,
)

Note = Callable[[Mark], object]

DATA = Path("/data")

COMPACTED_BYTES = 2500
"""The size of an entry log that compaction writes."""


def small_config(**settings: Any) -> BookieConfig:
    """Files so small that all of their story fits into a few dozens of effects: too small for the
    largest runs, which nobody sends here."""
    sizes = {"journal_file_bytes": 6000, "entry_log_bytes": 3000}
    sizes |= {name: settings.pop(name) for name in sizes if name in settings}
    config = replace(BookieConfig(DATA, bookie_id="b1", flush_interval_ms=3_600_000), **settings)
    for name, size in sizes.items():
        object.__setattr__(config, name, size)
    return config


class Client:
    """The client of an open bookie."""

    def __init__(self, bookie: Bookie, note: Note) -> None:
        self.bookie = bookie
        self.forgot = bookie.may_have_forgotten
        self._note = note

    @classmethod
    async def open(
        cls, disk: CrashDisk, config: BookieConfig, *, life: str, note: Note, ledgers: list[int]
    ) -> Client:
        """Start the bookie and, if it may have forgotten something, fence the ``ledgers``."""
        bookie = await Bookie.open(config, disk=disk, host=CountingHost(life))
        client = cls(bookie, note)
        note(Mark(Ready(bookie.incarnation, client.forgot), False))
        if client.forgot:
            for ledger_id in ledgers:
                note(Mark(Limbo(ledger_id, True), False))
                bookie.fence_forgotten(ledger_id)
            await bookie.forgotten_are_fenced()
            for ledger_id in ledgers:
                note(Mark(Limbo(ledger_id, True), True))
        note(Mark(Ready(bookie.incarnation, client.forgot), True))
        return client

    async def close(self) -> None:
        flush = Flush()
        self._note(Mark(flush, False))
        await self.bookie.close()
        if self.bookie.failure.done():
            raise self.bookie.failure.result()
        self._note(Mark(flush, True))

    def send(
        self, ledger_id: int, first: int, count: int = 1, *, recovery: bool = False
    ) -> asyncio.Future[FencelogError | None]:
        """Add entries; done with the answer."""
        run = run_of(ledger_id, first, count)
        act = Add.of(run)
        answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()

        def on_reply(error: FencelogError | None) -> None:
            if error is None:
                self._note(Mark(act, True))
            answer.set_result(error)

        self._note(Mark(act, False))
        self.bookie.add(run, recovery=recovery, on_reply=on_reply)
        return answer

    async def add(
        self, ledger_id: int, first: int, count: int = 1, *, recovery: bool = False
    ) -> None:
        """``send``, and it has to be taken."""
        error = await self.send(ledger_id, first, count, recovery=recovery)
        if error is not None:
            raise error

    async def replace(self, ledger_id: int, first: int, count: int = 1) -> None:
        await self._noted(
            Add.of(run_of(ledger_id, first, count)),
            lambda: self.bookie.shard(ledger_id).adds.replace(run_of(ledger_id, first, count)),
        )

    async def fence(self, ledger_id: int) -> None:
        await self._noted(Fence(ledger_id), lambda: self.bookie.read_lac(ledger_id, fence=True))

    async def write_lac(self, ledger_id: int, lac: int) -> None:
        act = Lac(ledger_id, lac)
        answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
        self._note(Mark(act, False))
        self.bookie.write_lacs(
            [(ledger_id, lac)], [0], on_replies=lambda _, error: answer.set_result(error)
        )
        if (error := await answer) is not None:
            raise error
        self._note(Mark(act, True))

    async def read_lac(self, ledger_id: int) -> None:
        """Read a LAC; an answer is a promise, too."""
        lac = await self.bookie.read_lac(ledger_id)
        self._note(Mark(Lac(ledger_id, lac), True))

    async def put_in_limbo(self, *ledger_ids: int) -> None:
        async def put() -> None:
            for ledger_id in ledger_ids:
                self.bookie.fence_forgotten(ledger_id)
                self._note(Mark(Limbo(ledger_id, True), False))
            for shard in self.bookie.shards:
                await shard.settle(sync=True)

        await put()
        for ledger_id in ledger_ids:
            self._note(Mark(Limbo(ledger_id, True), True))

    async def clear_limbo(self, ledger_id: int) -> None:
        await self._noted(Limbo(ledger_id, False), lambda: self.bookie.clear_limbo(ledger_id))

    async def remove(self, ledger_id: int, *, deleted: bool) -> None:
        await self._noted(
            Removal(ledger_id, deleted),
            lambda: self.bookie.shard(ledger_id).remove(ledger_id, deleted=deleted),
        )

    async def flush(self) -> None:
        """Write everything so far to entry logs and index, and move the checkpoint behind it."""
        await self.idle()
        flush = Flush()
        self._note(Mark(flush, False))
        for shard in self.bookie.shards:
            shard.flusher.request()
        await self.idle()
        self._note(Mark(flush, True))

    async def idle(self) -> None:
        """No flush is running."""
        while any(shard.flusher._begun is not None for shard in self.bookie.shards):
            await asyncio.sleep(0)
            if self.bookie.failure.done():
                raise self.bookie.failure.result()

    async def collect(self, below: float) -> None:
        """Remove the entry logs that hold nothing any more, and compact those of which less than
        a share ``below`` is live."""
        limits = FileLimits(
            bytes_per_s=1 << 30,
            file_bytes=COMPACTED_BYTES,
            spare_bytes=lambda: 0,
            must_stop=lambda: False,
        )
        damaged: list[StoredRun] = []

        def on_damage(run: StoredRun, _error: FencelogError) -> None:
            damaged.append(run)

        for shard in self.bookie.shards:
            io_thread = TurnIoThread(1)
            files = FileGarbage(shard, io_thread, limits, on_damage=on_damage)
            await files.collect(below)
            await io_thread.close()
            files.close()
        if damaged:
            raise AssertionError(f"compaction could not read {damaged}")

    async def _noted(self, act: Act, call: Callable[[], Any]) -> None:
        self._note(Mark(act, False))
        await call()
        self._note(Mark(act, True))
