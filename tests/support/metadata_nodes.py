"""Nodes of the metadata store as tests handle them: in a test nobody else is faster."""

from __future__ import annotations

from fencelog.ledgers.metastore.memory import MemoryCluster
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned


async def remove(store: MetadataStore, path: str) -> None:
    """Delete a node in the version that it has now."""
    await store.delete(path, (await store.get(path)).version)


async def overwrite(store: MetadataStore, path: str, value: bytes) -> Version:
    """Set a node in the version that it has now; returns the new version."""
    return await store.set(path, value, (await store.get(path)).version)


def remove_now(cluster: MemoryCluster, path: str) -> None:
    """``remove`` for a tree in memory."""
    cluster.delete(path, cluster.get(path).version)


def overwrite_now(cluster: MemoryCluster, path: str, value: bytes) -> Version:
    """``overwrite`` for a tree in memory."""
    return cluster.set(path, value, cluster.get(path).version)


def later(version: Version, count: int) -> Version:
    """The version of the same node after ``count`` changes, of which a store may know nothing."""
    return Version(version.incarnation, version.number + count)


def plain(node: Versioned | None) -> tuple[bytes, int, int] | None:
    """Value, number of changes and owner: all of a node but which creation of it this is."""
    return None if node is None else (node.value, node.version.number, node.ephemeral_owner)
