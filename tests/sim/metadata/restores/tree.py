"""The metadata tree as a backup has it, and its return.

A backup is a snapshot of a ZooKeeper server: every node of one moment, with its version and, where
it is ephemeral, its session. A server that starts with it takes these sessions for alive until
their time is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencelog.ledgers.metastore.memory import MemoryCluster, _Node
from tests.sim.engine.engine import Engine
from tests.sim.metadata.server import MetadataServer


@dataclass(frozen=True, slots=True)
class Backup:
    """All nodes of one moment, by path."""

    nodes: dict[str, _Node]
    last_incarnation: int

    def value(self, path: str) -> bytes | None:
        """Return the value of a node; None: there is none."""
        node = self.nodes.get(path)
        return None if node is None else node.value


def back_up(tree: MemoryCluster) -> Backup:
    return Backup(_copied(tree._nodes), tree._last_incarnation)


def restore(
    engine: Engine, tree: MemoryCluster, backup: Backup, *, session_timeout_s: float
) -> None:
    """Make the tree what it was. No session may be there. Those that watch changes are not told:
    this is none of the cluster's; only servers that are late show the former tree for a while."""
    server = MetadataServer.of(engine, tree)
    for session in list(server._sessions.values()):
        server.end(session)
    before, tree._nodes = tree._nodes, _copied(backup.nodes)
    tree._last_incarnation = backup.last_incarnation
    tree.transactions += 1
    for path in sorted(before.keys() | tree._nodes.keys()):
        if before.get(path) != tree._nodes.get(path):
            server.history._changed(path)
    for owner in sorted({node.owner for node in tree._nodes.values()} - {0}):
        engine.loop.call_later(session_timeout_s, tree.end_session, owner)


def _copied(nodes: dict[str, _Node]) -> dict[str, _Node]:
    return {path: replace(node, children=set(node.children)) for path, node in nodes.items()}
