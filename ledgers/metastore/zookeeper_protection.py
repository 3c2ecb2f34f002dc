"""The access lists of nodes that are there already: all of a cluster's are set, while it runs.

A node's children are read after its own list has been set: what strangers create before is among
them, and later they create nothing. What the users of the list create has it from the beginning.
So one pass is enough; one that was interrupted is repeated from the start, which costs reads alone.

Guards (see ``zookeeper_incarnations``) are found by the nodes that name them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from fencelog.ledgers.metastore import zookeeper_wire as wire
from fencelog.ledgers.metastore.until_known import until_known
from fencelog.ledgers.metastore.zookeeper_incarnations import GUARDS_PATH, guard_named_by
from fencelog.ledgers.metastore.zookeeper_session import ZooKeeperSession
from fencelog.ledgers.metastore.zookeeper_wire import NoNodeError

NODES_AT_ONCE = 64
"""The nodes whose lists are read and set at the same time: enough for the server to sync many
changes at once, few beside the requests of a cluster at work."""


@dataclass(frozen=True, slots=True)
class SetAccess:
    """The number of all nodes, and of those whose list was another one."""

    nodes: int
    changed: int


async def set_access_of_all(session: ZooKeeperSession, root: str, access: bytes) -> SetAccess:
    """Give the root, and all nodes below it, an access list; other nodes stay as they are. Raises
    FencelogError: METADATA_UNAUTHORIZED for a node of others, or as the session does."""
    walk = _Walk(session, root, access)
    await walk.begin()
    pending = [root]
    while pending:
        batch, pending = pending[-NODES_AT_ONCE:], pending[:-NODES_AT_ONCE]
        visits = [walk.visit(node) for node in batch]
        for children in await asyncio.gather(*visits, return_exceptions=True):
            if isinstance(children, BaseException):
                raise children
            pending += children
    return SetAccess(walk.nodes, walk.changed)


class _Walk:
    def __init__(self, session: ZooKeeperSession, root: str, access: bytes) -> None:
        self._session = session
        self._root = root
        self._access = access
        self._wanted: frozenset[tuple[int, str, str]] = frozenset()
        self.nodes = 0
        self.changed = 0

    async def begin(self) -> None:
        """Set the list of the root, and read what the server has made of it: with that the other
        lists are compared."""
        root = self._root
        before = await self._session.read(f"protect {root}", wire.get_access(root))
        await self._set(root)
        self._wanted = await self._session.read(f"protect {root}", wire.get_access(root))
        self.changed += self._wanted != before

    async def visit(self, node: str) -> list[str]:
        """Set the list of a node, and of its guard; return its children that are to be visited."""
        what = f"protect {node}"
        try:
            await self._give(node)
            data, _ = await self._session.read(what, wire.get(node))
            if (guard := guard_named_by(self._root, data)) is not None:
                with suppress(NoNodeError):
                    await self._give(guard)
            if node == self._root + GUARDS_PATH:
                return []
            names: list[str] = await self._session.read(what, wire.get_children(node))
        except NoNodeError:  # It was deleted; one that is created in its place has the list.
            return []
        return [f"{node}/{name}" for name in names]

    async def _give(self, node: str) -> None:
        found = await self._session.read(f"protect {node}", wire.get_access(node))
        if found != self._wanted:
            await self._set(node)
            self.changed += 1
        self.nodes += 1

    async def _set(self, node: str) -> None:
        request = wire.set_access(node, self._access)
        await until_known(lambda: self._session.write(f"protect {node}", request))
