"""The rules shared by all metadata stores: valid nodes, and the wording of each error."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_COMMIT_BYTES, MAX_METADATA_BYTES
from fencelog.ledgers.metastore.port import Change, Delete, Version

MAX_PATH_BYTES = 1024
"""The length of a path; servers keep every node's path in memory and send it with every request."""

_PATH = re.compile(r"(/[A-Za-z0-9._-]+)+", re.ASCII)


def check_path(path: str) -> None:
    """Check a path (see ``port``). Raises FencelogError(BAD_REQUEST) if it is not valid."""
    names_directory = "/./" in f"{path}/" or "/../" in f"{path}/"
    if len(path) > MAX_PATH_BYTES or names_directory or _PATH.fullmatch(path) is None:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"{path[:200]!r} is no valid metadata path")


def check_node(path: str, value: bytes) -> None:
    """Check a path and a value. Raises FencelogError(BAD_REQUEST) if no store may hold this
    node."""
    check_path(path)
    if len(value) > MAX_METADATA_BYTES:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"{path} would take {len(value)} bytes, {MAX_METADATA_BYTES} are allowed",
        )


def check_change(change: Change) -> None:
    """Check a change. Raises FencelogError(BAD_REQUEST) if no store may make it."""
    if isinstance(change, Delete):
        check_path(change.path)
    else:
        check_node(change.path, change.value)


def check_commit(changes: Sequence[Change]) -> None:
    """Check changes that are to be made together. Raises FencelogError(BAD_REQUEST) if no store may
    make one of them, or all at once."""
    for change in changes:
        check_change(change)
    size = commit_bytes(changes)
    if size > MAX_COMMIT_BYTES:
        raise too_large(changes, size, MAX_COMMIT_BYTES)


def commit_bytes(changes: Sequence[Change]) -> int:
    """Return the size of changes that are made together, which has a limit."""
    values = sum(len(change.value) for change in changes if not isinstance(change, Delete))
    return values + sum(len(change.path) for change in changes)


def too_large(changes: Sequence[Change], size: int, limit: int) -> FencelogError:
    """Return the error of changes that do not fit one commit."""
    return FencelogError(
        ErrorCode.BAD_REQUEST,
        f"the changes of {len(changes)} paths from {changes[0].path} on would take {size} bytes, "
        f"{limit} are allowed in one commit",
    )


def parent_of(path: str) -> str:
    """Return the parent of a path: ``/a/b`` -> ``/a``; ``/a`` -> ````, which stands for the root
    that is always there."""
    return path.rpartition("/")[0]


def ancestors_of(path: str) -> list[str]:
    """Return the ancestors of a path, ``/a/b/c`` -> ``/a``, ``/a/b``, in the order in which they
    have to be created."""
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]


def not_found(path: str) -> FencelogError:
    return FencelogError(ErrorCode.METADATA_NOT_FOUND, f"{path} is not there")


def exists(path: str) -> FencelogError:
    return FencelogError(ErrorCode.METADATA_EXISTS, f"{path} is there already")


def version_conflict(path: str, version: Version) -> FencelogError:
    return FencelogError(ErrorCode.METADATA_CONFLICT, f"{path} is no longer at version {version}")


def has_children(path: str) -> FencelogError:
    return FencelogError(ErrorCode.METADATA_CONFLICT, f"{path} has children")


def below_ephemeral(path: str) -> FencelogError:
    return FencelogError(
        ErrorCode.METADATA_CONFLICT, f"{path} would lie below an ephemeral node, which has none"
    )


def unavailable(what: str, why: str) -> FencelogError:
    """Return the error of a request that had no effect."""
    return FencelogError(ErrorCode.METADATA_UNAVAILABLE, f"{what}: {why}")


def unauthorized(what: str, why: str) -> FencelogError:
    """Return the error of a request that had no effect, and has none if it is sent again."""
    return FencelogError(ErrorCode.METADATA_UNAUTHORIZED, f"{what}: {why}")


def unknown(what: str, why: str) -> FencelogError:
    """Return the error of a request that may have taken effect."""
    return FencelogError(ErrorCode.METADATA_UNKNOWN, f"{what}: {why}; it may have taken effect")
