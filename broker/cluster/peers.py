"""The requests of a broker to another one. ``fencelog.api.routing.peers`` sends them over HTTP; a
simulator, or a test, answers in its place."""

from __future__ import annotations

from typing import Protocol

from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError


class Peers(Protocol):
    """The other brokers, by the URLs that they have registered."""

    async def open(self, url: str, topic: TopicName, partition: int) -> None:
        """Make the broker at ``url`` own the partition; it serves on return.

        Raises FencelogError, whatever the outcome: the caller reads the owner's node.
        """


class NoPeers:
    """The peers of a broker that is alone."""

    async def open(self, url: str, topic: TopicName, partition: int) -> None:
        """Refuse to open. Raises NO_OWNER."""
        raise FencelogError(ErrorCode.NO_OWNER, f"the broker at {url} cannot be asked")
