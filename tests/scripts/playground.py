"""Real writers, readers and recoverers among scripted bookies: what a transcript plays with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from fencelog.ledgers.client import LedgerClient
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import Buffer, read_run_header, run_lac, verify_entries
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, decode_metadata, new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import INSTANCE_PATH
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.recovery.recovery import recover_ledger
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
from tests.scripts.playground_bookie import ModelBookie, range_text, ranges
from tests.scripts.playground_network import STORE, ScriptLoop, ScriptNetwork
from tests.support.scripted_cluster import lac_alone

T = TypeVar("T")


class ScriptedHost:
    """No chance, no clock: a choice among equals falls on the first by name."""

    def now_us(self) -> int:
        return 0

    def random_bytes(self, size: int) -> bytes:
        return bytes(size)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return list(items)

    def fraction(self) -> float:
        return 0.0


class ScriptedStore(MemoryMetadataStore):
    """A client's session with the metadata store: its requests are messages like any other."""

    def __init__(self, playground: Playground, client: str) -> None:
        super().__init__(playground.cluster)
        self._playground = playground
        self._client = client

    async def _read(self, what: str, operation: Callable[[], T]) -> T:
        result: T = await self._playground.network.send(
            (self._client, STORE), _ledger_named(what), operation
        )
        return result

    async def create(self, path: str, value: bytes, **options: bool) -> Version:
        text = f"{_ledger_named(path)} is {describe_metadata(decode_metadata(value))}"

        def carry_out() -> Version:
            created = self._cluster.create(path, value)
            self._playground.network.tell(f"zk: {text} (version {created.number})")
            return created

        created: Version = await self._playground.network.send(
            (self._client, STORE), f"{text} (if there is none)", carry_out, is_write=True
        )
        return created

    async def delete(self, path: str, version: Version) -> None:
        def carry_out() -> None:
            self._cluster.delete(path, version)
            self._playground.network.tell(f"zk: {_ledger_named(path)} is deleted")

        what = f"delete {_ledger_named(path)} (if version {version.number})"
        await self._playground.network.send((self._client, STORE), what, carry_out, is_write=True)

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        if path == INSTANCE_PATH:  # to catch up; here no server is behind
            return self._cluster.set(path, value, version)
        text = f"{_ledger_named(path)} is {describe_metadata(decode_metadata(value))}"

        def carry_out() -> Version:
            written = self._cluster.set(path, value, version)
            self._playground.network.tell(f"zk: {text} (version {written.number})")
            return written

        written: Version = await self._playground.network.send(
            (self._client, STORE), f"{text} (if version {version.number})", carry_out, is_write=True
        )
        return written


class ScriptedBookie(SingleAdds):
    """A bookie as one client reaches it. Implements ``BookieClient``."""

    def __init__(self, playground: Playground, client: str, bookie_id: str) -> None:
        self.bookie_id = bookie_id
        self._network = playground.network
        self._route = (client, bookie_id)
        self._model = playground.bookies[bookie_id]

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        header = read_run_header(run)
        entries = range_text(header.first_entry_id, header.last_entry_id)
        kind = "recovery add" if recovery else "add"
        text = f"{kind} {entries} (lac {run_lac(run, header)})"
        self._send_write(
            text, lambda: self._up().add(run, recovery=recovery, incarnation=incarnation), on_reply
        )

    def write_lacs(
        self,
        lacs: Sequence[LedgerLac],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        for (ledger_id, lac), token in zip(lacs, tokens, strict=True):
            self._send_write(
                f"write lac {lac}",
                partial(self._write_lac, ledger_id, lac, incarnation),
                partial(on_replies, (token,)),
            )

    def _write_lac(self, ledger_id: int, lac: int, incarnation: str | None) -> None:
        self._up().write_lac(ledger_id, lac, incarnation=incarnation)

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        reply: ReadReply = await self._network.send(
            self._route,
            f"{'fencing ' if fence else ''}read {first_entry_id}",
            lambda: self._up().read(
                ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes, fence=fence
            ),
            describe=_describe_reply,
        )
        return reply

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> Sequence[Buffer]:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, "no story asks for ranges")

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        text = f"{'fencing ' if fence else ''}read lac" + (f" above {above}" if wait_ms else "")
        reply: int = await self._network.send(
            self._route,
            text,
            lambda: self._up().read_lac(ledger_id, fence=fence, above=above, wait_ms=wait_ms),
            describe=lambda lac: f"lac {lac}",
        )
        return reply

    def fence_and_read(self, ledger_id: int, above: int) -> asyncio.Future[FenceAnswer]:
        """The stories tell of LAC reads and reads one by one, as their sources do."""
        return lac_alone(self, ledger_id)

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, "no story asks for a list of entries")

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, "no story has an operator")

    async def close(self) -> None:
        return None

    def _send_write(self, text: str, ask: Callable[[], None], on_reply: AddCallback) -> None:
        def report(reply: asyncio.Future[None]) -> None:
            error = reply.exception()
            on_reply(error if isinstance(error, FencelogError) else None)

        self._network.send(self._route, text, ask, is_write=True).add_done_callback(report)

    def _up(self) -> ModelBookie:
        if self._model.is_down:
            raise FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, f"{self.bookie_id} is down")
        return self._model


@dataclass
class Client:
    """One process. Implements ``BookieDirectory`` for itself."""

    playground: Playground
    name: str
    writer: LedgerWriter | None = None
    readers: dict[int, LedgerReader] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = ScriptedStore(self.playground, self.name)
        self.ledgers = LedgerStore(self.store)
        self.placement = Placement(self, host=ScriptedHost())
        self._bookies = {
            bookie: ScriptedBookie(self.playground, self.name, bookie)
            for bookie in self.playground.bookies
        }

    # -- BookieDirectory -------------------------------------------------------------------------

    def client(self, bookie_id: str) -> ScriptedBookie:
        return self._bookies[bookie_id]

    def available(self) -> list[str]:
        return sorted(b.bookie_id for b in self.playground.bookies.values() if not b.is_down)

    def read_only(self) -> list[str]:
        return []

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id, self.playground.bookies[bookie_id].incarnation)

    # -- what it does ----------------------------------------------------------------------------

    def tell(self, event: str) -> None:
        self.playground.network.tell(f"{self.name}: {event}")

    def start(self, what: str, work: Coroutine[Any, Any, str]) -> None:
        """Do something that ends later, and tell how."""

        async def report() -> None:
            try:
                self.tell(await work)
            except FencelogError as error:
                self.tell(f"{what} failed: {describe_error(error)}")

        self.tasks.append(self.playground.network.loop.create_task(report()))

    async def create(
        self, ledger_id: int, ensemble: tuple[str, ...], *, qw: int, qa: int, options: WriterOptions
    ) -> None:
        metadata = new_metadata(
            ledger_id,
            ensemble=ensemble,
            write_quorum=qw,
            ack_quorum=qa,
            token=f"{self.name} created it",
        )
        self.writer = LedgerWriter(
            metadata,
            await self.ledgers.create(metadata),
            ledgers=self.ledgers,
            bookies=self,
            outbox=Outbox(self),
            placement=self.placement,
            incarnations={bookie: self.describe(bookie).incarnation for bookie in ensemble},
            key=b"",
            on_ack=lambda lac: self._acknowledged(ledger_id, lac),
            on_failure=lambda error: self.tell(f"the writer is finished: {describe_error(error)}"),
            options=options,
        )

    def _acknowledged(self, ledger_id: int, lac: int) -> None:
        self.playground.acknowledged[ledger_id] = lac
        self.tell(f"acknowledged up to {lac}")

    def append(self, payloads: Sequence[str]) -> None:
        writer = self.writing()
        for payload in payloads:
            try:
                entry_id = writer.append(payload.encode())
            except FencelogError as error:
                self.tell(f"cannot append {payload}: {error.code.slug}")
            else:
                self.playground.appended[writer.ledger_id, entry_id] = payload

    def writing(self) -> LedgerWriter:
        if self.writer is None:
            raise ValueError(f"{self.name} writes no ledger")
        return self.writer

    async def close(self) -> str:
        return f"closed its ledger at {(await self.writing().close()).last_entry_id}"

    async def recover(self, ledger_id: int) -> str:
        closed = await recover_ledger(
            ledger_id, ledgers=self.ledgers, bookies=self, placement=self.placement
        )
        return f"recovered L{ledger_id}: {describe_metadata(closed)}"

    async def open(self, ledger_id: int) -> str:
        metadata, _ = await self.ledgers.get(ledger_id)
        self.readers[ledger_id] = LedgerReader(metadata, bookies=self, source=self.ledgers)
        return f"opened L{ledger_id}: {describe_metadata(metadata)}"

    async def read(self, ledger_id: int, first: int, last: int) -> str:
        entries = await self.readers[ledger_id].read(first, last)
        return "read " + " ".join(bytes(entry.payload).decode() for entry in entries)

    async def read_lac(self, ledger_id: int) -> str:
        return f"may read up to {await self.readers[ledger_id].read_lac()}"

    async def wait_lac(self, ledger_id: int, above: int, seconds: int) -> str:
        lac = await self.readers[ledger_id].wait_lac(above, 1000 * seconds)
        return f"waited, and may read up to {lac}"

    async def delete(self, ledger_id: int) -> str:
        client = LedgerClient(self.store, self, host=ScriptedHost())
        await client.delete(ledger_id)
        return f"deleted L{ledger_id}"

    async def die(self) -> None:
        """End this process; what it sent is still in flight."""
        for task in self.tasks:
            task.cancel()
        if self.writer is not None:
            await self.writer.abandon()
        for reader in self.readers.values():
            await reader.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@dataclass
class Playground:
    """The cluster of one story."""

    network: ScriptNetwork
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    bookies: dict[str, ModelBookie] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)
    appended: dict[tuple[int, int], str] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)

    @classmethod
    def make(cls, loop: ScriptLoop) -> Playground:
        return cls(ScriptNetwork(loop))

    def add_bookies(self, names: Sequence[str]) -> None:
        self.bookies |= {name: ModelBookie(name) for name in names}

    def client(self, name: str) -> Client:
        if name not in self.clients:
            self.clients[name] = Client(self, name)
        return self.clients[name]

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        node = self.cluster.get(f"/ledgers/{ledger_id >> 16:x}/{ledger_id & 0xFFFF:04x}")
        return decode_metadata(node.value)

    def ledgers(self) -> list[LedgerMetadata]:
        numbers = self.cluster.children("/ledgers/0") if self.clients else []
        return [self.metadata(int(number, 16)) for number in numbers]

    def judgement(self, ledger_id: int) -> str:
        """Tell whether every acknowledged entry can still be read."""
        metadata = self.metadata(ledger_id)
        if (last := self.acknowledged.get(ledger_id, -1)) == -1:
            return "nothing was acknowledged"
        end = metadata.last_entry_id if metadata.is_closed else last
        lost = [n for n in range(last + 1) if n > end or not self._is_held(metadata, n)]
        if lost:
            return f"acknowledged up to {last}, LOST: {ranges(lost)}"
        return f"acknowledged up to {last}, and all of it is there"

    def _is_held(self, metadata: LedgerMetadata, entry_id: int) -> bool:
        payload = self.appended[metadata.ledger_id, entry_id].encode()
        return any(
            payload == self._payload(bookie, metadata.ledger_id, entry_id)
            for bookie in metadata.fragment_of(entry_id).bookies
        )

    def _payload(self, bookie_id: str, ledger_id: int, entry_id: int) -> bytes | None:
        ledger = self.bookies[bookie_id].ledgers.get(ledger_id)
        run = ledger.entries.get(entry_id) if ledger else None
        try:
            return bytes(verify_entries(run)[0].payload) if run else None
        except FencelogError:
            return None

    async def end(self) -> None:
        """Leave nothing running behind the story."""
        for client in self.clients.values():
            await client.die()
        await self.network.end()


def describe_metadata(metadata: LedgerMetadata) -> str:
    state = metadata.state.value.replace("_", " ")
    if metadata.is_closed:
        state += f" at {metadata.last_entry_id} ({metadata.length} bytes)"
    fragments = (f"[{f.first_entry_id}: {' '.join(f.bookies)}]" for f in metadata.fragments)
    return f"{state} {' '.join(fragments)}"


def describe_error(error: FencelogError) -> str:
    missing = error.extra.get("missing_bookies") or error.extra.get("bookies")
    return error.code.slug + (f" ({' '.join(missing)})" if missing else "")


def _describe_reply(reply: ReadReply) -> str:
    header = read_run_header(reply.run)
    text = f"{range_text(header.first_entry_id, header.last_entry_id)} (lac {reply.lac})"
    try:
        verify_entries(reply.run)
    except FencelogError:
        return f"{text}, damaged"
    return text


def _ledger_named(what: str) -> str:
    """``get /ledgers/0/0001`` as ``get L1``."""
    verb, _, path = what.rpartition(" ")
    number = int(path.rpartition("/")[2], 16)
    return f"{verb} L{number}".strip()
