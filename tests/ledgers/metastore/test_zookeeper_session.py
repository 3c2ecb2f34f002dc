"""A ZooKeeper session over servers that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from struct import pack
from typing import TypeVar

import pytest

from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore import zookeeper_session
from fencelog.ledgers.metastore.zookeeper_session import ZooKeeperSession

T = TypeVar("T")

LONG_TIMEOUT_MS = 60_000
CONNECTED = pack(">iiiqi", 37, 0, LONG_TIMEOUT_MS, 5, 16) + bytes(16) + b"\0"


class HostOfOneOrder(SystemHost):
    """A host that leaves the servers in the order given."""

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return list(items)


@asynccontextmanager
async def server(hello: bytes) -> AsyncIterator[str]:
    """Run a server that greets every client and says no more; yield its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hello)
        try:
            while await reader.read(4096):
                pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def session_at(*hosts: str) -> ZooKeeperSession:
    return ZooKeeperSession(
        hosts,
        host=HostOfOneOrder(),
        timeout_ms=LONG_TIMEOUT_MS,
        on_state=lambda state: None,
        on_event=lambda path: None,
    )


async def test_a_silent_server_does_not_use_up_the_time_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 2_000)
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    async with server(b"") as silent, server(CONNECTED) as well:
        session = session_at(silent, well)
        await session.start()
        assert session.session_id == 5
        await session.close()


async def test_a_name_that_no_resolver_takes_leaves_the_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 2_000)
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    async with server(CONNECTED) as well:
        session = session_at("zk..1:2181", well)
        await session.start()
        assert session.session_id == 5
        await session.close()
