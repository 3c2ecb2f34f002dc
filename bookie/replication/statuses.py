"""The states that the processes of autorecovery publish, for people and metrics.

``/autorecovery/{process_id}`` is an ephemeral node, as stale as its ``updated_us`` says. Nothing is
decided by it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.watch import names_or_empty

STATUSES_PATH = "/autorecovery"


def encode_status(status: Mapping[str, Any]) -> bytes:
    return json.dumps(status, separators=(",", ":")).encode()


async def read_statuses(store: MetadataStore) -> list[dict[str, Any]]:
    """Return the states of all processes, by name. Raises FencelogError: METADATA_UNAVAILABLE,
    CORRUPT."""
    names = await names_or_empty(store.children(STATUSES_PATH))
    found = await asyncio.gather(*(_status(store, name) for name in sorted(names)))
    return [status for status in found if status is not None]


async def _status(store: MetadataStore, name: str) -> dict[str, Any] | None:
    path = f"{STATUSES_PATH}/{name}"
    try:
        node = await store.get(path)
    except FencelogError as error:
        if error.code is ErrorCode.METADATA_NOT_FOUND:
            return None
        raise
    try:
        status = json.loads(node.value)
    except ValueError as error:
        raise FencelogError(ErrorCode.CORRUPT, f"{path} is not valid: {error}") from error
    if not isinstance(status, dict):
        raise FencelogError(ErrorCode.CORRUPT, f"{path} is not valid: no object")
    return status
