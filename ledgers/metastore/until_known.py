"""Requests to a metadata store whose outcome was lost, sent again until it is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import FOUND_OTHERWISE

T = TypeVar("T")

_ATTEMPTS = 3


async def until_known(step: Callable[[], Awaitable[T]]) -> T:
    """Carry out a step that recognises its own work, and repeat it while its outcome is unknown.

    Raises METADATA_UNKNOWN where it stays unknown, also when the store can no longer be reached,
    lets this process in no more, or refuses a later attempt for another reason than the node.
    """
    unknown: FencelogError | None = None
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await step()
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_UNKNOWN and attempt < _ATTEMPTS:
                unknown = error
            elif unknown is None or error.may_have_effect or error.code in FOUND_OTHERWISE:
                raise
            else:
                raise unknown from error
    raise AssertionError("unreachable")
