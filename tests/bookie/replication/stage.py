"""Marked ledgers over real bookies, and the worker that repairs them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.bookie.replication.worker import ReplicationWorker
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.run import RUN_HEADER
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.quorum import write_set
from fencelog.ledgers.reader.entry_reads import verified_reply
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.local_cluster import LocalCluster
from tests.support.until import until_found

PAYLOADS = [b"entry %d" % n for n in range(60)]


class Clock:
    """A clock that tests move by hand, in place of the loop of what only asks it for the time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s


@contextlib.asynccontextmanager
async def running(worker: ReplicationWorker) -> AsyncIterator[ReplicationWorker]:
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def healed(marks: UnderReplicatedLedgers) -> None:
    async with asyncio.timeout(30):
        while True:
            if not [ledger_id async for ledger_id in marks.list_ids()]:
                return
            await asyncio.sleep(0.01)


async def knows_lac(cluster: LocalCluster, writer: LedgerWriter, lac: int) -> None:
    """Wait until every member knows the LAC of a writer that is idle, which sends it after a while.
    Who asks afterwards may hear from any of them first."""

    async def is_known() -> bool:
        members = map(cluster.client, writer.metadata.last_fragment.bookies)
        lacs = [await member.read_lac(writer.ledger_id) for member in members]
        return lacs == [lac] * len(lacs)

    await until_found(is_known)


async def mark(
    marks: UnderReplicatedLedgers, ledger_id: int, bookie: str, why: Cause = Cause.LOST_BOOKIE
) -> None:
    await marks.mark(ledger_id, missing=[bookie], why=why, now_us=1)


async def check_copies(cluster: LocalCluster, ledger_id: int, payloads: list[bytes]) -> None:
    """Read every entry from each bookie that the metadata names for it, and verify it."""
    metadata, _ = await cluster.ledgers.get(ledger_id)
    assert (metadata.is_closed, metadata.last_entry_id) == (True, len(payloads) - 1)
    for entry_id, payload in enumerate(payloads):
        bookies = metadata.fragment_of(entry_id).bookies
        for index in write_set(
            entry_id,
            ensemble_size=metadata.ensemble_size,
            write_quorum=metadata.write_quorum,
        ):
            reply = await cluster.client(bookies[index]).read(
                ledger_id, entry_id, max_entries=1, max_bytes=1 << 20
            )
            entry, *_ = verified_reply(reply, metadata, entry_id, bookie_id=bookies[index], key=b"")
            assert bytes(entry.payload) == payload


class Hooked:
    """A client of a bookie; a test may act before and after each of its requests."""

    def __init__(self, cluster: LocalCluster, bookie: str) -> None:
        self._cluster = cluster
        self.bookie = bookie
        self._client: Any = cluster.client(bookie)
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.after_add: Callable[[], None] = lambda: None
        self.adds = 0
        self.is_deaf = False
        cluster.put(bookie, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def use_current(self) -> None:
        """Talk to the bookie as it is after a restart."""
        self._client = self._cluster.client(self.bookie)
        self._cluster.put(self.bookie, self)

    def add(self, run: bytes, **options: Any) -> None:
        self.adds += 1
        if self.is_deaf:
            return
        self._client.add(run, **options)
        self.after_add()

    async def read(self, *arguments: Any, **options: Any) -> Any:
        await self._hook("read")
        return await self._client.read(*arguments, **options)

    async def read_ranges(self, *arguments: Any, **options: Any) -> Any:
        await self._hook("read")
        return await self._client.read_ranges(*arguments, **options)

    async def list_entries(self, *arguments: Any, **options: Any) -> Any:
        await self._hook("list")
        return await self._client.list_entries(*arguments, **options)

    async def _hook(self, request: str) -> None:
        if self.before is not None:
            await self.before(request)


async def closed(cluster: LocalCluster, *payloads: bytes, **sizes: int) -> LedgerMetadata:
    return await (await cluster.write(*payloads, **sizes)).close()


def why(worker: ReplicationWorker) -> list[tuple[int, str, int | None]]:
    return [
        (item["ledger_id"], item["why"], item["entry_id"]) for item in worker.status()["waiting"]
    ]


async def members(cluster: LocalCluster, metadata: LedgerMetadata) -> tuple[list[str], list[str]]:
    """Return the bookies that the ledger names in its first fragment, and the others."""
    named = list((await cluster.ledgers.get(metadata.ledger_id))[0].fragments[0].bookies)
    return named, sorted({*(f"b{n + 1}" for n in range(cluster.size))} - set(named))


def damaged(run: bytes) -> bytes:
    """Return a run with a bit of its first entry's payload flipped, and a checksum that agrees."""
    changed = bytearray(run)
    changed[-9] ^= 1
    checksum = crc32c(changed[RUN_HEADER.size :], crc32c(changed[:24]))
    changed[24:28] = checksum.to_bytes(4, "little")
    return bytes(changed)
