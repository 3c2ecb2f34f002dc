"""The instance id: the cluster that a metadata store belongs to.

It is a node that only ``fencelog metadata init`` creates and that never changes. A store that was
emptied has none, and another store has none or a different one. In such a store every ledger looks
deleted; a bookie that trusted it would delete its data. The instance id prevents that.
"""

from __future__ import annotations

import json

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.paths import unavailable
from fencelog.ledgers.metastore.port import NO_VERSION, MetadataStore

INSTANCE_PATH = "/instance"

_ATTEMPTS = 3


async def read_instance(store: MetadataStore) -> str | None:
    """Return the instance id, 32 hex digits; None if there is none. It is not older than this call,
    and neither are later reads of the same session (compare ``store.session_id`` before and after).

    Raises FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT.
    """
    session_id = await catch_up(store)
    try:
        node = await store.get(INSTANCE_PATH)
    except FencelogError as error:
        check_session(store, session_id, "read the instance id")
        if error.code is ErrorCode.METADATA_NOT_FOUND:
            return None
        raise
    check_session(store, session_id, "read the instance id")
    try:
        instance = str(json.loads(node.value)["instance"])
        is_valid = len(bytes.fromhex(instance)) == 16
    except (ValueError, KeyError, TypeError):
        is_valid = False
    if not is_valid:
        raise FencelogError(ErrorCode.CORRUPT, f"{INSTANCE_PATH} holds no instance id")
    return instance


async def require_instance(store: MetadataStore, name: str = "the metadata store") -> str:
    """Return the instance id, as ``read_instance``; ``name`` is that of the store in the error.

    Raises FencelogError as ``read_instance``, and METADATA_NOT_FOUND where there is none.
    """
    instance = await read_instance(store)
    if instance is None:
        raise FencelogError(
            ErrorCode.METADATA_NOT_FOUND,
            f"{name} belongs to no cluster yet: run `fencelog metadata init` once, if it is that "
            "of a new cluster; if bookies have used it before, it was emptied: restore it; else "
            "name the right one, with its root",
        )
    return instance


async def create_instance(store: MetadataStore, host: Host) -> tuple[str, bool]:
    """Return the instance id, and whether it was created now; an existing one stays.

    Raises FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN (to be repeated), CORRUPT.
    """
    instance = host.random_bytes(16).hex()
    value = json.dumps({"instance": instance, "created_us": host.now_us()}).encode()
    try:
        await store.create(INSTANCE_PATH, value)
    except FencelogError as error:
        if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
            raise
        try:
            found = await read_instance(store)
        except FencelogError as unread:
            if not error.may_have_effect:
                raise
            raise error from unread
        if found is None:
            raise
        return found, found == instance
    return instance, True


async def catch_up(store: MetadataStore) -> int:
    """Return the id of a session that reads nothing older than this call until it ends: a session's
    reads are never older than its own writes, and a write comes after all writes that were
    acknowledged before, to any client. (ZooKeeper's ``sync`` guarantees less: it asks a leader that
    may have been replaced without knowing it.) Raises FencelogError: METADATA_UNAVAILABLE,
    METADATA_UNKNOWN; nothing was changed either way."""
    for attempt in range(1, _ATTEMPTS + 1):
        session_id = store.session_id
        try:
            await store.set(INSTANCE_PATH, b"", NO_VERSION)
        except FencelogError as error:
            if error.code in (ErrorCode.METADATA_CONFLICT, ErrorCode.METADATA_NOT_FOUND):
                return session_id
            if error.code is not ErrorCode.METADATA_UNKNOWN or attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def check_session(store: MetadataStore, session_id: int, what: str) -> None:
    """Check that the session is still the same. Raises METADATA_UNAVAILABLE where another session
    may have read older values."""
    if store.session_id != session_id:
        raise unavailable(what, "the session was lost meanwhile")
