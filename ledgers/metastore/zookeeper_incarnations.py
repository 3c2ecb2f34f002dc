"""The distinction between creations of a path in ZooKeeper, whose versions begin at 0 with each.

A node is created together with a *guard*, ``/incarnations/{incarnation}``, an empty node of a name
that is never used twice, and it names its guard at the end of its value. Both are created by one
transaction and deleted by one, or by the end of their session. A change of the node is a
transaction that also checks that the guard is there: the guard of a previous node of the same path
is gone, so a writer that slept through a deletion and a new creation changes nothing.

A node that is created ``once`` has no guard (incarnation 0), and neither have parents that were
created together with a node: they are empty and all alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import Version, Versioned
from fencelog.ledgers.metastore.zookeeper_wire import (
    NodeOperation,
    NoNodeError,
    Refusal,
    RolledBackError,
    ServerError,
    Stat,
    check,
    create,
    delete,
    set_data,
)

GUARDS_PATH = "/incarnations"
"""The parent of the guards. It is never listed, so it may have more children than fit into one
answer."""

INCARNATION_BYTES = 16

UNGUARDED = 0

_MARK = b"\n@"
_TRAILER_BYTES = len(_MARK) + 2 * INCARNATION_BYTES
_TRAILER = re.compile(_MARK + b"([0-9a-f]{%d})" % (2 * INCARNATION_BYTES))


def with_trailer(value: bytes, incarnation: int) -> bytes:
    """Return the content of a node: the value, and after it the name of the guard."""
    return b"%b%b%032x" % (value, _MARK, incarnation)


def decode_node(path: str, data: bytes, stat: Stat) -> Versioned:
    """Return the node as ``MetadataStore`` has it. Raises FencelogError(CORRUPT)."""
    if not data:
        return Versioned(data, Version(UNGUARDED, stat.version), stat.ephemeral_owner)
    trailer = _TRAILER.fullmatch(data[-_TRAILER_BYTES:])
    if trailer is None:
        raise FencelogError(
            ErrorCode.CORRUPT,
            f"{path} was not written by this version of fencelog: it ends without an incarnation",
        )
    version = Version(int(trailer[1], 16), stat.version)
    return Versioned(data[:-_TRAILER_BYTES], version, stat.ephemeral_owner)


def guard_named_by(root: str, data: bytes) -> str | None:
    """Return the guard of a node with this content, if it has one. ``root``: that of the store."""
    trailer = _TRAILER.fullmatch(data[-_TRAILER_BYTES:])
    if trailer is None or int(trailer[1], 16) == UNGUARDED:
        return None
    return guard_path(root, int(trailer[1], 16))


def guard_path(root: str, incarnation: int) -> str:
    return f"{root}{GUARDS_PATH}/{incarnation:032x}"


class GuardedNode:
    """The changes of one node, each of which is one transaction with its guard. ``root``: that of
    the store; ``access``: the access list of both."""

    def __init__(self, root: str, path: str, *, access: bytes) -> None:
        self._root = root
        self._node = root + path
        self._access = access

    def create(self, value: bytes, *, incarnation: int, ephemeral: bool) -> list[NodeOperation]:
        data = with_trailer(value, incarnation)
        node = create(self._node, data, ephemeral=ephemeral, access=self._access)
        if incarnation == UNGUARDED:
            return [node]
        guard = self._guard(incarnation)
        return [node, create(guard, b"", ephemeral=ephemeral, access=self._access)]

    def set(self, value: bytes, version: Version) -> list[NodeOperation]:
        data = with_trailer(value, version.incarnation)
        node = set_data(self._node, data, version.number)
        if version.incarnation == UNGUARDED:
            return [node]
        return [node, check(self._guard(version.incarnation), 0)]

    def delete(self, version: Version) -> list[NodeOperation]:
        node = delete(self._node, version.number)
        if version.incarnation == UNGUARDED:
            return [node]
        return [node, delete(self._guard(version.incarnation), 0)]

    def _guard(self, incarnation: int) -> str:
        return guard_path(self._root, incarnation)


def check_committed(results: Sequence[ServerError | None], *, guard_gone: type[Refusal]) -> None:
    """Raise the reason why a transaction was refused, if it was: the error of the node itself, or
    ``guard_gone`` where the node's version would match, but it is not the node that was meant."""
    for position, result in enumerate(results):
        if result is not None and not isinstance(result, RolledBackError):
            is_guard = position > 0 and isinstance(result, NoNodeError)
            raise guard_gone() if is_guard else result
