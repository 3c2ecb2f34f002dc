"""The MetadataStore port: a small tree of versioned values with compare-and-set.

ZooKeeper's model, cut down to what the protocol needs. Implementations: ``memory`` (tests,
simulator), ``sqlite`` (durable, one process), ``zookeeper`` (a cluster). One conformance suite
(``tests/conformance``) runs against all three.

Paths are absolute, ``/a/b/c``; segments are ``[A-Za-z0-9._-]+``. ``create`` makes missing parents
(with empty values). Values are at most MAX_METADATA_BYTES.

Every change names the ``Version`` it is based on, and a version belongs to one creation of a node:
a node that was deleted and created again has none of the versions that the previous one had. So a
writer that slept can never change or delete the successor of the node that it has read, and there
is no way to change a node without having read it. (ZooKeeper's own versions begin at 0 with every
creation, which is not enough.) Parents that were created together with a node are the exception:
they are empty and all alike, and no path is used both for them and for nodes that are created by
name.

Errors, always FencelogError:

* METADATA_EXISTS, METADATA_NOT_FOUND, METADATA_CONFLICT (version differs, or ``delete`` of a node
  with children): definite, nothing happened;
* METADATA_UNAVAILABLE: the store could not be asked; nothing happened;
* METADATA_UNAUTHORIZED: the store refuses this process, or the node belongs to others; nothing
  happened, and trying again changes nothing;
* METADATA_UNKNOWN: the connection was lost while the request was in flight: it may have taken
  effect. Only the caller can tell, by reading back and comparing a token of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fencelog.ledgers.errors import ErrorCode

NOT_ASKED = (ErrorCode.METADATA_UNAVAILABLE, ErrorCode.METADATA_UNAUTHORIZED)
"""The errors of requests that have found out nothing: what came of an earlier one is as unknown as
before."""

FOUND_OTHERWISE = (
    ErrorCode.METADATA_CONFLICT,
    ErrorCode.METADATA_EXISTS,
    ErrorCode.METADATA_NOT_FOUND,
)
"""The refusals that say how a node is: whoever sends a change again looks there for its own work.
Whatever else refuses an attempt says nothing of one before whose answer was lost."""


@dataclass(frozen=True, slots=True)
class Version:
    """One state of one creation of a node: ``incarnation`` names the creation, ``number`` counts
    its changes from 0. Only stores make new ones."""

    incarnation: int
    number: int

    @property
    def first(self) -> Version:
        """Return the version with which the same creation began."""
        return Version(self.incarnation, 0)

    def __str__(self) -> str:
        return f"{self.number} of incarnation {self.incarnation:x}"


NO_VERSION = Version((1 << 128) - 1, (1 << 31) - 1)
"""The version of no node: a compare-and-set with it changes nothing, but is a write."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value and its version. ``ephemeral_owner`` is the session's id, or 0."""

    value: bytes
    version: Version
    ephemeral_owner: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node, see ``MetadataStore.create``."""

    path: str
    value: bytes
    ephemeral: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's value, see ``MetadataStore.set``."""

    path: str
    value: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node, see ``MetadataStore.delete``."""

    path: str
    version: Version


Change = Create | Set | Delete


class SessionState(Enum):
    """The state of a session. CONNECTED; SUSPENDED: connection lost, the session may live; EXPIRED:
    its ephemeral nodes are gone.

    After EXPIRED the store opens a new session by itself and reports CONNECTED again; owners of
    ephemeral nodes then create them again.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class Watch(Protocol):
    """A running watch. ``close`` ends it; the callback is not called afterwards."""

    def close(self) -> None: ...


class MetadataStore(Protocol):
    """The port to a metadata store: asynchronous, linearizable for writes. Reads may be slightly
    stale, but never older than the session's own writes nor than its previous reads (ZooKeeper's
    promise)."""

    @property
    def session_id(self) -> int:
        """The name of this session in ``Versioned.ephemeral_owner``; never 0."""

    async def start(self) -> None:
        """Connect. Raises FencelogError, METADATA_UNAVAILABLE or METADATA_UNAUTHORIZED, within
        METADATA_TIMEOUT_MS."""

    async def close(self) -> None:
        """End the session; its ephemeral nodes are deleted at once."""

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, once: bool = False
    ) -> Version:
        """Create a node, and its missing parents; returns its first version. ``once``: no node of
        this path is ever created again after this one was deleted, so the store need not tell
        incarnations apart. Raises METADATA_EXISTS if the node exists."""

    async def get(self, path: str) -> Versioned:
        """Return the node. Raises METADATA_NOT_FOUND if there is none."""

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        """Replace the value by compare-and-set; returns the new version. Raises METADATA_CONFLICT,
        METADATA_NOT_FOUND."""

    async def delete(self, path: str, version: Version) -> None:
        """Delete the node. Raises METADATA_CONFLICT (another version, or it has children),
        METADATA_NOT_FOUND."""

    async def commit(self, changes: Sequence[Change]) -> list[Version]:
        """Make all changes, in their order, or none of them: others see all at once. Return the
        version of each node after its change; of a deleted one the last that it had. Raises the
        error of the first change that is refused, as if it had been asked for alone; BAD_REQUEST if
        they take more than MAX_COMMIT_BYTES together."""

    async def children(self, path: str) -> list[str]:
        """Return the names of the children, sorted. Raises METADATA_NOT_FOUND if there is no such
        node."""

    def watch_value(self, path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        """Call back on the event loop with the value now and after changes (None: not there).

        Intermediate values may be skipped; the newest is always delivered in the end.
        """

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        """Call back with the sorted children now and after changes ([] while it is not there)."""

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        """Call back on the event loop at every change of the session's state."""
