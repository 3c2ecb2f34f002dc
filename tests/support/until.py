"""Waiting for what sets no event: the state of another task, process or server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""The time after which something has gone wrong, on a loaded machine too."""

_PAUSE_S = 0.005
_PAUSE_OF_REQUESTS_S = 0.05
"""A condition that asks somebody costs both sides time."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds. Raises TimeoutError after ``PATIENCE_S``."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(_PAUSE_S)


async def until_found(ask: Callable[[], Awaitable[T | None]]) -> T:
    """Ask until the answer is true, and return it. Raises TimeoutError after ``PATIENCE_S``."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await ask()):  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(_PAUSE_OF_REQUESTS_S)
    return found
