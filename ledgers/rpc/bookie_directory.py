"""The registered bookies, as a ``BookieDirectory``: their addresses and their descriptions."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.registration import BOOKIES_PATH, ChildrenValues
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.bookie_port import DEFAULT_RACK, BookieClient, BookieInfo

_log = logging.getLogger(__name__)

_Process = tuple[str | None, str]
"""The address and incarnation that a bookie registered last."""


class EmbeddedBookie(BookieClient, Protocol):
    """The client of a bookie in this process, which knows it without its registration."""

    @property
    def incarnation(self) -> str: ...


class RegisteredBookies:
    """The bookies by their registrations. Implements ``BookieDirectory``.

    ``local`` clients win over registered addresses (bookies embedded in this process); the mapping
    may change while it is in use. Other bookies are connected at first use through
    ``connect(address, bookie_id)``. A client is closed when its bookie comes back at another
    address or as another incarnation, not when its registration disappears: after an outage of the
    metadata store every session may expire at once while all bookies are well, and then their
    connections have to survive.

    Another incarnation at the same address is another process. A connection to the previous one
    breaks by itself if that process merely died. If its machine lost power, the connection stays
    silent, and because regular adds to the new incarnation are never sent on it, nothing would
    detect that.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        connect: Callable[[str, str], BookieClient],
        local: Mapping[str, EmbeddedBookie] | None = None,
    ) -> None:
        self._connect = connect
        self._local = {} if local is None else local
        self._registered = ChildrenValues(store, BOOKIES_PATH, on_change=self._on_change)
        self._addresses: dict[str, str] = {}
        self._infos: dict[str, BookieInfo] = {}
        self._parsed: dict[str, bytes] = {}
        """The value of each bookie's last registration; an invalid one is reported once."""
        self._clients: dict[str, tuple[_Process, BookieClient]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def start(self) -> None:
        """Return when the table is complete. Raises FencelogError(METADATA_UNAVAILABLE)."""
        await self._registered.start()

    async def close(self) -> None:
        """Close all clients that were connected here (local ones belong to their owner). None is
        connected any more: what a writer still has to say, such as its last explicit LAC, is
        refused unsent."""
        self._is_closed = True
        self._registered.close()
        for bookie_id in list(self._clients):
            self._drop(bookie_id)
        while self._closing:
            await asyncio.wait(self._closing)

    def client(self, bookie_id: str) -> BookieClient:
        if (local := self._local.get(bookie_id)) is not None:
            return local
        if bookie_id in self._clients:
            return self._clients[bookie_id][1]
        if self._is_closed:
            return AbsentBookie(bookie_id, "is not asked any more: the client was closed")
        address = self._addresses.get(bookie_id)
        if address is None:
            return AbsentBookie(bookie_id)
        client = self._connect(address, bookie_id)
        self._clients[bookie_id] = (self._process(bookie_id), client)
        return client

    def available(self) -> list[str]:
        return sorted(b for b in self._known() if not self.describe(b).is_read_only)

    def read_only(self) -> list[str]:
        return sorted(b for b in self._known() if self.describe(b).is_read_only)

    def _known(self) -> set[str]:
        return self._local.keys() | (self._registered.values.keys() & self._infos.keys())

    def describe(self, bookie_id: str) -> BookieInfo:
        info = self._infos.get(bookie_id) or BookieInfo(bookie_id)
        if (local := self._local.get(bookie_id)) is not None:
            return replace(info, incarnation=local.incarnation)
        return info

    def addresses(self) -> dict[str, str]:
        """Return the last known address of every bookie, ``host:port`` by id."""
        return dict(self._addresses)

    def _on_change(self) -> None:
        for bookie_id, value in self._registered.values.items():
            if self._parsed.get(bookie_id) == value:
                continue
            self._parsed[bookie_id] = value
            try:
                self._addresses[bookie_id], self._infos[bookie_id] = parse_registration(
                    bookie_id, value
                )
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("%s/%s is not valid: %s", BOOKIES_PATH, bookie_id, error)
                self._addresses.pop(bookie_id, None)
                self._infos.pop(bookie_id, None)
        for bookie_id, (process, _) in list(self._clients.items()):
            if self._process(bookie_id) != process:
                self._drop(bookie_id)

    def _process(self, bookie_id: str) -> _Process:
        return self._addresses.get(bookie_id), self.describe(bookie_id).incarnation

    def _drop(self, bookie_id: str) -> None:
        _, client = self._clients.pop(bookie_id)
        task = asyncio.get_running_loop().create_task(_close(client))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def bookie_registration(address: str, info: BookieInfo) -> bytes:
    """Return the value of a bookie's node: a JSON object."""
    fields = {
        "address": address,
        "incarnation": info.incarnation,
        "rack": info.rack,
        "free_bytes": info.free_bytes,
        "total_bytes": info.total_bytes,
        "read_only": info.is_read_only,
        "full": info.is_full,
        "started_us": info.started_us,
    }
    return json.dumps(fields).encode()


def parse_registration(bookie_id: str, value: bytes) -> tuple[str, BookieInfo]:
    """Return the address and the description of a node's value. Raises ValueError, KeyError,
    TypeError."""
    fields = json.loads(value)
    info = BookieInfo(
        bookie_id,
        str(fields["incarnation"]),
        str(fields.get("rack", DEFAULT_RACK)),
        int(fields.get("free_bytes", 0)),
        bool(fields.get("read_only", False)),
        bool(fields.get("full", False)),
        int(fields.get("total_bytes", 0)),
        int(fields.get("started_us", 0)),
    )
    return str(fields["address"]), info


async def _close(client: BookieClient) -> None:
    await client.close()
