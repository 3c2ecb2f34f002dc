"""Events on their way to the state log, and who waits for them to be durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from fencelog.broker.ledger_list.state_core import Event
from fencelog.ledgers.errors import ErrorCode, FencelogError

Waiting = tuple[Event, asyncio.Future[None] | None]
"""Nobody waits for one that was only noted."""


def succeed(taken: Iterable[Waiting]) -> None:
    """They are durable."""
    for _, future in taken:
        if future is not None and not future.done():
            future.set_result(None)


def give_up(waiting: Iterable[Waiting], path: str, why: str) -> None:
    """Nobody can know what becomes of them."""
    for _, future in waiting:
        if future is not None and not future.done():
            future.set_exception(state_unknown(path, why))


def state_unknown(path: str, why: str) -> FencelogError:
    return FencelogError(
        ErrorCode.STATE_UNKNOWN, f"the change of {path} may have been made, or not: {why}"
    )


def retrieve(future: asyncio.Future[Any]) -> None:
    """Its error is the caller's, who may have gone away."""
    if not future.cancelled():
        future.exception()
