"""The bookies that a task knows. Executors have no access to the metadata store: a task that reads
received them at planning, and learns from a broker of those that have come back at another address
since then (``ledger_source``); one that writes learns of them with each of its ledgers."""

from __future__ import annotations

from collections.abc import Mapping

from fencelog.api.client.tasks import task_group
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import BookieClient, BookieInfo
from fencelog.ledgers.rpc.local_reads import LocalReadsClient
from fencelog.spark_connector.read.local_files import LocalFiles


class BookieTable:
    """A table of addresses (``host:port``), which stay until ``move``. Implements
    ``BookieDirectory``."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        *,
        credentials: Credentials | None = None,
        files: LocalFiles | None = None,
    ) -> None:
        """Create a table. ``files``: where entries of bookies of this machine are read, and closed
        with the table; None: all come through sockets."""
        self._files = files
        self._addresses = dict(addresses)
        self._credentials = credentials
        self._clients: dict[str, BookieClient] = {}

    def client(self, bookie_id: str) -> BookieClient:
        client = self._clients.get(bookie_id)
        if client is None:
            address = self._addresses.get(bookie_id)
            if address is None:
                return AbsentBookie(bookie_id, "was not registered when the query was planned")
            client = self._clients[bookie_id] = self._connect(bookie_id, address)
        return client

    def _connect(self, bookie_id: str, address: str) -> BookieClient:
        if self._files is None:
            return TcpBookieClient(bookie_id, address, credentials=self._credentials)
        return LocalReadsClient(bookie_id, address, self._files, credentials=self._credentials)

    async def move(self, addresses: Mapping[str, str]) -> bool:
        """Use these addresses of the bookies that are among them; tell whether one is new. The
        connections to former ones are closed."""
        moved = {
            bookie_id: address
            for bookie_id, address in addresses.items()
            if self._addresses.get(bookie_id) != address
        }
        self._addresses |= moved
        for client in [self._clients.pop(id_) for id_ in moved if id_ in self._clients]:
            await client.close()
        return bool(moved)

    def available(self) -> list[str]:
        return sorted(self._addresses)

    def read_only(self) -> list[str]:
        return []

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id)  # a task only reads

    async def close(self) -> None:
        """Close every connection, and what was opened for local reads."""
        if self._files is not None:
            self._files.close()
        async with task_group() as group:
            for client in self._clients.values():
                group.start_soon(client.close)
