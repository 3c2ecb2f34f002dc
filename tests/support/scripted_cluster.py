"""A scripted cluster: bookies that keep runs in memory and follow a test's instructions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from fencelog.bookie.engine.fence_answers import fence_and_read
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability, Range
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import Buffer, merge_runs, read_run_header, run_lac, slice_run
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.rpc.bookie_port import (
    NO_LAC,
    AddCallback,
    AddsCallback,
    AddToken,
    BookieInfo,
    FenceAnswer,
    LedgerLac,
    ReadReply,
    SingleAdds,
)
from fencelog.ledgers.writer.options import WriterOptions
from fencelog.ledgers.writer.outbox import Outbox
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.metadata_nodes import later


class _LacReads(Protocol):
    async def read_lac(self, ledger_id: int, *, fence: bool = False) -> int: ...


def lac_alone(bookie: _LacReads, ledger_id: int) -> asyncio.Future[FenceAnswer]:
    """Fence a ledger at a bookie that answers with its LAC alone, as one does that does not know
    FENCE: recovery then reads the entries by themselves."""

    async def fence() -> FenceAnswer:
        return FenceAnswer(await bookie.read_lac(ledger_id, fence=True))

    return asyncio.get_running_loop().create_task(fence())


@dataclass
class ScriptedBookie(SingleAdds):
    """A bookie that stores entries; ``fault`` decides about a request before it is carried out."""

    bookie_id: str
    incarnation: str = "1"
    entries: dict[int, dict[int, bytes]] = field(default_factory=dict)
    lacs: dict[int, int] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    fault: Callable[[str], FencelogError | None] = lambda request: None
    held: list[Callable[[], None]] | None = None
    """The replies to adds that wait until the test calls them; None: replies are not held."""
    tells_ends: bool = False
    """Whether its answer to a fence contains entries."""
    hung: set[str] = field(default_factory=set)
    """The requests ("read", "read_lac", "list_entries") that are not answered until ``wake``."""
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Every ("read", first entry), ("read_lac", above), ("list_entries", from entry) that was
    received."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        loop = asyncio.get_running_loop()
        header = read_run_header(run)
        error = self.fault("recovery add" if recovery else "add") or self._refusal(
            header.ledger_id, incarnation, recovery=recovery
        )
        if error is None:
            stored = self.entries.setdefault(header.ledger_id, {})
            for entry_id in range(header.first_entry_id, header.last_entry_id + 1):
                stored.setdefault(entry_id, slice_run(run, entry_id, entry_id))
            self._learn(header.ledger_id, run_lac(run, header))
        if self.held is not None:
            self.held.append(lambda: on_reply(error))
        else:
            loop.call_soon(on_reply, error)

    def write_lacs(
        self,
        lacs: Sequence[LedgerLac],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        for (ledger_id, lac), token in zip(lacs, tokens, strict=True):
            error = self.fault("write_lac") or self._refusal(ledger_id, incarnation, recovery=False)
            if error is None:
                self._learn(ledger_id, lac)
            asyncio.get_running_loop().call_soon(on_replies, (token,), error)

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        self.asked.append(("read", first_entry_id))
        await self._turn("read")
        self._fault_or_fence("read", ledger_id, fence=fence)
        stored = self.entries.get(ledger_id)
        if stored is None and ledger_id not in self.fenced:
            raise FencelogError(ErrorCode.NO_SUCH_LEDGER, self.bookie_id)
        runs: list[bytes] = []
        while stored and len(runs) < max_entries and first_entry_id + len(runs) in stored:
            runs.append(stored[first_entry_id + len(runs)])
        if not runs:
            raise FencelogError(ErrorCode.NO_SUCH_ENTRY, self.bookie_id)
        return ReadReply(self.lacs.get(ledger_id, -1), merge_runs(runs))

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> Sequence[Buffer]:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, "an older bookie")

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        self.asked.append(("read_lac", above))
        await self._turn("read_lac")
        self._fault_or_fence("read_lac", ledger_id, fence=fence)
        if ledger_id not in self.lacs and ledger_id not in self.fenced:
            raise FencelogError(ErrorCode.NO_SUCH_LEDGER, self.bookie_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000 or None):
                while wait_ms and self._has_no_news(ledger_id, above):
                    self.news.clear()
                    await self.news.wait()
        return self.lacs.get(ledger_id, -1)

    def fence_and_read(self, ledger_id: int, above: int) -> asyncio.Future[FenceAnswer]:
        if not self.tells_ends:
            return lac_alone(self, ledger_id)
        self.asked.append(("fence", above))
        return asyncio.get_running_loop().create_task(fence_and_read(self, ledger_id, above))

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        self.asked.append(("list_entries", from_entry))
        await self._turn("list_entries")
        if (stranger := self._refusal(ledger_id, incarnation, recovery=True)) is not None:
            raise stranger
        self._fault_or_fence("list_entries", ledger_id, fence=False)
        if ledger_id not in self.entries and ledger_id not in self.fenced:
            raise FencelogError(ErrorCode.NO_SUCH_LEDGER, self.bookie_id)
        stored = sorted(n for n in self.entries.get(ledger_id, {}) if n >= from_entry)
        return EntryList(Availability.of((n, n) for n in stored))

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"{self.bookie_id} has no operator")

    async def close(self) -> None:
        return None

    async def _turn(self, request: str) -> None:
        """Let other tasks run first; wait for ``wake`` if the bookie hangs."""
        await (self.awake.wait() if request in self.hung else asyncio.sleep(0))

    def wake(self) -> None:
        """Answer the requests that hang, and hang no more."""
        self.hung.clear()
        self.awake.set()

    def answer_one(self) -> None:
        """Send the first reply that is held."""
        assert self.held
        self.held.pop(0)()

    def _has_no_news(self, ledger_id: int, above: int) -> bool:
        return self.lacs.get(ledger_id, -1) <= above and ledger_id not in self.fenced

    def _refusal(
        self, ledger_id: int, incarnation: str | None, *, recovery: bool
    ) -> FencelogError | None:
        if incarnation not in (None, self.incarnation):
            return FencelogError(ErrorCode.WRONG_INCARNATION, f"{self.bookie_id} is another")
        if ledger_id in self.fenced and not recovery:
            return FencelogError(ErrorCode.LEDGER_FENCED, f"{self.bookie_id} is fenced")
        return None

    def _fault_or_fence(self, request: str, ledger_id: int, *, fence: bool) -> None:
        error = self.fault(request)
        if error is not None:
            raise error
        if fence:
            self.fenced.add(ledger_id)
            self.news.set()

    def _learn(self, ledger_id: int, lac: int) -> None:
        self.lacs[ledger_id] = max(lac, self.lacs.get(ledger_id, -1))
        self.news.set()

    def go_down(self) -> None:
        """Stop answering from now on."""
        error = FencelogError(ErrorCode.REQUEST_TIMEOUT, f"{self.bookie_id} is down")
        self.fault = lambda request: error

    def come_back(self) -> None:
        self.fault = lambda request: None


class ScriptedLedgers:
    """The metadata of ledgers with compare-and-set; ``lose_reply`` loses the next update's answer.
    The incarnation of a version is the ledger's id."""

    def __init__(self) -> None:
        self.values: dict[int, tuple[LedgerMetadata, Version]] = {}
        self.lose_reply = False
        self.unavailable = False
        self.before_update: Callable[[], None] = lambda: None

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        await asyncio.sleep(0)
        if self.unavailable:
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "the store is away")
        return self._value(ledger_id)

    async def get_latest(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        return await self.get(ledger_id)

    async def update(self, metadata: LedgerMetadata, version: Version) -> Version:
        await asyncio.sleep(0)
        if self.unavailable:
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "the store is away")
        hook, self.before_update = self.before_update, lambda: None
        hook()
        _, present = self._value(metadata.ledger_id)
        if present != version:
            raise FencelogError(ErrorCode.METADATA_CONFLICT, f"version is {present}")
        self.values[metadata.ledger_id] = (metadata, later(version, 1))
        if self.lose_reply:
            self.lose_reply = False
            raise FencelogError(ErrorCode.METADATA_UNKNOWN, "the reply was lost")
        return later(version, 1)

    def _value(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        if ledger_id not in self.values:
            raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, f"ledger {ledger_id} is not there")
        return self.values[ledger_id]


class Cluster:
    """The bookies b1 … bN, metadata, and writers over them. Implements ``BookieDirectory``."""

    def __init__(self, size: int) -> None:
        self.bookies = {f"b{n}": ScriptedBookie(f"b{n}") for n in range(1, size + 1)}
        self.ledgers = ScriptedLedgers()
        self.placement = Placement(self, host=SystemHost())
        self.acked: list[int] = []
        self.failures: list[FencelogError] = []

    def client(self, bookie_id: str) -> ScriptedBookie:
        return self.bookies[bookie_id]

    def available(self) -> list[str]:
        return sorted(self.bookies)

    def read_only(self) -> list[str]:
        return []

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id, self.bookies[bookie_id].incarnation)

    def create(
        self,
        ledger_id: int = 1,
        *,
        ensemble: str = "b1 b2 b3",
        write_quorum: int = 3,
        qa: int = 2,
        options: WriterOptions | None = None,
    ) -> LedgerWriter:
        metadata = new_metadata(
            ledger_id,
            ensemble=tuple(ensemble.split()),
            write_quorum=write_quorum,
            ack_quorum=qa,
            token=f"token-{ledger_id}",
        )
        version = Version(ledger_id, 0)
        self.ledgers.values[ledger_id] = (metadata, version)
        return LedgerWriter(
            metadata,
            version,
            ledgers=self.ledgers,
            bookies=self,
            outbox=Outbox(self),
            placement=self.placement,
            incarnations={b: self.bookies[b].incarnation for b in ensemble.split()},
            key=b"",
            on_ack=self.acked.append,
            on_failure=self.failures.append,
            options=options or WriterOptions(explicit_lac_interval_ms=0),
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until a condition holds; a story that stalls is an error."""
        for _ in range(10_000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never happened")

    async def write(self, writer: LedgerWriter, *payloads: bytes) -> None:
        """Append and wait until all are acknowledged."""
        last = -1
        for payload in payloads:
            last = writer.append(payload)
        await self.until(lambda: writer.last_add_confirmed >= last)

    def metadata(self, ledger_id: int = 1) -> LedgerMetadata:
        return self.ledgers.values[ledger_id][0]


MakeCluster = Callable[[int], Cluster]
"""A function that makes a cluster of so many bookies."""
