"""The nodes of the metadata store as tests handle them: in a test no other process is faster."""

from __future__ import annotations

from fencelog.ledgers.metastore.memory import MemoryCluster
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned


async def remove(store: MetadataStore, path: str) -> None:
    """Delete a node in its current version."""
    await store.delete(path, (await store.get(path)).version)


async def overwrite(store: MetadataStore, path: str, value: bytes) -> Version:
    """Set a node in its current version; returns the new version."""
    return await store.set(path, value, (await store.get(path)).version)


def remove_now(cluster: MemoryCluster, path: str) -> None:
    """Do as ``remove`` does, for a tree in memory."""
    cluster.delete(path, cluster.get(path).version)


def overwrite_now(cluster: MemoryCluster, path: str, value: bytes) -> Version:
    """Do as ``overwrite`` does, for a tree in memory."""
    return cluster.set(path, value, cluster.get(path).version)


def later(version: Version, count: int) -> Version:
    """Return the version of the same node after ``count`` changes, of which a store may know
    nothing."""
    return Version(version.incarnation, version.number + count)


def plain(node: Versioned | None) -> tuple[bytes, int, int] | None:
    """Return value, number of changes and owner: everything of a node except its incarnation."""
    return None if node is None else (node.value, node.version.number, node.ephemeral_owner)
