"""The MetadataStore port: a small tree of versioned values with compare-and-set.

ZooKeeper's model, cut down to what the protocol needs. Implementations: ``metadata_memory`` (tests,
simulator), ``metadata_sqlite`` (durable, one process), ``metadata_zookeeper`` (a cluster). One
conformance suite (``tests/conformance``) runs against all three.

Paths are absolute, ``/a/b/c``; segments are ``[A-Za-z0-9._-]+``. Versions start at 0 and grow by
one a ``set``; a node that was deleted and created again starts at 0. ``create`` makes missing
parents (with empty values). Values are at most MAX_METADATA_BYTES.

Errors, always FencelogError:

* METADATA_EXISTS, METADATA_NOT_FOUND, METADATA_CONFLICT (version differs, or ``delete`` of a node
  with children): definite, nothing happened;
* METADATA_UNAVAILABLE: the store could not be asked; nothing happened;
* METADATA_UNKNOWN: the connection was lost while the request was under way: it may have taken
  effect. Only the caller can tell, by reading back and comparing a token of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

ANY_VERSION = -1
"""Set or delete whatever version the node has."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value and its version. ``ephemeral_owner`` is the session's id, or 0."""

    value: bytes
    version: int
    ephemeral_owner: int = 0


class SessionState(Enum):
    """CONNECTED; SUSPENDED: connection lost, the session may live; EXPIRED: ephemerals are gone.

    After EXPIRED the store opens a new session by itself and reports CONNECTED again; owners of
    ephemeral nodes create them anew then.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class Watch(Protocol):
    """A running watch. ``close`` ends it; the callback is not called afterwards."""

    def close(self) -> None: ...


class MetadataStore(Protocol):
    """Asynchronous, linearizable for writes. Reads may be a little stale, but never older than the
    session's own writes nor than what it has read before (ZooKeeper's promise)."""

    @property
    def session_id(self) -> int:
        """Names this session in ``Versioned.ephemeral_owner``; never 0."""

    async def start(self) -> None:
        """Connect. Raises FencelogError(METADATA_UNAVAILABLE) within METADATA_TIMEOUT_MS."""

    async def close(self) -> None:
        """End the session; its ephemeral nodes go at once."""

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        """Create a node at version 0, and its missing parents. METADATA_EXISTS if it is there."""

    async def get(self, path: str) -> Versioned:
        """METADATA_NOT_FOUND if it is not there."""

    async def set(self, path: str, value: bytes, version: int) -> int:
        """Compare-and-set; returns the new version. METADATA_CONFLICT, METADATA_NOT_FOUND."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """METADATA_CONFLICT (version, or it has children), METADATA_NOT_FOUND."""

    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted; METADATA_NOT_FOUND if the node is not there."""

    def watch_value(self, path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        """Call back on the event loop with the value now and after changes (None: not there).

        Intermediate values may be skipped; the newest is always delivered in the end.
        """

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        """Call back with the sorted children now and after changes ([] while it is not there)."""

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        """Call back on the event loop at every change of the session's state."""
