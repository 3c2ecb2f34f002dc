"""The table of bookies: who is there, and which connection is kept for how long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, cast

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability, Range
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import Buffer, Run
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies, bookie_registration
from fencelog.ledgers.rpc.bookie_port import (
    NO_LAC,
    AddCallback,
    AddsCallback,
    AddToken,
    BookieInfo,
    FenceAnswer,
    LedgerLac,
    ReadReply,
)
from tests.support.metadata_nodes import overwrite_now, remove_now
from tests.support.scripted_cluster import lac_alone
from tests.support.until import until


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
async def store(cluster: MemoryCluster) -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore(cluster)
    await store.start()
    yield store
    await store.close()


async def quiet() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


class FakeClient:
    incarnation = "0"

    def __init__(self, address: str, bookie_id: str) -> None:
        self.address = address
        self.bookie_id = bookie_id
        self.closed = False

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        asyncio.get_running_loop().call_soon(on_reply, None)

    def add_many(
        self,
        runs: Sequence[Run],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        asyncio.get_running_loop().call_soon(on_replies, tokens, None)

    def write_lacs(
        self,
        lacs: Sequence[LedgerLac],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        asyncio.get_running_loop().call_soon(on_replies, tokens, None)

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        return ReadReply(-1, b"")

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> Sequence[Buffer]:
        return []

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        return -1

    def fence_and_read(self, ledger_id: int, above: int) -> asyncio.Future[FenceAnswer]:
        return lac_alone(self, ledger_id)

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        return EntryList(Availability())

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return dict(request)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True


def register(cluster: MemoryCluster, bookie_id: str, address: str, incarnation: str = "0") -> None:
    value = json.dumps({"address": address, "incarnation": incarnation, "started_us": 1})
    cluster.create(f"/bookies/{bookie_id}", value.encode())


@pytest.fixture
async def bookies(store: MemoryMetadataStore) -> AsyncIterator[RegisteredBookies]:
    bookies = RegisteredBookies(store, connect=FakeClient)
    await bookies.start()
    yield bookies
    await bookies.close()


def client_of(bookies: RegisteredBookies, bookie_id: str) -> FakeClient:
    client = bookies.client(bookie_id)
    assert isinstance(client, FakeClient)
    return client


async def test_a_bookie_is_connected_once_at_its_address(
    cluster: MemoryCluster, bookies: RegisteredBookies
) -> None:
    register(cluster, "b2", "10.0.0.2:3181")
    register(cluster, "b1", "10.0.0.1:3181")
    await until(lambda: bookies.available() == ["b1", "b2"])
    client = client_of(bookies, "b1")
    assert (client.address, client.bookie_id) == ("10.0.0.1:3181", "b1")
    assert bookies.client("b1") is client
    assert bookies.addresses() == {"b1": "10.0.0.1:3181", "b2": "10.0.0.2:3181"}


async def test_a_client_outlives_its_registration_but_not_its_address(
    cluster: MemoryCluster, bookies: RegisteredBookies
) -> None:
    register(cluster, "b1", "10.0.0.1:3181")
    await until(lambda: bookies.available() == ["b1"])
    client = client_of(bookies, "b1")
    remove_now(cluster, "/bookies/b1")
    await until(lambda: bookies.available() == [])
    assert bookies.client("b1") is client
    register(cluster, "b1", "10.0.0.1:3181")
    await until(lambda: bookies.available() == ["b1"])
    assert bookies.client("b1") is client
    assert not client.closed
    remove_now(cluster, "/bookies/b1")
    register(cluster, "b1", "10.0.0.9:3181")
    await until(lambda: client.closed)
    assert client_of(bookies, "b1").address == "10.0.0.9:3181"


async def test_a_client_does_not_outlive_the_incarnation_it_was_made_for(
    cluster: MemoryCluster, bookies: RegisteredBookies
) -> None:
    """Its connection may be half-open: nothing but a new one reaches the new process."""
    register(cluster, "b1", "10.0.0.1:3181", "first")
    await until(lambda: bookies.available() == ["b1"])
    client = client_of(bookies, "b1")
    remove_now(cluster, "/bookies/b1")
    register(cluster, "b1", "10.0.0.1:3181", "second")
    await until(lambda: client.closed)
    assert client_of(bookies, "b1") is not client
    assert client_of(bookies, "b1").address == "10.0.0.1:3181"
    assert bookies.describe("b1").incarnation == "second"


async def test_what_a_bookie_says_of_itself(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    full = BookieInfo("b1", "7", "rack-2", 1 << 40, is_read_only=True, is_full=True, started_us=5)
    cluster.create("/bookies/b1", bookie_registration("10.0.0.1:1", full))
    register(cluster, "b2", "10.0.0.2:1")
    bookies = RegisteredBookies(store, connect=FakeClient)
    await bookies.start()
    assert bookies.describe("b1") == full
    assert bookies.describe("b2") == BookieInfo("b2", "0", started_us=1)
    assert bookies.describe("nobody") == BookieInfo("nobody")
    assert bookies.available() == ["b2"]  # b1 takes no regular adds
    assert bookies.read_only() == ["b1"]
    await bookies.close()


async def test_a_local_bookie_is_asked_for_its_incarnation_only(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    """All else stands in its registration, also that it takes no more adds."""
    full = BookieInfo("b1", "7", "rack-2", 1 << 40, is_read_only=True)
    cluster.create("/bookies/b1", bookie_registration("10.0.0.1:1", full))
    local = {"b1": FakeClient("local", "b1")}
    bookies = RegisteredBookies(store, connect=FakeClient, local=local)
    await bookies.start()
    assert bookies.describe("b1") == BookieInfo("b1", "0", "rack-2", 1 << 40, is_read_only=True)
    assert bookies.available() == []
    await bookies.close()


async def test_a_bookie_nobody_knows_refuses_everything(bookies: RegisteredBookies) -> None:
    client = bookies.client("nobody")
    assert client.bookie_id == "nobody"
    replies: list[FencelogError | None] = []
    client.add(b"", recovery=False, incarnation=None, on_reply=replies.append)
    assert replies == []
    await quiet()
    token = cast("AddToken", 1)
    client.write_lacs(
        [(1, 0)], [token], incarnation=None, on_replies=lambda _, error: replies.append(error)
    )
    client.add_many(
        [], [token], incarnation=None, on_replies=lambda _, error: replies.append(error)
    )
    await quiet()
    assert [reply and reply.code for reply in replies] == [ErrorCode.BOOKIE_UNAVAILABLE] * 3
    requests: list[Awaitable[object]] = [
        client.read(1, 0, max_entries=1, max_bytes=1),
        client.read_lac(1),
        client.read_ranges(1, [(0, 0)], max_bytes=1),
        client.fence_and_read(1, 0),
        client.list_entries(1),
        client.admin({"do": "status"}),
    ]
    for request in requests:
        with pytest.raises(FencelogError, match="nobody") as caught:
            await request
        assert caught.value.code is ErrorCode.BOOKIE_UNAVAILABLE
    await client.close()


async def test_local_bookies_win_and_belong_to_their_owner(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    register(cluster, "b1", "10.0.0.1:3181")
    local = {"b1": FakeClient("local", "b1"), "b0": FakeClient("local", "b0")}
    bookies = RegisteredBookies(store, connect=FakeClient, local=local)
    await bookies.start()
    assert bookies.client("b1") is local["b1"]
    assert bookies.available() == ["b0", "b1"]
    await bookies.close()
    assert not local["b1"].closed


async def test_closing_closes_what_was_connected(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    register(cluster, "b1", "10.0.0.1:3181")
    bookies = RegisteredBookies(store, connect=FakeClient)
    await bookies.start()
    client = client_of(bookies, "b1")
    await bookies.close()
    assert client.closed


async def test_nothing_is_connected_while_it_closes_and_afterwards(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    """A writer that is closed may have an explicit LAC left, which leaves in the next turn."""
    register(cluster, "b1", "10.0.0.1:3181")
    connected = list[str]()

    def connect(address: str, bookie_id: str) -> FakeClient:
        connected.append(bookie_id)
        return FakeClient(address, bookie_id)

    bookies = RegisteredBookies(store, connect=connect)
    await bookies.start()
    bookies.client("b1")
    closing = asyncio.create_task(bookies.close())
    await asyncio.sleep(0)
    refusals = list[FencelogError | None]()
    for _ in range(2):
        bookies.client("b1").write_lacs(
            [(1, 0)], [], incarnation="0", on_replies=lambda _, error: refusals.append(error)
        )
        await closing
    await asyncio.sleep(0)
    assert connected == ["b1"]
    codes = [error.code for error in refusals if error is not None]
    assert codes == [ErrorCode.BOOKIE_UNAVAILABLE] * 2


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"\xff", b"null"])
async def test_a_registration_that_is_no_json_is_left_out(
    cluster: MemoryCluster,
    bookies: RegisteredBookies,
    value: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster.create("/bookies/bad", value)
    register(cluster, "good", "10.0.0.1:3181")
    await until(lambda: bookies.available() == ["good"])
    await until(lambda: "/bookies/bad is not valid" in caplog.text)
    register(cluster, "other", "10.0.0.2:3181")
    await until(lambda: bookies.available() == ["good", "other"])
    assert caplog.text.count("/bookies/bad is not valid") == 1
    with pytest.raises(FencelogError, match="bad"):
        await bookies.client("bad").read_lac(1)


async def test_a_bookie_whose_registration_turns_invalid_is_left_out(
    cluster: MemoryCluster, bookies: RegisteredBookies
) -> None:
    register(cluster, "b1", "10.0.0.1:3181")
    await until(lambda: bookies.available() == ["b1"])
    client = client_of(bookies, "b1")
    overwrite_now(cluster, "/bookies/b1", b"{}")
    await until(lambda: bookies.available() == [])
    assert bookies.addresses() == {}
    await until(lambda: client.closed)
    with pytest.raises(FencelogError, match="b1 is not registered"):
        await bookies.client("b1").read_lac(1)
